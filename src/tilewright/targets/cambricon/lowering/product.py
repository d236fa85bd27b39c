"""Convolutions and matrix products: a product of one kernel row with the pixels below it.

In a channels-last image the pixels that a row of a kernel covers are one vector, and the weights of
that row, position by position and input channel by input channel, one matrix of rows that belong
to one input each. ``VMM`` multiplies them. A window that reaches into the padding takes fewer rows
of the matrix, which still lie one after the other: padding costs nothing and is never stored.

Sums of a few pixels lie side by side; the vector unit takes them together (epilogue.py) while the
matrix unit works on the next ones. Where a reduction is cut into tiles, sums stay in the result's
buffer with 32 bits until the last tile.
"""

from __future__ import annotations

from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.gathered import Gathered
from tilewright.targets.cambricon.lowering.nest import Tile
from tilewright.targets.cambricon.lowering.sliding import windows_box
from tilewright.targets.cambricon.lowering.split_sums import SplitSums


class Product(SplitSums):
    """The code of one product; ``emit`` for each place where a tile is computed."""

    def prologue(self) -> None:
        """Emit the code that runs before all tiles."""
        self.epilogue.prologue(self.e, self.size)
        if self.split_load is not None:
            self.split_load.prologue(self.e)
        if not self.split:
            self.base = self.e.variable(self.sums)

    def emit(self, tile: Tile) -> None:
        """Emit the code of one tile."""
        e, c = self.e, self.c
        box = windows_box(c.nest.box(self.x, tile), self.rows, self.columns)
        self.ci = tile.spans.of("ci")
        co = self.parts[0] if len(self.parts) > 1 else tile.spans.of("co")
        self._take(e.multiply(co, self.band))
        self.pixel = self.columns.stride_in(box)
        self.row = self.rows.step_in(box)
        if self.rings:
            self._gather()
        read = [operand for operand in (c.output, self.residual) if operand is not None]
        places = [c.nest.base(operand, tile) for operand in read]
        at: Value | None = None
        if self.bias is not None:
            bias = self.bias
            at = self.biases or c.nest.base(bias, tile)
        starts = range(0, self.parts[0] * len(self.parts), self.parts[0])
        self.biases_at = [None if at is None else e.add(at, 4 * start) for start in starts]
        if self.split:
            self.bias_at = at
            self.result, *added = (e.variable(place) for place in places)
            self.added = added[0] if added else None
            self.next_places, self.sizes = [], self._element_sizes()
            self.split_tile(tile, box)
            return
        if self.parted:
            self.steps = [c.nest.stride(operand, tile, self.columns.out) for operand in read]
        # The biases of the pending sums: those of the last part of the pixel before.
        self._arrive(places, self.biases_at[-1])
        self.alone = self.batch == 1
        self.at = self.base if self.alone else e.variable(self.base)
        self.halves = e.reg(self.sums + self.other_sums)
        self._image(tile, box, c.nest.base(self.x, tile))
        self._flush()

    def _gather(self) -> None:
        """Pixels and rows lie in rings."""
        channels = self.c.nest.extent("ci")
        self.gathered = Gathered(self.e, self.ring, channels, self.columns, self.row, self.pixel)
        # It steps from window to window itself.
        self.row, self.pixel = self.gathered.pitch, 0

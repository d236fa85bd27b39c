"""The products of one pixel: one for each row of the kernel, or for each of its positions.

Steps of the vector unit and issue slots stand between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.context import Context
from tilewright.targets.cambricon.lowering.emitter import Emitter, Value
from tilewright.targets.cambricon.lowering.sliding import Sliding
from tilewright.targets.cambricon.lowering.windows import UNROLLED

Steps = Sequence[Callable[[], None]]
"""Instructions of the vector unit, each emitted by one call."""


class Pixel(Protocol):
    """Emits one pixel; ``between`` stands between its products."""

    def __call__(self, between: Steps = ()) -> None:
        """Emit the code, with the given steps in between."""
        ...


class Pixels:
    """The state from which a pixel's code is emitted: the kernel's choices, the tile's numbers."""

    c: Context
    e: Emitter
    rows: Sliding
    columns: Sliding
    multiply: str
    """VMM or MMV."""
    split: bool
    """Whether sums are added to those of tiles before."""
    dense: bool
    """Whether the pixels below a row of the kernel are one vector."""
    grouped: bool
    slots_per_pixel: bool
    slots_per_row: bool
    """Whether issue slots follow each pixel, or each row of the kernel."""
    at_once = 1
    """Transfers that pass while a product runs."""
    step_cycles = 0
    """Of the vector unit's longest instruction for the sums of a batch."""
    product_cycles = 0
    """Of the product with a row of the kernel in whole windows."""
    full = True
    """Whether the windows at hand have all columns."""
    product = 0.0
    """Cycles of one product of the windows at hand; 0 where they are not known."""

    at: Register
    """Address of the pixel's sums."""
    alone = False
    """Whether a batch has one pixel: its sums begin where the batch's do."""
    ci: Value
    co: Value
    groups: Value
    """Of the tile: input and output channels of a group, and groups."""
    co_register: Register
    pixel: Value
    row: Value
    """Bytes from one pixel of the image to the next, and from one row."""
    position: Value
    matrix_row: Value
    """Bytes of the weights of one position of the kernel, and of one row."""

    def each_pixel(
        self, at: Register, matrices: list[Register], width: Value, kernel: Value
    ) -> Pixel:
        """Emits one pixel's products with steps between them, and goes on to the next pixel."""
        e = self.e
        forward = e.multiply(self.pixel, self.columns.stride)
        sums = e.multiply(self.co, 4)
        down = e.multiply(self.row, self.rows.dilation)
        dense = self.dense
        if dense and isinstance(width, Register):
            size = width  # In elements already; see _run.
        else:
            size = e.held(e.multiply(self.ci, width) if dense else self.ci)

        def group(place: Register, matrix: Register) -> None:
            self._rolled(place, matrix, size, width, kernel, down, False)
            e.increase(place, e.multiply(self.ci, 2))
            e.increase(matrix, e.multiply(self.matrix_row, self.rows.kernel))
            e.increase(self.at, sums)

        def each(between: Steps = ()) -> None:
            written = isinstance(kernel, int) and kernel <= UNROLLED and dense and not self.grouped
            rolled = dense and not self.grouped and not self.split
            if written:
                self._written_out(at, matrices, size, down, between)
            elif self.grouped:
                place, matrix = e.variable(at), e.variable(matrices[0])
                e.repeat(self.groups, lambda: group(place, matrix), least=1)
            else:
                steps = between if rolled else ()
                self._rolled(at, matrices[0], size, width, kernel, down, dense, steps)
            for step in () if written or rolled else between:
                step()
            e.increase(at, forward)
            if not self.grouped and not self.alone:
                e.increase(self.at, sums)
            # Windows that are cut off are few: one slot after each is less code.
            by_row = self.slots_per_row and (self.full or not written)
            if self.slots_per_pixel and not by_row:
                self._issue_slots(self.product * kernel if isinstance(kernel, int) else 0.0)

        return each

    def _issue_slots(self, cycles: float) -> None:
        """As many places for a transfer as products take the time of; 0 cycles: as others."""
        for _ in range(self.at_once):
            self.c.transfers.issue_slot(cycles / self.at_once or None)

    def _text(self, first: bool) -> str:
        return f"{self.multiply}.wide" if first and not self.split else f"{self.multiply}.acc.wide"

    def _written_out(
        self, at: Register, matrices: list[Register], size: Register, down: Value, between: Steps
    ) -> None:
        """One product for each kernel row; steps stand between them.

        They are as far apart as they can, so that none waits for the one before; where the first
        product lasts until all have started, they stand after that. The queue then holds products
        alone, which hide the scalar instructions after them.
        """
        e, co, rows = self.e, self.co_register, len(matrices)
        places = [(n + 1) * rows // (len(between) + 1) - 1 for n in range(len(between))]
        if self._stand_together(len(between)):
            places = [0] * len(between)
        place = at
        for number, matrix in enumerate(matrices):
            e.emit(self._text(number == 0), self.at, co, matrix, place, size)
            for step, behind in zip(between, places, strict=True):
                if max(behind, 0) == number:
                    step()
            if self.slots_per_row and self.full:
                self._issue_slots(self.product)
            if number + 1 < rows:
                further = e.register() if number == 0 else place
                e.emit("SADD", further, place, down)
                place = further

    def _stand_together(self, steps: int) -> bool:
        """Return True if ``steps`` steps have started before the first product is over."""
        return (steps - 1) * self.step_cycles <= self.product_cycles

    def _rolled(
        self,
        at: Register,
        matrix: Register,
        size: Register,
        width: Value,
        kernel: Value,
        down: Value,
        dense: bool,
        between: Steps = (),
    ) -> None:
        """A loop over kernel rows, and over their positions where those lie apart.

        Steps stand behind the first product: behind the last ones they would fill the queue, and
        nothing would hide the scalar instructions from one pixel to the next.
        """
        e, co = self.e, self.co_register
        place, rows = e.variable(at), e.variable(matrix)
        if not self.split and dense:
            e.emit(self._text(True), self.at, co, rows, place, size)
            for step in between:
                step()
            e.increase(place, down)
            e.increase(rows, self.matrix_row)
            kernel = e.subtract(kernel, 1)

        def row(fresh: bool = False) -> None:
            if dense:
                e.emit(f"{self.multiply}.acc.wide", self.at, co, rows, place, size)
                if self.slots_per_row:
                    self._issue_slots(self.product)
            else:
                x, m = e.variable(place), e.variable(rows)
                apart = e.multiply(self.pixel, self.columns.dilation)

                def position(text: str) -> None:
                    e.emit(text, self.at, co, m, x, size)
                    e.increase(x, apart)
                    e.increase(m, self.position)

                more = f"{self.multiply}.acc.wide"
                if fresh:
                    position(self._text(True))
                left = e.subtract(width, int(fresh))
                e.repeat(left, lambda: position(more), least=1 - int(fresh))
            e.increase(place, down)
            e.increase(rows, self.matrix_row)

        if not dense and not self.split:
            row(fresh=True)
            kernel = e.subtract(kernel, 1)
        e.repeat(kernel, row)

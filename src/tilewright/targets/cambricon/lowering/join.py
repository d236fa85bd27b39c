"""Tensors joined along an axis: a run of each, one after the other, by the vector unit.

In NHWC the channels of two images lie apart, pixel by pixel. Moves would take a transfer for each
of a pixel's parts; here tiles of the images are loaded, and the result is stored, in one piece::

    a: a0 a1 a2 ...   b: b0 b1 b2 ...      a0 b0 a1 b1 a2 b2 ...
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.errors import refuse
from tilewright.targets.cambricon.lowering.boxes import Box
from tilewright.targets.cambricon.lowering.context import Code, Context
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.nest import Tile
from tilewright.targets.cambricon.machine import lanes_of

TOGETHER = 4
"""Parts that one loop copies: each takes registers."""

INSTRUCTIONS = 3
"""Instructions of a run of one part: the copy, and the steps to the next places."""

UNROLLED = 4
"""The most runs of a part whose instructions are unrolled."""


class Join(Code):
    """The code of one concatenation."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        c = self.c
        anchor = c.anchor
        self.parts = [c.source(anchor, number)[0] for number in range(len(anchor.inputs))]
        self.stands_alone("nothing follows a concatenation")
        order = c.output.order
        if any(operand.element != 2 for operand in (*self.parts, c.output)):
            raise refuse("lower-elements", "elements of 16 bits alone are joined", c.where)
        if any(part.order != order for part in self.parts):
            raise refuse("lower-layout", "what is joined differs in layout", c.where)
        self.stays_whole(*self.parts, c.output)
        window = c.output.buffer.window.data
        place = next(i for i, axis in enumerate(order) if "axis" in window[axis].dims)
        self.outer, self.inner = order[:place], order[place:]
        within = prod(c.nest.tile_size(dim) for dim in self._dims(self.inner[1:]))
        rows = [
            -(-part.buffer.tensor_shape[order[place]] * within // lanes_of(c.machine))
            for part in self.parts
        ]
        self.cycles = [float(max(row, INSTRUCTIONS)) for row in rows]
        """Cycles of a run of each part."""
        # Tiles that come while others are copied do so one by one; those of one slot cannot.
        if all(part.slots > 1 for part in self.parts):
            c.transfers.space_slots(UNROLLED * sum(self.cycles[:TOGETHER]))

    def _dims(self, axes: Sequence[int]) -> list[str]:
        window = self.c.output.buffer.window.data
        return [dim for axis in axes for dim in window[axis].dims]

    def emit(self, tile: Tile) -> None:
        """Emit the code of one tile."""
        e, c = self.e, self.c
        box = c.nest.box(c.output, tile)
        sizes = [box.axes[axis].size for axis in self.outer]
        known = prod(size for size in sizes if isinstance(size, int))
        # Runs of which as many stand one after the other as divide them.
        written = next(n for n in range(UNROLLED, 0, -1) if known % n == 0)
        loops: Value = known // written
        for size in sizes:
            loops = loops if isinstance(size, int) else e.multiply(loops, size)
        counts = [self._count(c.nest.box(part, tile), self.inner) for part in self.parts]
        whole: Value = 0
        for count in counts:
            whole = e.add(whole, e.multiply(count, c.output.element))
        to: Value = tile.bases[c.output.buffer]
        for first in range(0, len(self.parts), TOGETHER):
            some = slice(first, first + TOGETHER)
            sources = [tile.bases[part.buffer] for part in self.parts[some]]
            cycles = written * sum(self.cycles[some])
            to = self._copy(sources, counts[some], to, whole, (loops, written), cycles)

    def _copy(
        self,
        sources: Sequence[Value],
        counts: Sequence[Value],
        to: Value,
        whole: Value,
        runs: tuple[Value, int],
        cycles: float,
    ) -> Value:
        """All runs of some parts, ``whole`` bytes apart in the result; where the next part's first
        one goes. ``runs`` is the number of loops, and of runs in each; a loop takes ``cycles``
        cycles."""
        e, element = self.e, self.c.output.element
        sizes = [e.multiply(count, element) for count in counts]
        copied: Value = 0
        for size in sizes:
            copied = e.add(copied, size)
        rest = e.subtract(whole, copied)
        places, target = [e.variable(source) for source in sources], e.variable(to)

        def run() -> None:
            for place, count, size in zip(places, counts, sizes, strict=True):
                e.emit("VMOVE", target, e.reg(count), place)
                e.increase(place, size)
                e.increase(target, size)
            if rest != 0:
                e.increase(target, rest)

        loops, written = runs

        def several() -> None:
            for _ in range(written):
                run()
            self.c.transfers.issue_slot(cycles)

        e.repeat(loops, several, least=1)
        return e.add(to, copied)

    def _count(self, box: Box, axes: tuple[int, ...]) -> Value:
        count: Value = 1
        for axis in axes:
            count = self.e.multiply(count, box.axes[axis].size)
        return count

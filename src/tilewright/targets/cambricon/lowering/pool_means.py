"""The divisors of means: the elements of a window that count, constant or computed at run time."""

from __future__ import annotations

from tilewright.errors import refuse
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.boxes import Box
from tilewright.targets.cambricon.lowering.context import Context
from tilewright.targets.cambricon.lowering.emitter import Emitter, Value
from tilewright.targets.cambricon.lowering.operands import Operand
from tilewright.targets.cambricon.lowering.sliding import Sliding
from tilewright.targets.cambricon.lowering.windows import Run

MOST_ELEMENTS = 1 << 17
"""Of a window whose mean is exact; larger ones only if they are a power of two."""


def check_area(area: int, where: str) -> None:
    """Refuse (``lower-window``) the mean of a window by whose size no vector can be divided."""
    if area > MOST_ELEMENTS and area & (area - 1):
        raise refuse(
            "lower-window",
            f"the mean of {area} elements: at most {MOST_ELEMENTS}, or a power of two",
            where,
            "pool in two steps",
        )


class Means:
    """The state of a pooling kernel from which its means' divisors are emitted."""

    c: Context
    e: Emitter
    x: Operand
    rows: Sliding
    columns: Sliding
    average: bool
    area: int
    """Elements of a whole window."""
    tile_box: Box
    result: Register
    sums: int
    zeros: int
    counts: int
    areas: int
    """Addresses of temporaries; ``areas`` holds the area in each element."""

    def _counted(self, run: Run) -> Value:
        """The elements that a mean counts in the windows of a run."""
        e = self.e
        rows = self._counted_along(self.rows, 0, run.y, run.rows)
        return e.multiply(rows, self._counted_along(self.columns, 1, run.x, run.width))

    def _counted_along(self, slide: Sliding, number: int, first: Value | None, met: Value) -> Value:
        """The rows (number 0) or columns that count of windows which begin at ``first`` of those
        held, ``met`` of which are in the image."""
        e = self.e
        if first is None or slide.axis is None or (isinstance(met, int) and met == slide.kernel):
            return slide.kernel
        padding = self.c.anchor.parameters.get("counted", (0, 0, 0, 0))
        extent = self.x.buffer.tensor_shape[slide.axis]
        place = e.add(first, slide.along(self.tile_box).low)
        end = e.minimum(e.subtract(extent + padding[number + 2], place), slide.kernel)
        begin = e.maximum(e.subtract(-padding[number], place), 0)
        return e.subtract(end, begin)

    def _counts(self, count: Value | None, total: Value) -> Register | None:
        """The vector of the windows' numbers of elements; None for a maximum."""
        e = self.e
        if count is None:
            return None
        if isinstance(count, int) and count == self.area:
            return e.held(self.areas)
        counts = e.held(self.counts)
        e.emit("VAS", counts, e.held(total), e.held(self.zeros), e.held(count))
        return counts

"""The divisors of means: the elements of a window that count, constant or computed at run time."""

from __future__ import annotations

from tilewright.errors import refuse
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.boxes import Box
from tilewright.targets.cambricon.lowering.context import Context
from tilewright.targets.cambricon.lowering.emitter import Emitter, Value
from tilewright.targets.cambricon.lowering.operands import Operand
from tilewright.targets.cambricon.lowering.pool_rows import Batch
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

    def _counted_rows(self, run: Run) -> Value:
        """Return the number of rows that a mean counts in the windows of a run."""
        low = self.rows.along(self.tile_box).low
        return self._counted(0, run.y, run.rows, low) if self.average else 0

    def _counted_columns(self, run: Run) -> Value:
        """Return the number of columns that a mean counts in the windows of a run."""
        return self._counted(1, run.x, run.width, self.columns.along(self.tile_box).low)

    def _counted(self, number: int, first: Value | None, met: Value | None, low: Value) -> Value:
        """Return the rows (number 0) or columns that count of windows from ``first`` of those held,
        ``met`` of which are in the image; the first one held is ``low``."""
        e, slide = self.e, (self.rows, self.columns)[number]
        if first is None or slide.axis is None or (isinstance(met, int) and met == slide.kernel):
            return slide.kernel
        padding = self.c.anchor.parameters.get("counted", (0, 0, 0, 0))
        extent = self.x.buffer.tensor_shape[slide.axis]
        place = e.add(first, low)
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

    def _divide(self, batch: Batch, rows: Value) -> None:
        """Sums by how many elements the windows have."""
        e, channels = self.e, self.c.nest.tile_size("c")
        for first, pixels, columns in batch.parts:
            size = pixels * channels
            counts = self._counts(e.multiply(rows, columns), size)
            assert counts is not None
            to = e.held(e.add(self.result, 2 * first * channels))
            e.emit("VDV.wide0", to, e.held(size), e.held(self.sums + 4 * first * channels), counts)

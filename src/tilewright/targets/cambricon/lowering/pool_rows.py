"""Whole rows of pooled pixels: which columns each batch of windows takes, where all is known.

A window that reaches into the padding has fewer columns than others; in a batch whose columns have
fixed places that is one instruction less, and no run of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.sliding import Sliding
from tilewright.targets.cambricon.lowering.windows import Body, Run, Windows


class Rows(Windows):
    """Windows whose rows are runs of all their pixels, from the first column that is held."""

    def _columns(
        self, row: Register, skipped: Value, rows: Value, y: Value | None, body: Body
    ) -> None:
        e = self.e
        at = e.variable(row)
        body(Run(at, self.width, skipped, rows, 0, self.columns.kernel, y, None))


@dataclass(frozen=True)
class Batch:
    """Neighbouring windows of a row."""

    windows: tuple[tuple[int, ...], ...]
    """Columns of each, from the first column of the batch."""
    counted: tuple[int, ...]
    """How many columns of each a mean counts."""
    step: int
    """Columns from its first one to that of the next batch."""

    @property
    def columns(self) -> int:
        """Columns of the batch."""
        return max(place for window in self.windows for place in window) + 1

    @property
    def parts(self) -> list[tuple[int, int, int]]:
        """Neighbours of which as many columns count: the first, how many, and the columns."""
        parts: list[tuple[int, int, int]] = []
        for counted, group in groupby(range(len(self.windows)), self.counted.__getitem__):
            pixels = list(group)
            parts.append((pixels[0], len(pixels), counted))
        return parts


def whole_batch(slide: Sliding, pixels: int) -> Batch:
    """A batch of windows that lie in the image."""
    width = (pixels - 1) * slide.stride + (slide.kernel - 1) * slide.dilation + 1
    return batches_of(slide, pixels, pixels, 0, width, lambda _: slide.kernel)[0]


def batches_of(
    slide: Sliding, width: int, most: int, before: int, size: int, counted: Callable[[int], int]
) -> list[Batch]:
    """A row of windows in batches; ``before`` columns of padding lie before the ``size`` held.

    ``counted`` says how many columns count of a window by its first, from the first one held.
    """
    batches: list[Batch] = []
    for start in range(0, width, most):
        pixels = range(start, min(start + most, width))
        firsts = [pixel * slide.stride - before for pixel in pixels]
        begin = max(firsts[0], 0)
        windows: list[tuple[int, ...]] = []
        for first in firsts:
            places = range(first, first + slide.kernel * slide.dilation, slide.dilation)
            windows.append(tuple(place - begin for place in places if 0 <= place < size))
        step = firsts[-1] + slide.stride - begin
        batches.append(Batch(tuple(windows), tuple(counted(first) for first in firsts), step))
    return batches


def alike(batches: Sequence[Batch]) -> list[tuple[int, Batch]]:
    """Neighbouring batches that are alike, as one with a number of times."""
    return [(len(list(group)), batch) for batch, group in groupby(batches)]

"""The rows of an image that the windows of a tile touch: what L1 holds of it, without padding."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen.nest.value import Value, greatest, least, linear
from tilewright.targets.ascend.lowering.nest import Spans


@dataclass(frozen=True)
class Rows:
    """Rows of an image: those of a tile's windows."""

    start: Value
    """The first that lies in the image."""
    count: Value
    above: Value
    """Rows of padding above it."""
    below: Value


@dataclass(frozen=True)
class Windows:
    """The windows of an image along its rows."""

    stride: int
    dilation: int
    above: int
    """Rows of padding above the image."""
    height: int
    """Rows of the image."""
    results: int
    """Rows of windows."""

    def rows(self, spans: Spans) -> Rows:
        """The rows that a tile's windows touch."""
        start = spans["oh"].start * self.stride - self.above
        start = start + spans["kh"].start * self.dilation
        span = (spans["oh"].size - 1) * self.stride + (spans["kh"].size - 1) * self.dilation + 1
        above = greatest(0 - start, 0)
        first = greatest(start, 0)
        last = start + span
        end = least(last, self.height)
        return Rows(first, end - first, above, last - end)

    def all_touch(self, spans: Spans) -> bool:
        """Return True if the windows of each tile touch a row of the image."""
        tiles = [(0, self.results)]
        # Tiles of what another compute reads begin at any row: their start has one term.
        for _, step in linear(spans["oh"].start)[0]:
            tiles = [
                (first, min(first + step, end))
                for start, end in tiles
                for first in range(start, end, step)
            ]
        span = (spans["kh"].most - 1) * self.dilation + 1
        starts = ((first * self.stride - self.above, end - 1 - first) for first, end in tiles)
        return all(
            start + further * self.stride + span > 0 and start < self.height
            for start, further in starts
        )

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


def touched(
    spans: Spans, stride: int, dilation: int, above: int, height: int, results: int
) -> Rows | None:
    """The rows that a tile's windows touch, of an image of ``height`` rows with ``above`` rows of
    padding above it and ``results`` rows of windows; None where the windows of some tile touch
    none."""
    tiles = [(0, results)]
    # Tiles of what another compute reads begin at any row: their start has one term.
    for _, step in linear(spans["oh"].start)[0]:
        tiles = [
            (first, min(first + step, end))
            for start, end in tiles
            for first in range(start, end, step)
        ]
    span = (spans["kh"].most - 1) * dilation + 1
    for first, end in tiles:
        start = first * stride - above
        if start + (end - 1 - first) * stride + span <= 0 or start >= height:
            return None
    start = spans["oh"].start * stride - above + spans["kh"].start * dilation
    reach = (spans["oh"].size - 1) * stride + (spans["kh"].size - 1) * dilation + 1
    first, last = greatest(start, 0), start + reach
    end = least(last, height)
    return Rows(first, end - first, greatest(0 - start, 0), last - end)

"""Pixels at the ends of a row whose windows reach beyond the image: what is known of them."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.targets.cambricon.lowering.sliding import Sliding

MOST = 3
"""Pixels at one end of a row up to which each has code of its own."""


@dataclass(frozen=True)
class CutOff:
    """One pixel whose window is cut off by the image's edge."""

    column: int
    """Of its window's first position, from that of the first pixel cut off at this end."""
    skipped: int
    """Positions of a row of the kernel before the image."""
    met: int
    """Positions that meet it."""


def cut_off(slide: Sliding, *, right: bool) -> tuple[CutOff, ...] | None:
    """The pixels at one end of a row where some are cut off; None where they differ from tile to
    tile, or are many."""
    ends = {pixels for kind in slide.tiles if (pixels := _of(slide, kind, right))}
    if len(ends) != 1:
        return None
    (pixels,) = ends
    return pixels if len(pixels) <= MOST else None


def _of(slide: Sliding, kind: tuple[int, int, int], right: bool) -> tuple[CutOff, ...]:
    """Those of one kind of tiles."""
    before, size, width = kind
    s, d = slide.stride, slide.dilation
    left = min(-(-before // s), width)
    first = left * s - before
    whole = min(max((size - first - slide.span + s) // s, 0), width - left)
    start, count = (first + whole * s, width - left - whole) if right else (-before, left)
    pixels: list[CutOff] = []
    for number in range(count):
        x = start + number * s
        skipped = (max(-x, 0) + d - 1) // d
        met = min((size - x + d - 1) // d, slide.kernel) - skipped
        pixels.append(CutOff(number * s, skipped, met))
    return tuple(pixels)

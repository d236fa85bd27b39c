"""Axes that blocks of a launch share: each has a run of indices, as the grid of the schedule says.

A kernel's extents are numbers, or a ``Share`` where the tile program's outermost loops cut the
axis. Axes that lie one in the other in memory become one (``joined``) as long as a block's part
stays one run: outside of an axis that is cut each block has a single index, inside of it all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.codegen.nest.value import Value, least, variable
from tilewright.errors import refuse

Places = tuple[tuple[str, int], ...]
"""Names of a block's places along the axes of a grid, outermost first, and how many there are."""


@dataclass(frozen=True)
class Share:
    """An axis of which each block has one run."""

    extent: int
    """Indices of all blocks together."""
    part: int
    """Indices of the longest run."""
    shortest: int
    first: Value
    """The first index of the block's run."""
    size: Value
    """The number of indices of the block's run."""
    places: Places = ()


Extent = int | Share
"""The number of indices of an axis, or the block's share of them."""


def total(extent: Extent) -> int:
    """The indices of all blocks together."""
    return extent.extent if isinstance(extent, Share) else extent


def share_of(extent: Extent) -> Share:
    """An axis as a share: of the only block, where nothing cuts it."""
    return extent if isinstance(extent, Share) else Share(extent, extent, extent, 0, extent)


def divided(name: str, extent: int, part: int) -> Extent:
    """An axis in runs of so many indices, of which the last may be shorter; ``name`` is that of a
    block's place."""
    parts = -(-extent // part)
    if parts == 1:
        return extent
    first = variable(name) * part
    rest = extent - (parts - 1) * part
    size: Value = part if rest == part else least(part, extent - first)
    return Share(extent, part, rest, first, size, ((name, parts),))


def spread(axes: Mapping[str, int], blocks: int) -> list[Extent]:
    """Axes as so many blocks share them, at most, the outermost first: an axis is cut where those
    around it give each block a single index. Names are those of a block's places.

    No run is shorter than half of the others, as all have tiles of the shortest.
    """
    result: list[Extent] = []
    for name, extent in axes.items():
        counts = range(min(blocks, extent), 0, -1)
        runs = (-(-extent // count) for count in counts)
        part = next(run for run in runs if 2 * (extent % run or run) >= run)
        result.append(divided(name, extent, part))
        blocks = blocks // extent if part == 1 else 1
    return result


def joined(extents: Sequence[Extent]) -> Extent:
    """Axes as one, the innermost last. Refuses (``lower-grid``) parts that are no runs of it."""
    result: Extent = 1
    for extent in extents:
        result = _pair(result, extent)
    return result


def joins(outer: Extent, inner: Extent) -> bool:
    """Return True if two axes may become one."""
    whole = total(outer) == 1 or not isinstance(inner, Share)
    return whole or share_of(outer).part == 1


def _pair(outer: Extent, inner: Extent) -> Extent:
    if not isinstance(outer, Share) and not isinstance(inner, Share):
        return outer * inner
    a, b = share_of(outer), share_of(inner)
    if not joins(outer, inner):
        reason = f"parts of {b.part} of {b.extent} indices are no runs of {a.extent} times as many"
        raise refuse("lower-grid", reason, help="a grid along the outer dims first")
    places = (*a.places, *b.places)
    extent = a.extent * b.extent
    if a.part == 1:
        return Share(extent, b.part, b.shortest, a.first * b.extent + b.first, b.size, places)
    size = a.size * b.extent
    part, shortest = a.part * b.extent, a.shortest * b.extent
    return Share(extent, part, shortest, a.first * b.extent, size, places)

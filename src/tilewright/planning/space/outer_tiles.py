"""Outer tilings: the tiles of the outermost level, around several tilings of the levels within.

One space holds those around all inner tilings, a row for each pair. See planning/space/levels.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import prod
from typing import Self

import numpy as np

from tilewright.machine import Memory, Primitive
from tilewright.planning.layout import Layout
from tilewright.planning.space.footprint import Bools, Counts, Floats, Ints, Use, picked, uses_of
from tilewright.planning.space.level_tiles import LevelTiling, Tiles, cuts_of
from tilewright.planning.space.levels import on_the_way, outer_view
from tilewright.planning.space.sizes import EFFORTS, tile_sizes
from tilewright.planning.space.tilings import Space, fitting, uncrossed


@dataclass
class OuterSpace(Space):
    """The outer tilings of a kernel around some inner tilings."""

    inner: tuple[LevelTiling, ...] = ()
    around: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Per row, the number of its inner tiling."""

    @cached_property
    def rows(self) -> int:
        """The number of tilings in the space."""
        return len(self.around)

    def take(self, rows: Ints) -> Self:
        """The tilings of the given rows, in that order."""
        index = {dim: column[rows] for dim, column in self.index.items()}
        return replace(self, index=index, around=self.around[rows])

    def compute(self, tile: Tiles) -> Floats:
        """Cycles of outer tiles of these sizes, one for each row."""
        cycles = np.zeros(self.rows)
        for cuts, rows in cuts_of(self.inner, self.around):
            cycles[rows] = cuts.cycles({dim: picked(size, rows) for dim, size in tile.items()})
        return cycles

    def inner_size(self, dim: str) -> Ints:
        """Column of a dim's sizes of the innermost tiles."""
        sizes = [tiling.innermost.sizes[dim] for tiling in self.inner]
        return np.array(sizes, np.int64)[self.around]

    def room(self, memory: Memory) -> Counts | None:
        """Bytes of a memory that the inner tilings leave."""
        if memory.room is None or memory.name not in self.inner[0].inside.levels[0]:
            return memory.room
        taken = [tiling.taken(memory.name) for tiling in self.inner]
        return memory.room - np.array(taken, np.int64)[self.around] if any(taken) else memory.room

    def _slot_bytes(self, use: Use) -> Ints:
        # Results on their way are no sums any more.
        if not use.output or use.leaves:
            return super()._slot_bytes(use)
        granule = use.memory.granule
        size = self.box(use) * use.element_bytes
        return (-(-size // granule) * granule).astype(np.int64)

    def allowed(self) -> Bools:
        """Return True, for each row, if sums stay where they are: a tile of a cut reduction is one
        innermost tile of the result."""
        reduction, cut = self.kernel.anchor.reduction, np.zeros(self.rows, np.bool_)
        single = np.ones(self.rows, np.bool_)
        for dim in self.index:
            if dim in reduction:
                cut |= self.trips(dim) > 1
            else:
                single &= self.size(dim) <= self.inner_size(dim)
        return super().allowed() & (single | ~cut)

    def computes(self, row: int) -> float:
        """Computes of one tiling."""
        tile = {dim: self.size(dim)[row : row + 1] for dim in self.index}
        tiles = prod(float(self.trips(dim)[row]) for dim in self.index)
        return tiles * float(self.tiling(row).cuts.computes(tile)[0])

    def tiling(self, row: int) -> LevelTiling:
        """The inner tiling of a row."""
        return self.inner[int(self.around[row])]


def outer_spaces(tilings: Sequence[LevelTiling], max_rows: int) -> list[OuterSpace]:
    """All outer tilings around some inner ones of one kernel that fit.

    Windows are cut around those inner tilings around which nothing else fits.
    """
    spaces: list[OuterSpace] = []
    left = tuple(tilings)
    for cut, small in EFFORTS[:2]:
        if left:
            space = _crossed(left, max_rows, cut=cut, small=small)
            left = tuple(t for n, t in enumerate(left) if not (space.around == n).any())
            spaces += [space] if space.rows else []
    return spaces


def _crossed(
    tilings: tuple[LevelTiling, ...], max_rows: int, *, cut: bool, small: bool
) -> OuterSpace:
    """The outer tilings of one effort (sizes.py)."""
    inside = tilings[0].inside
    kernel = inside.kernel
    view, primitive = outer_view(inside.machine, inside.primitive, {})
    uses = tuple(_rounded(use, inside.primitive) for use in uses_of(kernel, view, primitive))
    choices: list[dict[str, Ints]] = []
    for tiling in tilings:
        granular = primitive.model_copy(update={"multiples": tiling.sizes})
        choices.append(tile_sizes(kernel, granular, uses, cut=cut, small=small))
    sizes = {
        dim: np.unique(np.concatenate([choice[dim] for choice in choices]))[::-1]
        for dim in choices[0]
    }
    plain = uncrossed(kernel, view, primitive, uses, sizes)
    known = {column.name: getattr(plain, column.name) for column in fields(plain) if column.init}
    space = OuterSpace(**known, inner=tilings, around=np.arange(len(tilings)))
    space.single_level = any(use.output and not use.leaves for use in uses)
    done, checked = set[str](), set[str]()
    for dim, every in sizes.items():
        places = [np.flatnonzero(np.isin(every, choice[dim])) for choice in choices]
        count = np.array([len(chosen) for chosen in places])
        while count[space.around].sum() > max_rows and count.max() > 2:
            places = [
                chosen if len(chosen) <= 2 else np.append(chosen[:-1:2], chosen[-1])
                for chosen in places
            ]
            count = np.array([len(chosen) for chosen in places])
            space.cuts += [] if "rows" in space.cuts else ["rows"]
        # Each row goes on with every size that its inner tiling takes.
        further = count[space.around]
        row = np.repeat(np.arange(space.rows), further)
        place = np.arange(len(row)) - (np.cumsum(further) - further)[row]
        begin = np.cumsum(count) - count
        column = np.concatenate(places)[begin[space.around[row]] + place]
        before = space.take(row)
        done.add(dim)
        space = replace(
            before,
            index=before.index | {dim: column},
            considered=space.considered + len(row),
        )
        space = fitting(space, done, checked)
    return space.take(np.flatnonzero(space.allowed()))


def _rounded(use: Use, primitive: Primitive) -> Use:
    """A use with what its boxes are rounded to on the way: whole blocks, or of a result that has a
    tile of the level, what the primitive writes."""
    operand = use.operand
    if not use.output:
        layout = Layout.parse(operand.layout, len(operand.shape))
        blocks = on_the_way(layout, operand.shape, operand.access, primitive.whole)
        return replace(use, multiples=blocks, whole=True)
    if use.leaves:
        return use
    multiples = primitive.operands["output"].multiples
    return replace(use, multiples=tuple(axis.granule(multiples) for axis in operand.access))

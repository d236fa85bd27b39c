"""Tiles of a chain's kernels within those of the level around, one level for each memory that
operands pass on their way to the primitive.

The tiles next to a primitive come first: of those that fit, several that cut the result unlike one
another are kept, as if the memories around held all. Around each of them tiles of the next level
are sought, and so on. Of a kernel of a chain the outermost tile is what its reader asks for, and
the best nest within that is taken; a kernel alone has its outermost tiles from here, too. Results
come last: reductions are the innermost loops. A reduction that a level around the innermost cuts
leaves its sums next to the primitive, so such a tile is one innermost tile of the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from math import prod
from typing import Any

import numpy as np

from tilewright.planning.chains.nest_cost import Buffers, Inside, Run, Tiles, computed, slots_of
from tilewright.planning.chains.tiles import Tile
from tilewright.planning.chains.units import Place, Places, Unit
from tilewright.planning.cost.bounds import PRODUCTS
from tilewright.planning.space.footprint import Bools, Ints
from tilewright.planning.space.residents import is_solid, usable, whole_sums
from tilewright.planning.space.sizes import FURTHER_BATCHES, candidate_sizes, overlapping

ROWS = 1296
"""Tiles of one level that are looked at within a chain's tile."""

ALONE = 4000
"""Tiles that are looked at for a kernel alone, around each inner tile."""

TILES = 1024
"""Outermost tiles of a kernel alone, where so few fit."""

ORDERS = 3
"""Loops over dims of results of which all orders are tried."""

WITHIN = 10
"""Tiles of an inner level of a kernel alone around which those of the next one are sought."""

LARGEST = 4
"""Around how many more: those of the largest tiles of the result, which may cost more next to the
primitive, and spare the outer memories most."""

NEAR = 150
"""Tiles, best first, of which the largest are taken."""


@dataclass(frozen=True)
class Inner:
    """The inner loops of one kernel, which cut its tiles into those of the levels further in."""

    loops: tuple[tuple[str, int], ...] = ()
    """Dim and size of tiles of each loop, outermost first."""
    levels: tuple[int, ...] = ()
    """For each level but the outermost one and the innermost one, how many of the loops are around
    its tiles."""

    @property
    def order(self) -> tuple[str, ...]:
        """The dims of the loops, outermost first."""
        return tuple(dim for dim, _ in self.loops)

    @property
    def sizes(self) -> dict[str, int]:
        """The innermost tile's sizes along the dims that have inner loops."""
        return dict(self.loops)

    def around(self, level: int | None) -> tuple[tuple[str, int], ...]:
        """The loops that may be around a buffer: of a level in memories on the way, 0 for the
        outermost one, or of the innermost level (None)."""
        if level is None:
            return self.loops
        ends = (0, *self.levels)
        return self.loops[: ends[min(level, len(ends) - 1)]]


@dataclass
class InnerTiles:
    """The inner tiles of a chain's kernels."""

    places: Places
    accumulator: int
    """Bytes of an accumulator."""
    thinned: bool = False
    """True if some tiles of a kernel alone are left out."""
    _known: dict[tuple[int, tuple[int, ...]], Inner | None] = field(
        default_factory=dict[tuple[int, tuple[int, ...]], "Inner | None"]
    )

    def of(self, tile: Tile) -> tuple[Inner, ...] | None:
        """For each kernel of a chain, its inner tile; None where none fits."""
        tiles: list[Inner] = []
        for number, unit in enumerate(self.places.units):
            inner = self._of(tile, number, unit) if self.is_deep(number) else Inner()
            if inner is None:
                return None
            tiles.append(inner)
        return tuple(tiles)

    def is_deep(self, number: int) -> bool:
        """Return True if the operands of a kernel are parts of buffers further out."""
        mine = [place for place in self.places.all if place.unit == number and not place.staged]
        return any(p.source is not None or p.target is not None for p in mine) and any(
            p.staged and p.fill is not None and p.unit == number for p in self.places.all
        )

    def _of(self, tile: Tile, number: int, unit: Unit) -> Inner | None:
        spans, anchor = tile.spans(), unit.kernel.anchor
        most = {d: max(int(spans[unit.names.get(d, d)].size.max()), 1) for d in anchor.extents}
        key = number, tuple(most.values())
        if key not in self._known:
            levels = [level for level in self._levels(number) if level != 0]
            nests = _Nests(self, number, most, levels).best(1)
            self._known[key] = inner_of(nests[0][1], most) if nests else None
        return self._known[key]

    def alone(self, count: int) -> list[tuple[float, Tiles]]:
        """The best tiles of a kernel alone, with what they cost."""
        extents = self.places.units[0].kernel.anchor.extents
        for windows in (False, True):
            search = _Nests(self, 0, extents, self._levels(0), alone=True, windows=windows)
            nests = search.best(count)
            self.thinned |= search.thinned
            if nests:
                return nests
        return []

    def _levels(self, number: int) -> list[int | None]:
        levels = {p.level for p in self.places.all if p.unit == number and p.level is not None}
        return [*range(max(levels, default=0) + 1), None]


def inner_of(tiles: Tiles | None, most: Mapping[str, int]) -> Inner:
    """The loops of tiles within tiles of sizes ``most``."""
    loops: list[tuple[str, int]] = []
    ends: list[int] = []
    around = dict(most)
    while tiles is not None:
        for dim in tiles.order:
            if tiles.sizes[dim] < around[dim]:
                around[dim] = int(tiles.sizes[dim])
                loops.append((dim, around[dim]))
        ends.append(len(loops))
        tiles = tiles.within
    return Inner(tuple(loops), tuple(ends[:-1]))


@dataclass
class _Nests:
    """The search for tiles within tiles of one kernel."""

    of: InnerTiles
    number: int
    """The number of the kernel in its chain."""
    most: Mapping[str, int]
    levels: Sequence[int | None]
    alone: bool = False
    """True for a kernel alone, whose outermost tiles are sought, too."""
    windows: bool = False
    """True if windows may be cut."""
    thinned: bool = False

    def __post_init__(self) -> None:
        self.unit: Unit = self.of.places.units[self.number]
        anchor = self.unit.kernel.anchor
        self.slid = overlapping(self.unit.kernel.inputs, anchor.extents, anchor.reduction)

    def best(self, keep: int) -> list[tuple[float, Tiles]]:
        """The best tiles of all levels, best first; none where none fit."""
        ranked: list[tuple[float, Tiles]] = []
        for level in reversed(self.levels):
            within = [tiles for _, tiles in ranked] or [None]
            ranked = self._level(level, within, keep if level == self.levels[0] else 0)
            if not ranked:
                break
        return ranked

    def _level(
        self, level: int | None, within: Sequence[Tiles | None], keep: int
    ) -> list[tuple[float, Tiles]]:
        """The best tiles of a level around those within; ``keep`` of them, or if 0 those around
        which the tiles of a further level are sought."""
        machine = self.of.places.machine
        buffers = Buffers(self.unit, machine, self._places(level), self.of.accumulator)
        parts = [self._around(tiles) for tiles in within]
        counts = [len(next(iter(part.values()))) for part in parts]
        sizes = {dim: np.concatenate([part[dim] for part in parts]) for dim in self.most}
        number = np.repeat(np.arange(len(parts)), counts)
        extents = self.unit.kernel.anchor.extents
        visits = [
            prod((-(-extents[d] // sizes[d]) for d in buffers.dims[n]), start=np.ones(1, np.int64))
            for n in buffers.alone
        ]
        reduced = np.zeros(len(number), np.bool_)
        for dim in self.unit.kernel.anchor.reduction:
            reduced |= sizes[dim] < extents[dim]
        sums = buffers.sums(reduced)
        rooms = [buffers.room(n, sizes, sums) for n in buffers.alone]
        left = {
            name: room - np.array([_taken(tiles, name) for tiles in within])[number]
            for name, room in self._left(level)
        }
        slots, fits = slots_of(buffers, rooms, visits, left)
        fits = fits & self._is_allowed(level, sizes)
        chosen = np.flatnonzero(np.broadcast_to(fits, number.shape))
        if not chosen.size:
            return []
        sizes, number = {dim: column[chosen] for dim, column in sizes.items()}, number[chosen]
        slots = tuple(
            np.broadcast_to(s, fits.shape)[chosen] if np.size(s) > 1 else s for s in slots
        )
        tiles = Tiles(buffers, sizes, slots)
        run = Run(tiles, self.most, self._inside(within, buffers, sizes, number))
        best, orders = np.full(len(number), np.inf), np.zeros(len(number), np.int64)
        every = list(self._orders(sizes))
        for n, order in enumerate(every):
            cycles = run.cycles(order)
            better = cycles < best
            best, orders = np.where(better, cycles, best), np.where(better, n, orders)
        score = best + tiles.ends
        if within[0] is not None:
            score = score + np.array([t.ends for t in within if t is not None])[number]
        ranks = np.argsort(score, kind="stable")
        if level == 0:
            outer = prod((-(-self.most[d] // sizes[d]) for d in self.most), start=np.ones(1))
            few = ranks[np.broadcast_to(outer, score.shape)[ranks] <= TILES]
            ranks = few if few.size else ranks
        # Those that mirror each other (oh for ow, say) cost the same.
        apart = np.sort(np.unique(score[ranks].round(3), return_index=True)[1])[:keep]
        picked = ranks[apart].tolist() if keep else self._unlike(ranks, sizes)
        self.thinned |= len(picked) < len(ranks)
        return [
            (
                float(score[row]),
                Tiles(
                    buffers,
                    {dim: int(column[row]) for dim, column in sizes.items()},
                    tuple(int(s[row]) if np.size(s) > 1 else int(s[0]) for s in slots),
                    self._whole(every[orders[row]]),
                    within[number[row]],
                ),
            )
            for row in picked
        ]

    def _is_allowed(self, level: int | None, sizes: Mapping[str, Ints]) -> Bools:
        """Mask of the sizes for which results have no holes, resident operands lie as they are
        used, and each axis of outermost tiles changes with at most one loop (tiles.py)."""
        kernel, extents = self.unit.kernel, self.unit.kernel.anchor.extents
        cut = {dim: (size < extents[dim]).astype(np.int64) for dim, size in sizes.items()}
        allowed = is_solid(kernel, sizes) & usable(kernel, sizes, self.of.places.machine)
        for operand in kernel.operands if level == 0 else ():
            for axis in operand.access:
                allowed = allowed & (sum(cut[dim] for dim in axis.dims) <= 1)
        return allowed

    def _places(self, level: int | None) -> tuple[Place, ...]:
        """The buffers of a level that moves fill or empty."""
        mine = (p for p in self.of.places.all if p.unit == self.number and p.level == level)
        return tuple(p for p in mine if p.move and (level is not None or not p.staged))

    def _left(self, level: int | None) -> Iterator[tuple[str, int]]:
        """The room in each memory of a level; levels around and other kernels have their parts."""
        every, around = self.of.places.all, self.levels[: self.levels.index(level)]
        for memory in {p.memory.name: p.memory for p in self._places(level)}.values():
            if memory.room is None:
                continue
            users = [place for place in every if place.memory.name == memory.name]
            room = memory.room // len({place.unit for place in users})
            outer = any(p.unit == self.number and p.level in around for p in users)
            yield memory.name, room // 2 if outer else room

    def _inside(
        self,
        within: Sequence[Tiles | None],
        buffers: Buffers,
        sizes: Mapping[str, Ints],
        number: Ints,
    ) -> Inside:
        """The figures of the computes, or of the tiles within, for each tile."""
        if within[0] is None:
            return computed(buffers, sizes)
        cycles, queued, busy = np.zeros(len(number)), dict[str, Any](), dict[str, Any]()
        for n, tiles in enumerate(within):
            assert tiles is not None
            rows = np.flatnonzero(number == n)
            known = tiles.of({dim: column[rows] for dim, column in sizes.items()})
            cycles[rows] = known.cycles
            for figures, column in ((queued, known.queued), (busy, known.busy)):
                for engine, figure in column.items():
                    figures.setdefault(engine, np.zeros(len(number)))[rows] = figure
        return Inside(cycles, queued, busy)

    def _orders(self, sizes: Mapping[str, Ints]) -> Iterator[tuple[str, ...]]:
        anchor = self.unit.kernel.anchor
        cut = [dim for dim, column in sizes.items() if int(column.min()) < self.most[dim]]
        looped = sorted((d for d in cut if d not in anchor.reduction), key=lambda d: -self.most[d])
        rest, inner = looped[ORDERS:], [dim for dim in anchor.reduction if dim in cut]
        for order in permutations(looped[:ORDERS]):
            yield (*rest, *order, *inner)

    def _whole(self, order: tuple[str, ...]) -> tuple[str, ...]:
        """All dims, those of the loops last: within a smaller tile any may have one."""
        reduction = self.unit.kernel.anchor.reduction
        whole = [dim for dim in self.most if dim not in order]
        parallel = [dim for dim in (*whole, *order) if dim not in reduction]
        return (*parallel, *(dim for dim in (*whole, *order) if dim in reduction))

    def _unlike(self, ranks: Ints, sizes: Mapping[str, Ints]) -> list[int]:
        """Rows that cut the result unlike one another: the best, and the largest."""
        reduction = self.unit.kernel.anchor.reduction
        rows: dict[tuple[int, ...], int] = {}
        columns = [column for dim, column in sizes.items() if dim not in reduction]
        for row in ranks[:NEAR].tolist():
            rows.setdefault(tuple(int(column[row]) for column in columns), row)
        every = list(rows)
        if not self.alone:
            return [rows[cut] for cut in every[:1]]
        largest = sorted(every[WITHIN:], key=lambda cut: -prod(cut))[:LARGEST]
        return [rows[cut] for cut in (*every[:WITHIN], *largest)]

    def _around(self, within: Tiles | None) -> dict[str, Ints]:
        """Sizes of the tiles around some, or, of those next to the primitive, of all."""
        anchor = self.unit.kernel.anchor
        sizes = {dim: self._sizes(dim, within) for dim in self.most}
        if within is None:
            return self._crossed(sizes)
        whole = {d: every[:1] if d in anchor.reduction else every for d, every in sizes.items()}
        rows = self._crossed(whole)
        near = within.innermost.sizes
        single = {d: min(self.most[d], int(within.sizes[d])) for d in self.most}
        reduced = [d for d in anchor.reduction if len(sizes[d]) > 1]
        if not reduced or any(single[d] > near[d] for d in single if d not in anchor.reduction):
            return rows
        cut = {d: sizes[d] if d in anchor.reduction else [single[d]] for d in self.most}
        more = self._crossed(cut)
        return {dim: np.concatenate([rows[dim], more[dim]]) for dim in rows}

    def _crossed(self, sizes: Mapping[str, list[int]]) -> dict[str, Ints]:
        """All combinations of sizes, one in a row; of the longest columns fewer, evenly spread, if
        there are too many."""
        every = {dim: list(some) for dim, some in sizes.items()}
        most = ALONE if self.alone else ROWS
        while prod(len(some) for some in every.values()) > most:
            self.thinned = True
            dim = max(every, key=lambda d: len(every[d]))
            if len(every[dim]) <= 2:
                break
            kept = np.linspace(0, len(every[dim]) - 1, max(len(every[dim]) * 3 // 4, 2))
            every[dim] = [every[dim][n] for n in np.unique(kept.round().astype(int)).tolist()]
        grids = np.meshgrid(*(np.array(s, np.int64) for s in every.values()), indexing="ij")
        return {dim: grid.ravel() for dim, grid in zip(every, grids, strict=True)}

    def _sizes(self, dim: str, within: Tiles | None) -> list[int]:
        primitive, anchor, most = self.unit.primitive, self.unit.kernel.anchor, self.most[dim]
        taps = self.windows or (within is None and primitive.limits.get(dim, most) < most)
        whole = dim in primitive.whole or (dim in self.slid and not taps)
        if whole or dim in whole_sums(self.unit.kernel):
            return [most]
        if dim in anchor.reduction and anchor.operation not in PRODUCTS:
            return [most]
        if within is not None:
            return candidate_sizes(most, int(within.sizes[dim]))
        limit = 1 if dim in FURTHER_BATCHES else primitive.limits.get(dim)
        return candidate_sizes(most, primitive.multiples.get(dim, 1), limit)


def _taken(tiles: Tiles | None, memory: str) -> int:
    """Bytes of a memory that tiles and those within them take."""
    if tiles is None:
        return 0
    buffers, total = tiles.buffers, _taken(tiles.within, memory)
    for n, number in enumerate(buffers.alone):
        if buffers.places[number].memory.name == memory:
            total += int(np.max(buffers.room(number, tiles.sizes, True))) * int(tiles.slots[n])
    return total

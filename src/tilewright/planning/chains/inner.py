"""Inner tiles of a chain's kernels, where operands pass memories on their way to the primitive.

The outer tile lies in the memories next to main memory; a primitive computes it an inner tile at a
time, with loops of its own. Where operands pass several memories, there are tiles for each in
between, which cut no reduction. Of the tiles that fit a level, the one whose busiest engine is done
first is taken, results last: reductions are the innermost loops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import numpy as np

from tilewright.machine import Primitive, parse_expression
from tilewright.planning.chains.tiles import Tile
from tilewright.planning.chains.units import Place, Places, Unit
from tilewright.planning.cost.bounds import PRODUCTS
from tilewright.planning.space.footprint import Ints, holds_sums
from tilewright.planning.space.residents import whole_sums
from tilewright.planning.space.sizes import FURTHER_BATCHES, candidate_sizes

SIZES = 6
"""Sizes that are tried along a dim, at most."""

ORDERS = 3
"""Loops over dims of results of which all orders are tried."""


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
    _known: dict[tuple[int, tuple[int, ...]], Inner | None] = field(
        default_factory=dict[tuple[int, tuple[int, ...]], "Inner | None"]
    )

    def of(self, tile: Tile) -> tuple[Inner, ...] | None:
        """For each kernel of a chain, its inner tile; None where none fits."""
        tiles: list[Inner] = []
        for number, unit in enumerate(self.places.units):
            inner = self._of(tile, number, unit) if self._is_deep(number) else Inner()
            if inner is None:
                return None
            tiles.append(inner)
        return tuple(tiles)

    def _is_deep(self, number: int) -> bool:
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
            self._known[key] = self._nested(number, unit, most)
        return self._known[key]

    def _nested(self, number: int, unit: Unit, most: dict[str, int]) -> Inner | None:
        """The loops of all levels within the outermost one."""
        loops: list[tuple[str, int]] = []
        ends: list[int] = []
        levels = {p.level for p in self.places.all if p.unit == number and p.level is not None}
        for level in (*range(1, max(levels, default=0) + 1), None):
            places = [p for p in self.places.all if p.unit == number and p.level == level]
            places = [p for p in places if not p.staged or level is not None]
            inner = self._best(number, unit, most, places, level)
            if inner is None:
                return None
            loops += inner
            ends.append(len(loops))
            most = most | dict(inner)
        return Inner(tuple(loops), tuple(ends[:-1]))

    def _best(
        self,
        number: int,
        unit: Unit,
        most: Mapping[str, int],
        places: list[Place],
        level: int | None,
    ) -> tuple[tuple[str, int], ...] | None:
        """The loops of one level, whose buffers are ``places``; None if no tile fits."""
        anchor, primitive = unit.kernel.anchor, unit.primitive
        near = [p for p in places if p.fill is not None or p.flush is not None]
        if not near:
            return ()
        sizes = {dim: self._sizes(unit, dim, extent, level) for dim, extent in most.items()}
        grids = np.meshgrid(*(np.array(s, np.int64) for s in sizes.values()), indexing="ij")
        chosen = {dim: grid.ravel() for dim, grid in zip(sizes, grids, strict=True)}
        trips = {dim: -(-most[dim] // size) for dim, size in chosen.items()}
        reduced = np.ones(len(grids[0].ravel()), np.int64)
        for dim in anchor.reduction:
            reduced = reduced * trips[dim]
        sums = holds_sums(unit.kernel, primitive) | (reduced > 1)
        boxes = [self._bytes(p, unit, chosen, sums) for p in near]
        slots = self._slots(number, near, boxes)
        compute = _compute(primitive, chosen, trips)
        best: tuple[tuple[float, int], int, tuple[str, ...]] | None = None
        looped = [dim for dim in anchor.extents if dim not in anchor.reduction]
        looped = sorted((d for d in looped if min(sizes[d]) < most[d]), key=lambda d: -most[d])
        rest = tuple(looped[ORDERS:])
        inner = tuple(dim for dim in anchor.reduction if min(sizes[dim]) < most[dim])
        for order in permutations(looped[:ORDERS]):
            loops = (*rest, *order, *inner)
            score = self._cycles(primitive, near, boxes, slots, compute, trips, loops)
            for row in np.argsort(score, kind="stable")[:1].tolist():
                if np.isfinite(score[row]):
                    rank = float(score[row]), row
                    if best is None or rank < best[0]:
                        best = rank, row, loops
        if best is None:
            return None
        _, row, loops = best
        cut = {dim: int(chosen[dim][row]) for dim in loops if trips[dim][row] > 1}
        return tuple(cut.items())

    def _sizes(self, unit: Unit, dim: str, most: int, level: int | None) -> list[int]:
        primitive, anchor = unit.primitive, unit.kernel.anchor
        windows = {
            name
            for axis in unit.kernel.inputs[0].access
            for name, _ in axis.terms
            if len(axis.dims) > 1 and name in anchor.reduction
        }
        taps = dim in windows and primitive.limits.get(dim, most) < most
        whole = dim in primitive.whole or (dim in windows and not taps)
        whole = whole or dim in whole_sums(unit.kernel)
        sums = anchor.operation in PRODUCTS and level is None
        if whole or (dim in anchor.reduction and not sums):
            return [most]
        limit = 1 if dim in FURTHER_BATCHES else primitive.limits.get(dim)
        limit = limit if level is None else None
        every = candidate_sizes(most, primitive.multiples.get(dim, 1), limit)
        if len(every) <= SIZES:
            return every
        picked = np.unique(np.linspace(0, len(every) - 1, SIZES).round().astype(int))
        return [every[number] for number in picked.tolist()]

    def _bytes(self, place: Place, unit: Unit, sizes: Mapping[str, Ints], sums: Any) -> Ints:
        """Bytes of a slot of a buffer next to the primitive."""
        total = np.full(len(sums), place.element_bytes, np.int64)
        if place.made_by is not None:
            total = np.where(sums, max(place.element_bytes, self.accumulator), total)
        for axis, extent, granule in zip(
            place.operand.access, place.operand.shape, place.granules, strict=True
        ):
            length = np.minimum(axis.span(sizes), extent)
            total = total * (-(-length // granule) * granule)
        step = place.memory.granule
        return -(-total // step) * step

    def _slots(self, number: int, near: list[Place], boxes: list[Ints]) -> Ints:
        """Return how many slots each buffer may have: 2, 1, or 0 where not even one fits."""
        most = np.full(len(boxes[0]), 2)
        for memory in {place.memory.name: place.memory for place in near}.values():
            if memory.room is None:
                continue
            mine = [
                size for p, size in zip(near, boxes, strict=True) if p.memory.name == memory.name
            ]
            users = {p.unit for p in self.places.all if p.memory.name == memory.name}
            room = memory.room // max(len(users), 1)
            taken = np.sum(mine, axis=0)
            most = np.minimum(most, room // np.maximum(taken, 1))
        return most

    def _cycles(
        self,
        primitive: Primitive,
        near: list[Place],
        boxes: list[Ints],
        slots: Ints,
        compute: Any,
        trips: Mapping[str, Ints],
        loops: tuple[str, ...],
    ) -> Any:
        """Cycles of the busiest engine through an outer tile; infinite for what does not fit."""
        busy: dict[str, Any] = {primitive.engine: compute}
        ends = 0.0
        for place, size in zip(near, boxes, strict=True):
            move = place.fill or place.flush
            assert move is not None
            moves, within = np.ones(len(slots)), np.ones(len(slots), np.bool_)
            # Loops within the last that moves the box do not count.
            dims = list(loops)
            while dims and dims[-1] not in place.operand.dims:
                dims.pop()
            for dim in reversed(dims):
                if dim in place.operand.dims:
                    within = within & (trips[dim] == 1)
                moves = moves * np.where(within, 1, trips[dim])
            cycles = moves * size / move.bytes_per_cycle
            if move.in_flight == 1:
                cycles = cycles + moves * move.latency
            ends = ends + size / move.bytes_per_cycle + move.latency
            busy[move.engine] = busy.get(move.engine, 0.0) + cycles
        together = np.maximum.reduce(list(busy.values()))
        apart = np.sum(list(busy.values()), axis=0)
        score = np.where(slots > 1, together, apart) + ends
        return np.where(slots > 0, score, np.inf)


def _compute(primitive: Primitive, sizes: Mapping[str, Ints], trips: Mapping[str, Ints]) -> Any:
    """Cycles of all computes of an outer tile, by the sizes of inner ones."""
    count: Any = 1.0
    for dim in trips:
        count = count * trips[dim]
    expression: Any = parse_expression(primitive.cycles).evaluate(sizes)
    return np.ceil(expression) * count

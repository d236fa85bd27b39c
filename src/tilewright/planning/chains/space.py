"""The tilings of a chain that are tried: coarsely over all sizes, then around the best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import permutations, product
from math import inf, prod

from tilewright.errors import TilewrightError
from tilewright.machine import Machine
from tilewright.numerics.element_types import size_of
from tilewright.planning.chains.commands import Commands
from tilewright.planning.chains.cost import Tiling
from tilewright.planning.chains.inner import InnerTiles, inner_of
from tilewright.planning.chains.kept import block_step, choices
from tilewright.planning.chains.known import Figures, TileFigures, commands_of, texts_of
from tilewright.planning.chains.tiles import Tile
from tilewright.planning.chains.units import Places, Unit
from tilewright.planning.cost.bounds import PRODUCTS
from tilewright.planning.space.sizes import candidate_sizes

SIZES = 10
"""Tile sizes that are looked at along one dim."""

COARSE = (0, 1, 4, 9)
"""The indices of the candidate sizes, largest first, that are tried together along all dims."""

TILES = 1024
"""Tiles of a candidate, at most; and tile sizes that are looked at, the largest first."""

ORDERED = 3
"""Loops of which all orders are tried; of more, one order is: further ones hardly differ."""

PRICED = 24
"""Tilings that are priced, best estimate first, in the coarse round; a third of it in others."""

FEW = 8
"""Nests of a kernel alone that are priced first, however far apart the closed form has them."""

MISJUDGED = 0.12
"""A nest is priced if its cycles by the closed form exceed the best price by this share at most."""

FAR = 0.25
"""No nest is priced if its cycles by the closed form exceed the search's limit by this share."""

COMPUTES = 20_000
"""The most computes of a nest whose commands are timed; with more, its price is the closed form."""

SETTLED = 0.005
"""The gain below which no tiling is priced whose instructions are of rows: prices are no nearer."""

REFINED = 3
"""Tiles around which sizes are tried that the coarse round left out."""

Steps = tuple[int, ...]
"""The index of a tile's size among the candidates, along each dim."""


@dataclass
class Candidates:
    """The tilings of a chain by one choice of primitives."""

    places: Places
    machine: Machine
    figures: Figures = field(default_factory=Figures)
    """The figures of the chain's tilings, on this machine and on others like it."""
    cut: bool = False
    """True if reductions of the last kernel may have loops around the whole chain."""
    thinned: bool = False
    """True if some tilings are left out of the search."""
    refusal: TilewrightError | None = None
    """The reason for which some tile has no tilings: a box changes with two loops."""
    tilings: dict[Steps, list[Tiling]] = field(default_factory=dict[Steps, "list[Tiling]"])
    """The tilings found so far, by tile."""

    def __post_init__(self) -> None:
        self.last: Unit = self.places.units[-1]
        self.inner = InnerTiles(self.places, size_of(self.machine.accumulator))
        self.sizes = {
            dim: self._sizes(dim, n) for dim, n in self.last.kernel.anchor.extents.items()
        }

    def _sizes(self, dim: str, extent: int) -> list[int]:
        anchor, primitive = self.last.kernel.anchor, self.last.primitive
        # A producer is computed whole in the dims that it shares and does not tile.
        granule = max(unit.granule(dim) for unit in self.places.units)
        parts = self.cut and anchor.operation in PRODUCTS and dim not in ("kh", "kw")
        if dim in primitive.whole or (dim in anchor.reduction and not parts):
            return [extent]
        limit = None if self.places.is_deep else primitive.limits.get(dim)
        every = candidate_sizes(extent, granule, limit)
        if (step := block_step(self.places, dim)) and step < min(every):
            every.append(step)
        self.thinned |= len(every) > SIZES
        return every if len(every) <= SIZES else [*every[: SIZES - 1], every[-1]]

    @property
    def is_nest(self) -> bool:
        """True for a kernel alone of which levels of tiles are nested."""
        return len(self.places.units) == 1 and self.inner.is_deep(0)

    def nests(self) -> Iterator[Tiling]:
        """The best nests of tiles of a kernel alone, by the closed form of nest_cost.py."""
        extents = self.last.kernel.anchor.extents
        for cycles, tiles in self.inner.alone(PRICED):
            sizes = {dim: int(tiles.sizes[dim]) for dim in extents}
            order = tuple(dim for dim in tiles.order if sizes[dim] < extents[dim])
            nest = inner_of(tiles.within, sizes)
            yield Tiling(
                Tile(self.places, sizes), self.machine, order, (nest,), modelled_cycles=cycles
            )
        self.thinned |= self.inner.thinned

    def look(self, *, coarse: bool) -> None:
        """Find the tilings of all tiles, or of some of each dim's sizes."""
        if self.is_nest:
            self.tilings[()] = list(self.nests()) if coarse else []
            return
        steps = [
            [n for n in range(len(sizes)) if not coarse or n in COARSE or n == len(sizes) - 1]
            for sizes in self.sizes.values()
        ]
        tiles = sorted(product(*steps), key=lambda tile: -prod(self._tile(tile).values()))
        self.thinned |= len(tiles) > TILES
        for tile in tiles[:TILES]:
            self.at(tile)

    def _tile(self, steps: Steps) -> dict[str, int]:
        return {dim: self.sizes[dim][n] for dim, n in zip(self.sizes, steps, strict=True)}

    def around(self, steps: Steps) -> list[Tiling]:
        """The tilings of the tiles that differ in the next size along one dim, if they are new."""
        tilings: list[Tiling] = []
        if self.is_nest:
            return tilings
        for axis, sizes in enumerate(self.sizes.values()):
            for step in (steps[axis] - 1, steps[axis] + 1):
                near = (*steps[:axis], step, *steps[axis + 1 :])
                if 0 <= step < len(sizes) and near not in self.tilings:
                    tilings += self.at(near)
        return tilings

    def at(self, steps: Steps) -> list[Tiling]:
        """The tilings of one tile that the primitives take, whether they fit or not."""
        if steps not in self.tilings:
            try:
                self.tilings[steps] = list(self._orders(self._tile(steps)))
            except TilewrightError as error:
                self.tilings[steps], self.refusal = [], error
        return self.tilings[steps]

    def _orders(self, sizes: dict[str, int]) -> Iterator[Tiling]:
        known = self.figures.tiles.setdefault(tuple(sizes.values()), TileFigures())
        busy = known.busy.setdefault(texts_of(self.machine)[1], {})
        shape = Tile(
            self.places, sizes, known.spans, known.boxes, known.totals, busy=busy, homes=known.homes
        )
        if prod(shape.trips(dim) for dim in shape.cut) > TILES:
            self.thinned = True
            return
        for place in self.places.all:
            shape.boxes(place.unit, place.operand)
        nests = self.inner.of(shape)
        pairs = zip(self.places.units, nests or (), strict=False)
        if nests is None or not all(shape.takes(unit, inner.sizes) for unit, inner in pairs):
            return
        reduction = self.last.kernel.anchor.reduction
        parallel = [dim for dim in shape.cut if dim not in reduction]
        reduced = tuple(dim for dim in shape.cut if dim in reduction)
        orders = permutations(parallel) if len(parallel) <= ORDERED else [tuple(parallel)]
        self.thinned |= len(parallel) > ORDERED
        for order in orders:
            tiling = Tiling(shape, self.machine, (*order, *reduced), nests)
            if not _is_nested(tiling):
                continue
            yield tiling
            for kept in choices(tiling):
                yield Tiling(shape, self.machine, tiling.order, nests, kept)


def _is_nested(tiling: Tiling) -> bool:
    """Return True if a producer's result changes with as many loops as the producer itself.

    It would be computed again with each of further loops. Where the producer has a domain of its
    own, that is part of the domain's meaning; where it has none, its loops are the chain's, and
    each point of these is computed once (``tile-coverage``).
    """
    places, last = tiling.places, len(tiling.units) - 1
    for index in places.homes.values():
        place = places.all[index]
        free = place.unit < last and not tiling.units[place.unit].bound
        if free and tiling.depth(place) < tiling.unit_depth(place.unit):
            return False
    return True


def _computes(tiling: Tiling) -> int:
    """The number of a kernel's computes, where it is alone."""
    count, around = tiling.count, tiling.tile
    for dim, size in tiling.inner[0].loops:
        count *= -(-around[dim] // size)
        around[dim] = size
    return count


@dataclass
class Search:
    """The best tilings of a chain's candidates."""

    candidates: Sequence[Candidates]
    limit: float = inf
    """Cycles above which no tiling is wanted."""
    priced: list[tuple[float, int, Tiling]] = field(default_factory=list[tuple[float, int, Tiling]])
    """Cycles of what was priced, best first, with the order in which that was done."""
    stopped: bool = False
    """True if the search left out tilings whose bound is below the best cycles."""

    @property
    def count(self) -> int:
        """The tilings that were looked at."""
        return sum(
            len(many) for candidate in self.candidates for many in candidate.tilings.values()
        )

    def run(self) -> None:
        """Price the best of the coarse round, then what lies around them."""
        for coarse in (True, False):
            for candidate in self.candidates:
                candidate.look(coarse=coarse)
            every = (many for candidate in self.candidates for many in candidate.tilings.values())
            self._price([tiling for many in every for tiling in many])
            if self.priced:
                break
        for candidate in self.candidates:
            candidate.thinned |= any(len(sizes) > len(COARSE) for sizes in candidate.sizes.values())
        done: set[tuple[int, Steps]] = set()
        while self.priced:
            best = [self._steps(tiling) for _, _, tiling in self.priced[: 2 * REFINED]]
            new = [key for key in dict.fromkeys(best) if key not in done][:REFINED]
            near = [tiling for number, steps in new for tiling in self._around(number, steps)]
            done |= set(new)
            if not near:
                break
            self._price(near)

    def _around(self, number: int, steps: Steps) -> list[Tiling]:
        return self.candidates[number].around(steps)

    def _steps(self, tiling: Tiling) -> tuple[int, Steps]:
        """The candidate of a tiling, and its tile."""
        for number, candidate in enumerate(self.candidates):
            if candidate.places is tiling.places:
                sizes = tiling.shape.sizes
                if candidate.is_nest:
                    return number, ()
                return number, tuple(
                    candidate.sizes[dim].index(sizes[dim]) for dim in candidate.sizes
                )
        raise KeyError("the tiling is of no candidate")

    def _price(self, tilings: list[Tiling]) -> None:
        """Price those that fit, best estimate first; an estimate takes a tiling's slots, and so is
        made when the tiling's turn comes by the least that it may be."""
        most = PRICED // 3 if self.priced else PRICED
        best, done = min((entry[0] for entry in self.priced), default=self.limit), 0
        by_rows = any(each.machine.synchronisation.by_rows for each in self.candidates)
        gain = 1 + SETTLED * by_rows
        queue = [
            (tiling.modelled_cycles or tiling.least, -tiling.tile_points, n, False)
            for n, tiling in enumerate(tilings)
        ]
        heapify(queue)
        while queue:
            _, points, number, fits = heappop(queue)
            tiling = tilings[number]
            if not tiling.modelled_cycles and tiling.bound * gain > best:
                continue
            worth = best * (1 + MISJUDGED) if done >= FEW else self.limit * (1 + FAR)
            if tiling.modelled_cycles > worth:
                self.stopped = True
                break
            if not fits:
                if tiling.fits():
                    rank = tiling.modelled_cycles or tiling.estimate
                    heappush(queue, (rank, points, number, True))
                continue
            if done == most:
                self.stopped = True
                break
            many = tiling.modelled_cycles and _computes(tiling) > COMPUTES
            cycles = max(tiling.modelled_cycles, tiling.bound) if many else self._cycles(tiling)
            done += 1
            if cycles <= self.limit:
                self.priced.append((cycles, len(self.priced), tiling))
                best = min(best, cycles)
        self.priced.sort(key=lambda entry: entry[:2])

    def _cycles(self, tiling: Tiling) -> float:
        """The cycles of a tiling's commands, by the machine's timing core."""
        figures = next(c.figures for c in self.candidates if c.places is tiling.places)
        if tiling.places.is_deep:
            commands = Commands(tiling)
            return commands.cycles(commands.table())
        inner = tuple((inner.loops, inner.levels) for inner in tiling.inner)
        loops = tuple(tiling.shape.sizes.values()), tiling.order, inner, tiling.kept
        homes = tuple(memory.name for memory in tiling.homes)
        key = loops, tuple(sorted(tiling.slots.items())), homes
        rates, commands = texts_of(tiling.machine)[1], Commands(tiling)
        if (rates, key) not in figures.prices:
            # The latency of instructions of rows depends on the time in which their bytes flow.
            kept = (rates, key) if commands.by_rows else key
            table = commands_of(figures, kept, commands.table)
            figures.prices[rates, key] = commands.cycles(table)
        return figures.prices[rates, key]

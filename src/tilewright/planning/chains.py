"""Plans of chains: kernels that compute on the chip what they read (``Kernel.producers``).

The loops are those of the last kernel, over its parallel dims, and over its reductions where tiles
with whole ones do not fit. Each tile computes first what it reads of the producers' results, halo
included, at once; where primitives turn rows in circular buffers, rows that the tile before left
are not computed again. Where operands pass a memory on the way, each kernel cuts its part of a tile
once more (chain_inner.py). So the space is small: the tilings that fit are sorted by a lower bound
(every engine's work, bytes through main memory), and the best are priced by the timing core, on the
commands that they become (chain_commands.py). (DNNVM, section 4.3: condition 1 is a tile that fits,
condition 2 the tile that is everything.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations, product
from math import prod
from time import perf_counter

from tilewright.errors import TilewrightError, refuse
from tilewright.machine import Machine, Primitive
from tilewright.numerics.element_types import ELEMENT_BYTES
from tilewright.planning.bounds import (
    PRODUCTS,
    compute_cycles,
    main_bandwidth,
    peak_cycles,
    primitives_for,
)
from tilewright.planning.chain_commands import Commands
from tilewright.planning.chain_cost import Tiling
from tilewright.planning.chain_inner import InnerTiles
from tilewright.planning.chain_tiles import Tile
from tilewright.planning.chain_units import Places, Unit, units_of
from tilewright.planning.domain import Kernel
from tilewright.planning.footprint import whole_elements
from tilewright.planning.plan import Budget, Plan, Timer
from tilewright.planning.schedule import Level, Schedule
from tilewright.planning.sizes import candidate_sizes

SIZES = 10
"""Tile sizes that are tried along one dim."""

TILES = 1024
"""Tiles of a candidate, at most; and tile sizes that are looked at, the largest first."""

ORDERED = 3
"""Loops of which all orders are tried; of more, one order is: further ones hardly differ."""

FEW = 2
"""Results whose rows can be kept, of which each alone is tried, too."""

PRICED = 48
"""Tilings that are priced, best lower bound first."""

TIMED = 6
"""Candidates that are timed, best cost first."""


def plan_chain(
    kernel: Kernel, machine: Machine, *, timer: Timer | None = None, budget: Budget | None = None
) -> Plan:
    """The best schedule of a kernel with producers; of ``budget``, ``timed`` counts.

    Raises TilewrightError: ``plan-primitive``, ``plan-operand``, ``plan-capacity`` as ``plan``
    does, ``kernel-chain`` where the producers' tiles do not follow from the kernel's.
    """
    begin = perf_counter()
    failures: list[TilewrightError] = []
    tilings: list[Tiling] = []
    cuts: dict[str, None] = {}
    for chosen in _primitives(kernel, machine):
        try:
            fitting, thinned = _tilings(units_of(kernel, machine, chosen), machine)
        except TilewrightError as error:
            failures.append(error)
            continue
        tilings += fitting
        cuts |= {"rows": None} if thinned else {}
    if not tilings:
        if failures:
            raise failures[0]
        raise refuse(
            "plan-capacity",
            f"no tile of {kernel.anchor.operation} fits {machine.name} with what it computes first",
            kernel.symbol,
            "give the machine more memory, or leave the kernels apart",
        )
    tilings.sort(key=lambda tiling: (tiling.bound, -tiling.tile_points))
    priced: list[tuple[float, int]] = []
    for number, tiling in enumerate(tilings):
        if priced and tiling.bound > min(priced)[0]:
            break
        if number == PRICED:
            cuts["priced"] = None
            break
        priced.append((Commands(tiling).cycles(), number))
    priced.sort()
    (cycles, best), took, timed = priced[0], None, 0
    if timer is not None:
        candidates = priced[: min(TIMED, (budget or Budget()).timed)]
        times = [(timer(kernel, schedule_of(tilings[n])), cost, n) for cost, n in candidates]
        (took, cycles, best), timed = min(times), len(times)
    physical, granule = bounds(kernel, machine)
    return Plan(
        schedule=schedule_of(tilings[best]),
        predicted_cycles=cycles,
        moved_bytes=tilings[best].moved_bytes,
        physical_bound=physical,
        granule_bound=granule,
        candidates=len(tilings),
        priced=len(priced),
        seconds=perf_counter() - begin,
        complete=not cuts,
        cuts=tuple(cuts),
        timed_cycles=took,
        timed=timed,
    )


def bounds(kernel: Kernel, machine: Machine) -> tuple[float, float]:
    """Physical and granule bound of a kernel with its producers: the work of the busiest engine,
    and main memory's for what is not internal."""
    peak: dict[str, float] = {}
    granule: dict[str, float] = {}
    moved = 0
    for unit in _flat(kernel):
        primitives = primitives_for(unit, machine)
        fastest = min(primitives, key=lambda primitive: compute_cycles(unit, primitive))
        for total, cycles in ((peak, peak_cycles), (granule, compute_cycles)):
            engine = fastest.engine
            total[engine] = total.get(engine, 0.0) + min(cycles(unit, each) for each in primitives)
        internal = {o.name for o in kernel.made}
        for operand in unit.operands:
            if operand.name not in internal and not operand.held:
                moved += whole_elements(operand, unit.anchor.extents) * operand.element_bytes
    traffic = moved / main_bandwidth(machine)
    return max(traffic, *peak.values()), max(traffic, *granule.values())


def _flat(kernel: Kernel) -> list[Kernel]:
    """A kernel's producers, theirs first, and the kernel, each alone."""
    return [*(unit for producer in kernel.producers for unit in _flat(producer)), kernel.alone]


def _primitives(kernel: Kernel, machine: Machine) -> Iterator[tuple[Primitive, ...]]:
    """Choices of a primitive for each kernel, in the order of ``_flat``."""
    return product(*(primitives_for(unit, machine) for unit in _flat(kernel)))


def _tilings(units: tuple[Unit, ...], machine: Machine) -> tuple[list[Tiling], bool]:
    """The tilings that fit, with as many slots as fit; and whether others were not looked at.

    Reductions of the last kernel are cut only where nothing fits otherwise.
    """
    places = Places(units, machine)
    thinned = False
    for cut in (False, True):
        fitting, thin = _fitting(places, machine, cut=cut)
        thinned |= thin
        if fitting:
            return fitting, thinned
    return [], thinned


def _fitting(places: Places, machine: Machine, *, cut: bool) -> tuple[list[Tiling], bool]:
    last = places.units[-1]
    anchor, primitive = last.kernel.anchor, last.primitive
    sizes: dict[str, list[int]] = {}
    thinned = False
    for dim, extent in anchor.extents.items():
        # A producer is computed whole in the dims that it shares and does not tile.
        granule = max(unit.granule(dim) for unit in places.units)
        fixed = dim in primitive.whole or (dim in anchor.reduction and not _splits(last, dim, cut))
        limit = None if places.is_deep else primitive.limits.get(dim)
        every = [extent] if fixed else candidate_sizes(extent, granule, limit)
        thinned |= len(every) > SIZES
        sizes[dim] = every if len(every) <= SIZES else [*every[: SIZES - 1], every[-1]]
    tiles = sorted(product(*sizes.values()), key=lambda tile: -prod(tile))
    thinned |= len(tiles) > TILES
    inner = InnerTiles(places, ELEMENT_BYTES[machine.accumulator])
    fitting: list[Tiling] = []
    for chosen in tiles[:TILES]:
        shape = Tile(places, dict(zip(sizes, chosen, strict=True)))
        if prod(shape.trips(dim) for dim in shape.cut) > TILES:
            thinned = True
            continue
        nests = inner.of(shape)
        if nests is None:
            continue
        parallel = [dim for dim in shape.cut if dim not in anchor.reduction]
        reduced = tuple(dim for dim in shape.cut if dim in anchor.reduction)
        orders = permutations(parallel) if len(parallel) <= ORDERED else [tuple(parallel)]
        thinned |= len(parallel) > ORDERED
        for order in orders:
            tiling = Tiling(shape, machine, (*order, *reduced), nests)
            if not tiling.fits():
                break
            fitting.append(tiling)
            keepable = tiling.keepable
            for kept in _parts(keepable):
                keeping = Tiling(shape, machine, tiling.order, nests, kept)
                fitting += [keeping] if keeping.fits() else []
    return fitting, thinned


def _splits(last: Unit, dim: str, cut: bool) -> bool:
    """Whether a reduction dim of the last kernel may have a loop around the whole chain."""
    return cut and last.kernel.anchor.operation in PRODUCTS and dim not in ("kh", "kw")


def _parts(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """All of some names, then each part of a few."""
    if names:
        yield tuple(names)
    if len(names) == FEW:
        yield from ((name,) for name in names)


def schedule_of(tiling: Tiling) -> Schedule:
    """The schedule of a tiling."""
    places = tiling.places
    near: dict[str, int] = {}
    staged: dict[tuple[str, str], int] = {}
    for index in range(len(places.all)):
        name, memory = tiling.key(index)
        if memory:
            staged[name, memory] = tiling.slots.get((name, memory), 1)
        else:
            near[name] = tiling.slots.get((name, memory), 1)
    levels = _memories(tiling)
    schedules: dict[str, Schedule] = {}
    for number, unit in enumerate(tiling.units):
        last = unit is tiling.units[-1]
        names = [o.name for o in unit.kernel.inputs]
        names += [unit.kernel.output.name] if last else []
        memory = unit.primitive.operands[unit.kernel.anchor.inputs[0].role].memory
        extents = unit.kernel.anchor.extents
        tile = {**extents, **tiling.tile} if last else extents
        order = tiling.order if last else ()
        own = [Level(memory, tuple(tile.items()), order)]
        inner = tiling.inner[number]
        if inner.order or levels[1] == memory:
            own[0] = Level(levels[0], tuple(tile.items()), order)
            own.append(Level(levels[1], tuple({**tile, **inner.sizes}.items()), inner.order))
        producers = [o.name for o in unit.kernel.anchor.inputs if o.name in schedules]
        schedules[unit.kernel.output.name] = Schedule(
            unit.primitive.name,
            tuple(own),
            tuple((name, near[name]) for name in dict.fromkeys(names) if name in near),
            staged=tuple((n, m, slots) for (n, m), slots in staged.items() if n in names),
            producers=tuple(schedules.pop(name) for name in producers),
            kept=tuple(name for name in producers if name in tiling.kept),
        )
    (schedule,) = schedules.values()
    return schedule


def _memories(tiling: Tiling) -> tuple[str, str]:
    """The memories of the two levels: of a buffer on the way to a primitive's, and that one."""
    for place in tiling.places.all:
        if place.source is not None and tiling.inner[place.unit].order:
            return tiling.places.all[place.source].memory.name, place.memory.name
    return "", ""


__all__ = ["bounds", "plan_chain", "schedule_of"]

"""Plans of chains: kernels that compute on the chip what they read (``Kernel.producers``).

The loops are those of the last kernel, over its parallel dims; reductions stay whole. Each tile
computes first what it reads of the producers' results, halo included, at once. So one choice of
tile sizes and of an order says everything, and the space is small: the tilings that fit are sorted
by a lower bound (every engine's work, bytes through main memory), and the best are priced by the
timing core, on the commands that they become (chain_cost.py). (DNNVM, section 4.3: condition 1 is
a tile that fits, condition 2 the tile that is everything.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations, product
from math import prod
from time import perf_counter

from tilewright.errors import TilewrightError, refuse
from tilewright.machine import Machine, Primitive
from tilewright.planning.bounds import compute_cycles, main_bandwidth, peak_cycles, primitives_for
from tilewright.planning.chain_cost import Span, Tiling, Unit, units_of
from tilewright.planning.domain import Kernel
from tilewright.planning.footprint import whole_elements
from tilewright.planning.plan import Budget, Plan, Timer
from tilewright.planning.schedule import Level, Schedule
from tilewright.planning.sizes import candidate_sizes

SIZES = 10
"""Tile sizes that are tried along one dim."""

TILES = 1024
"""Tiles of a candidate, at most; and tile sizes that are looked at, the largest first."""

PRICED = 48
"""Tilings that are priced, best lower bound first."""

TIMED = 6
"""Candidates that are timed, best cost first."""


@dataclass(frozen=True)
class _Candidate:
    tiling: Tiling
    cycles: float


def plan_chain(
    kernel: Kernel, machine: Machine, *, timer: Timer | None = None, budget: Budget | None = None
) -> Plan:
    """The best schedule of a kernel with producers.

    Raises TilewrightError: ``plan-primitive``, ``plan-operand``, ``plan-capacity`` as ``plan``
    does, ``kernel-chain`` where the producers' tiles do not follow from the kernel's.
    """
    begin = perf_counter()
    failures: list[TilewrightError] = []
    tilings: list[Tiling] = []
    for chosen in _primitives(kernel, machine):
        try:
            tilings += _tilings(units_of(kernel, machine, chosen), machine)
        except TilewrightError as error:
            failures.append(error)
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
    found: list[_Candidate] = []
    for tiling in tilings[:PRICED]:
        if found and tiling.bound > min(one.cycles for one in found):
            break
        found.append(_Candidate(tiling, tiling.cycles()))
    found.sort(key=lambda one: one.cycles)
    best, took, timed = found[0], None, 0
    if timer is not None:
        times: list[tuple[float, int]] = []
        for number, one in enumerate(found[:TIMED]):
            times.append((timer(kernel, schedule_of(one.tiling)), number))
        (took, number), timed = min(times), len(times)
        best = found[number]
    physical, granule = bounds(kernel, machine)
    return Plan(
        schedule=schedule_of(best.tiling),
        predicted_cycles=best.cycles,
        moved_bytes=best.tiling.moved_bytes,
        physical_bound=physical,
        granule_bound=granule,
        candidates=len(tilings),
        priced=len(found),
        seconds=perf_counter() - begin,
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
        fastest = min(primitives, key=lambda one: compute_cycles(unit, one))
        for total, cycles in ((peak, peak_cycles), (granule, compute_cycles)):
            engine = fastest.engine
            total[engine] = total.get(engine, 0.0) + min(cycles(unit, one) for one in primitives)
        internal = {o.name for o in kernel.made}
        for operand in unit.operands:
            if operand.name not in internal and not operand.held:
                moved += whole_elements(operand, unit.anchor.extents) * operand.element_bytes
    traffic = moved / main_bandwidth(machine)
    return max(traffic, *peak.values()), max(traffic, *granule.values())


def _flat(kernel: Kernel) -> list[Kernel]:
    """A kernel's producers, theirs first, and the kernel, each alone."""
    return [*(one for producer in kernel.producers for one in _flat(producer)), kernel.alone]


def _primitives(kernel: Kernel, machine: Machine) -> Iterator[tuple[Primitive, ...]]:
    """Choices of a primitive for each kernel, in the order of ``_flat``."""
    return product(*(primitives_for(unit, machine) for unit in _flat(kernel)))


def _tilings(units: tuple[Unit, ...], machine: Machine) -> list[Tiling]:
    """The tilings that fit, with as many slots as fit."""
    last = units[-1]
    anchor, primitive = last.kernel.anchor, last.primitive
    sizes: dict[str, list[int]] = {}
    for dim, extent in anchor.extents.items():
        # A producer is computed whole in the dims that it shares and does not tile.
        granules = [u.granule(dim) for u in units]
        limit = primitive.limits.get(dim)
        fixed = dim in anchor.reduction or dim in primitive.whole
        found = [extent] if fixed else candidate_sizes(extent, max(granules), limit)
        sizes[dim] = found if len(found) <= SIZES else [*found[: SIZES - 1], found[-1]]
    every = sorted(product(*sizes.values()), key=lambda tile: -prod(tile))
    fitting: list[Tiling] = []
    for tile in every[:TILES]:
        tiles = dict(zip(sizes, tile, strict=True))
        cut = [dim for dim, size in tiles.items() if size < anchor.extents[dim]]
        boxes: dict[tuple[int, str], list[Span]] = {}
        for order in permutations(cut):
            tiling = Tiling(units, machine, tiles, order, boxes)
            if tiling.count > TILES or not tiling.fits():
                break
            fitting.append(tiling)
            if len(cut) > 3:  # further orders of many loops hardly differ
                break
    return fitting


def schedule_of(tiling: Tiling) -> Schedule:
    """The schedule of a tiling."""
    slots = {buffer.name: buffer.slots for buffer in tiling.buffers}
    made: dict[str, Schedule] = {}
    for unit in tiling.units:
        last = unit is tiling.units[-1]
        names = [o.name for o in unit.kernel.inputs if o.role in unit.primitive.operands]
        names += [unit.kernel.output.name] if last else []
        memory = unit.primitive.operands[unit.kernel.anchor.inputs[0].role].memory
        extents = unit.kernel.anchor.extents
        tile = {**extents, **tiling.tile} if last else extents
        level = Level(memory, tuple(tile.items()), tiling.order if last else ())
        producers = [o.name for o in unit.kernel.anchor.inputs if o.name in made]
        made[unit.kernel.output.name] = Schedule(
            unit.primitive.name,
            (level,),
            tuple((name, slots[name]) for name in names if name in slots),
            producers=tuple(made.pop(name) for name in producers),
        )
    (schedule,) = made.values()
    return schedule


__all__ = ["bounds", "plan_chain", "schedule_of"]

"""Plans of chains: kernels that compute on the chip what they read (``Kernel.producers``). Kernels
without producers are planned as chains of one where instructions are of rows
(``Synchronisation.by_rows``), and where operands pass memories on their way to the primitive.

The loops are those of the last kernel, over its parallel dims, and over its reductions where tiles
with whole ones do not fit. Each tile computes first what it reads of the producers' results, halo
included, at once; where primitives turn rows in circular buffers, rows that the tile before left
are not computed again. Where operands pass a memory on the way, each kernel cuts its part of a tile
once more (inner.py), and of a kernel alone the outer tiles are found along with those within, by a
closed form (nest_cost.py). So the space is small: the tilings that fit are sorted by a lower bound
(every engine's work, bytes through main memory), and the best are priced by the timing core, on the
commands that they become (commands.py). (DNNVM, section 4.3: condition 1 is a tile that fits,
condition 2 the tile that is everything.)
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from math import inf

from tilewright.errors import TilewrightError, refuse
from tilewright.machine import Machine, Primitive
from tilewright.planning.chains.cost import Tiling
from tilewright.planning.chains.known import figures_of, known_plan
from tilewright.planning.chains.space import Candidates, Search
from tilewright.planning.chains.units import Places, Unit, units_of
from tilewright.planning.cost.bounds import (
    granule_bound,
    least_compute,
    physical_bound,
    primitives_for,
)
from tilewright.planning.cost.loads import loads_of
from tilewright.planning.domain import Kernel
from tilewright.planning.own import on_one_core
from tilewright.planning.plan import Budget, Plan, Timer, timed
from tilewright.planning.planners.schedules import agreeing
from tilewright.planning.schedule import Level, Schedule
from tilewright.planning.space.levels import is_deep, levels_of
from tilewright.planning.space.tilings import no_tile_fits

TIMED = 3
"""Candidates that are timed, best cost first."""


def plan_chain(
    kernel: Kernel, machine: Machine, *, timer: Timer | None = None, budget: Budget | None = None
) -> Plan:
    """The best schedule of a kernel with its producers; of ``budget``, ``timed`` counts. Without a
    timer the plan has the next best beside it (``Plan.others``).

    Raises TilewrightError: ``plan-primitive``, ``plan-operand``, ``plan-capacity`` as ``plan``
    does, ``kernel-chain`` where the producers' tiles do not follow from the kernel's.
    """
    best = known_plan(kernel, machine, budget, lambda: _searched(kernel, machine, budget))
    return best if timer is None else timed(best, kernel, timer)


def _searched(kernel: Kernel, machine: Machine, budget: Budget | None) -> tuple[Plan, list[Places]]:
    """The plan of a search, and the buffers of all that it has looked at."""
    failures: list[TilewrightError] = []
    looked: list[Places] = []
    units: list[tuple[Unit, ...]] = []
    for chosen in product(*(agreeing(each, machine) for each in kernels_of(kernel))):
        try:
            units.append(units_of(kernel, machine, chosen))
        except TilewrightError as error:
            failures.append(error)
    limit = inf if budget is None else budget.limit
    search = Search([])
    for cut in (False, True):
        candidates: list[Candidates] = []
        for unit in units:
            try:
                places = Places(unit, machine)
                looked.append(places)
                figures = figures_of(kernel, unit, places)
                candidates.append(Candidates(places, machine, figures, cut))
            except TilewrightError as error:
                failures.append(error)
        search = Search(candidates, limit)
        search.run()
        if search.priced or all(each.is_nest for each in candidates):
            break
    priced = search.priced
    if not priced:
        failures += [
            each.refusal
            for each in search.candidates
            if each.refusal is not None and not any(each.tilings.values())
        ]
        if failures:
            raise failures[0]
        if search.count and limit < inf:
            reason = f"no plan takes less than {limit:,.0f} cycles"
            raise refuse("plan-limit", reason, kernel.symbol, "raise Budget.limit")
        if not kernel.producers:
            places = search.candidates[0].places.all
            raise no_tile_fits(kernel, machine, (place.memory for place in places))
        raise refuse(
            "plan-capacity",
            f"no tile of {kernel.anchor.operation} fits {machine.name} with the computes before it",
            kernel.symbol,
            "give the machine more memory, or do not fuse the kernels",
        )
    cuts = ["rows"] if any(unit.thinned for unit in search.candidates) else []
    cuts += ["priced"] if search.stopped else []
    physical, granule = bounds(kernel, machine)
    # Of a kernel alone those with other outer loops: where a price is wrong, it is for all alike.
    unlike: dict[object, tuple[float, int, Tiling]] = {}
    for entry in priced:
        unlike.setdefault(entry[2].order if entry[2].modelled_cycles else entry[1], entry)
    best, *others = (
        Plan(
            schedule=schedule_of(tiling),
            predicted_cycles=cycles,
            moved_bytes=tiling.moved_bytes,
            physical_bound=physical,
            granule_bound=granule,
            candidates=search.count,
            priced=len(priced),
            complete=not cuts,
            cuts=tuple(cuts),
        )
        for cycles, _, tiling in [*unlike.values()][: min(TIMED, (budget or Budget()).timed)]
    )
    return replace(best, others=tuple(others)), looked


def passes_memories(kernel: Kernel, machine: Machine) -> bool:
    """Return True for a kernel alone of which operands pass memories on their way: it is planned as
    a chain of one."""
    return any(is_deep(machine, primitive) for primitive in agreeing(kernel, machine))


def bounds(kernel: Kernel, machine: Machine) -> tuple[float, float]:
    """Physical and granule bound, in cycles, of a kernel with its producers: the work of the
    busiest engine, or the traffic of main memory if that takes longer."""
    if not kernel.producers:
        every = primitives_for(kernel, machine)
        physical = min(physical_bound(kernel, machine, each) for each in every)
        return physical, min(granule_bound(kernel, machine, each) for each in every)
    loads = loads_of(kernels_of(kernel), machine, {o.name for o in kernel.produced})
    traffic = loads.traffic(machine)
    return max(traffic, *loads.peak.values()), max(traffic, *loads.granule.values())


def compute_peak(kernel: Kernel, machine: Machine, schedule: Schedule) -> float:
    """Cycles of a kernel's computes and of its producers', one after the other, at the peak of the
    primitives that compute them, on all cores."""

    def cycles(primitive: Primitive) -> float:
        cores = 1 if on_one_core(primitive) else machine.cores
        return least_compute(kernel.alone, machine, primitive) / cores

    possible = primitives_for(kernel.alone, machine)
    chosen = [primitive for primitive in possible if primitive.name == schedule.primitive]
    inner = zip(kernel.producers, schedule.producers, strict=False)
    return min(cycles(primitive) for primitive in chosen or possible) + sum(
        compute_peak(producer, machine, its) for producer, its in inner
    )


def kernels_of(kernel: Kernel) -> list[Kernel]:
    """A kernel's producers, theirs first, and the kernel, each alone."""
    return [*(unit for producer in kernel.producers for unit in kernels_of(producer)), kernel.alone]


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
        homes = _homes(tiling, number)
        first = unit.kernel.anchor.inputs[0]
        memory = homes.get(first.name, unit.primitive.operands[first.role].memory)
        extents = unit.kernel.anchor.extents
        tile = {**extents, **tiling.tile} if last else extents
        order = tiling.order if last else ()
        outer = [Level(memory, tuple(tile.items()), order)]
        inner = tiling.inner[number]
        if inner.order or tiling.modelled_cycles or levels[-1] == memory:
            first, *further = levels if inner.levels else (levels[0], levels[-1])
            outer = [Level(first, tuple(tile.items()), order)]
            ends = (0, *inner.levels, len(inner.loops))
            for name, part in zip(further, pairwise(ends), strict=True):
                loops = inner.loops[slice(*part)]
                tile = {**tile, **dict(loops)}
                outer.append(Level(name, tuple(tile.items()), tuple(dim for dim, _ in loops)))
        producers = [o.name for o in unit.kernel.anchor.inputs if o.name in schedules]
        schedules[unit.kernel.output.name] = Schedule(
            unit.primitive.name,
            tuple(outer),
            tuple((name, near[name]) for name in dict.fromkeys(names) if name in near),
            staged=tuple((n, m, slots) for (n, m), slots in staged.items() if n in names),
            homes=tuple(homes.items()),
            producers=tuple(schedules.pop(name) for name in producers),
            kept=tuple((name, ahead) for name, ahead in tiling.kept if name in producers),
        )
    (schedule,) = schedules.values()
    return schedule


def _homes(tiling: Tiling, number: int) -> dict[str, str]:
    """The operands of a kernel that lie in another memory than its primitive's usual one."""
    places, operands = tiling.places, tiling.units[number].primitive.operands
    result, homes = places.makes[number], dict[str, str]()
    for index in (*places.reads[number], *(() if result is None else (result,))):
        place, home = places.all[index], tiling.homes[index].name
        role = "output" if index == result else place.operand.role
        if home in operands[role].alternatives:
            homes[place.name] = home
    return homes


def _memories(tiling: Tiling) -> tuple[str, ...]:
    """The memories that name the levels: on the way to a primitive's, and that one; of the kernel
    that has most."""
    near = [place for place in tiling.places.all if place.source is not None and not place.staged]
    near = [place for place in near if tiling.inner[place.unit].order or tiling.modelled_cycles]
    if not near:
        return "", ""
    place = max(near, key=lambda each: len(tiling.inner[each.unit].levels))
    assert place.source is not None
    names = levels_of(tiling.machine, tiling.units[place.unit].primitive)
    if tiling.inner[place.unit].levels:
        return (*(memories[0] for memories in names), place.memory.name)
    return tiling.places.all[place.source].memory.name, place.memory.name

"""All four core groups of SW26010: the machine, and how a layer is divided among them.

Each core group has an MPE, 64 CPEs, and a memory of its own, behind one address space. CPE i of
core group g is core 64 g + i of 256; the parts of a layer are dealt to them in runs, the outermost
dim first, so that a core group computes neighbouring images, output channels (No) or rows (Ro).

What public sources leave open, by name:

``move.get.curve``, ``move.put.curve``
    Beside the two measurements of one core group (machine.py): that memory of the other core groups
    is reached as fast as a core group's own (``swgemm``, ``swcandle``), or at half that rate
    (``swgemm_half``, ``swcandle_half``). Data are taken to be spread over the four memories, so
    that three quarters of the bytes are another's.
``spawn_cycles``
    The 15,000 of one core group, and ``JOIN_CYCLES`` in which the four MPEs meet after a layer.

Plans begin with the plan for one core group. A layer is cut further along its batch, output
channels or rows, whichever is predicted to take least; where none gains, or the first plan has no
more than 64 parts that can be cut, it is left to one core group. Tiles along reductions, and the
loops over them, stay as they are in the first plan: each sum has the same order, and results are
those of ``sunway`` with the same planner (``exact`` by default) bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil, prod

from tilewright.errors import TilewrightError
from tilewright.machine import Machine, Primitive
from tilewright.planning import Ask, Plan, Planner
from tilewright.planning.domain import Kernel
from tilewright.planning.own import start_cycles
from tilewright.planning.plan import Budget, Timer
from tilewright.planning.planners.cores import one_core, part_of, plan_cores, shareable
from tilewright.planning.planners.stated import slots_of, stated_plan, stated_schedule, tiling
from tilewright.planning.schedule import Schedule
from tilewright.planning.space.footprint import uses_of
from tilewright.targets.sunway.capabilities import SunwayMachine
from tilewright.targets.sunway.machine import CPES, CURVES, MACHINE

GROUPS = 4
JOIN_CYCLES = 3_000
"""Cycles for the MPEs of all core groups to meet, 2 us: an estimate."""

HALF = 1 / (1 / GROUPS + (GROUPS - 1) / GROUPS * 2)
"""Part of the rate where three quarters of the bytes come at half of it."""

CHANNELS = 4
"""Output channels that the code of products takes together; parts have whole groups of them."""


def _scaled(machine: Machine, factor: float, **more: object) -> Machine:
    """A machine with ``factor`` times the main memory, at as many times the rate; ``more`` are
    fields that change besides."""
    memories = tuple(
        memory.model_copy(
            update={
                "bytes": int((memory.bytes or 0) * factor) or None,
                "bytes_per_cycle": (memory.bytes_per_cycle or 0) * factor,
            }
        )
        if memory.name == machine.main
        else memory
        for memory in machine.memories
    )
    moves = tuple(
        move.model_copy(update={"bytes_per_cycle": move.bytes_per_cycle * factor})
        for move in machine.moves
    )
    return machine.model_copy(update={"memories": memories, "moves": moves, **more})


def _chip() -> Machine:
    halves = {
        f"{name}_half": tuple((size, round(part * HALF, 4)) for size, part in curve)
        for name, curve in CURVES.items()
    }
    chip = _scaled(
        MACHINE,
        GROUPS,
        name="sw26010-chip",
        description="SW26010: four core groups of an MPE, 64 CPEs and a memory each, float",
        cores=CPES * GROUPS,
        own=SunwayMachine(spawn_cycles=start_cycles(MACHINE) + JOIN_CYCLES),
    )
    curves = {"curves": {**CURVES, **halves}}
    return chip.model_copy(
        update={"moves": tuple(move.model_copy(update=curves) for move in chip.moves)}
    )


CHIP = _chip()
"""The whole chip; rates of main memory are those of the four together."""


def group_machine(machine: Machine) -> Machine:
    """One core group of a chip."""
    alone = SunwayMachine(spawn_cycles=max(start_cycles(machine) - JOIN_CYCLES, 0))
    return _scaled(machine, CPES / machine.cores, cores=CPES, own=alone)


class ChipPlanner:
    """Divides kernels among the core groups, beginning with plans for one of them."""

    def __init__(self, machine: Machine, planner: Ask | None) -> None:
        self.machine = machine
        self.group = group_machine(machine)
        self.planner = planner
        """For one core group; None for its cost model."""

    def __call__(
        self,
        kernel: Kernel,
        machine: Machine,
        *,
        timer: Timer | None = None,
        budget: Budget | None = None,
    ) -> Plan:
        """The plan; raises TilewrightError where one core group has none."""
        del timer
        alone = None if self.planner is None else self.planner(kernel)
        searched = alone is None
        if alone is None:
            alone = Planner(self.group, budget=budget).plan(kernel)
        plans = [stated_plan(kernel, machine, alone.schedule, alone.planner)]
        for grid in finer_grids(kernel, machine.primitive(alone.schedule.primitive), alone):
            try:
                schedule = divided(kernel, machine, alone.schedule, grid)
            except TilewrightError:  # The tiles of this grid have no place.
                continue
            plans.append(stated_plan(kernel, machine, schedule, alone.planner))
        if searched:
            free = plan_cores(kernel, machine, budget=budget)
            if sums(kernel, free.schedule) == sums(kernel, alone.schedule) and whole_channels(
                kernel, free.schedule
            ):
                plans.append(free)
        best = min(plans, key=lambda each: each.predicted_cycles)
        text = share_text(kernel, best.schedule, machine.cores)
        schedule = replace(best.schedule, options=(*best.schedule.options, ("core_groups", text)))
        return replace(
            best,
            schedule=schedule,
            candidates=alone.candidates + len(plans) - 1,
            priced=alone.priced + len(plans) - 1,
        )


class ChipPlans:
    """The plans of a network's kernels: each kernel alike is divided once."""

    def __init__(self, machine: Machine, planner: Ask | None) -> None:
        self.divide = ChipPlanner(machine, planner)
        self.whole = Planner(machine, search=self.divide)
        self.alone = Planner(self.divide.group, ask=planner).for_methods()

    def __call__(self, kernel: Kernel) -> Plan:
        """The plan for all core groups."""
        return self.whole.plan(kernel)

    def methods(self, kernel: Kernel) -> Plan:
        """The plan for one core group: the method of a convolution is chosen by it, so that
        ``sunway-chip`` computes what ``sunway`` computes with the same planner."""
        return self.alone.plan(kernel)


def grid_of(kernel: Kernel, schedule: Schedule) -> dict[str, int]:
    """Size of a part along each dim that the cores share."""
    if not schedule.shared:
        return {}
    outer, extents = schedule.levels[0], kernel.anchor.extents
    return {dim: outer.size(dim, extents[dim]) for dim in outer.order}


def sums(kernel: Kernel, schedule: Schedule) -> tuple[object, ...]:
    """Return what the order of an element's sum depends on: the primitive, and tile loops along
    reductions."""
    reduction, extents = kernel.anchor.reduction, kernel.anchor.extents
    level = schedule.levels[-1]
    cut = [
        (dim, level.size(dim, extents[dim]))
        for dim in level.order
        if dim in reduction and level.size(dim, extents[dim]) < extents[dim]
    ]
    return schedule.primitive, tuple(cut)


def whole_channels(kernel: Kernel, schedule: Schedule) -> bool:
    """Return True if parts begin at multiples of the channels that products take together."""
    return grid_of(kernel, schedule).get("co", CHANNELS) % CHANNELS == 0


def finer_grids(kernel: Kernel, primitive: Primitive, alone: Plan) -> Iterator[dict[str, int]]:
    """Parts of a plan cut further: along one dim in four, or along two in half."""
    extents = kernel.anchor.extents
    grid = {**extents, **grid_of(kernel, alone.schedule)}
    free = [d for d in extents if d in shareable(kernel) - set(primitive.whole) and grid[d] > 1]
    cuts = [{dim: GROUPS} for dim in free]
    cuts += [{a: 2, b: 2} for i, a in enumerate(free) for b in free[i + 1 :]]
    for cut in cuts:
        sizes = dict(grid)
        for dim, count in cut.items():
            granule = primitive.multiples.get(dim, CHANNELS if dim == "co" else 1)
            sizes[dim] = min(ceil(ceil(grid[dim] / count) / granule) * granule, grid[dim])
        if sizes != grid:
            yield {dim: size for dim, size in sizes.items() if size < extents[dim]}


def divided(kernel: Kernel, machine: Machine, schedule: Schedule, grid: dict[str, int]) -> Schedule:
    """A schedule with smaller parts; tiles that are larger than these become as large."""
    primitive, core = machine.primitive(schedule.primitive), one_core(machine)
    part = part_of(kernel, grid)
    level = schedule.levels[-1]
    sizes = {dim: level.size(dim, extent) for dim, extent in part.anchor.extents.items()}
    space = tiling(part, core, primitive, uses_of(part, core, primitive), sizes)
    order = [dim for dim in level.order if sizes[dim] < part.anchor.extents[dim]]
    slots = [(name, min(count, schedule.slots(name))) for name, count in slots_of(space, order, 2)]
    return stated_schedule(space, order, slots, grid, machine)


def share_text(kernel: Kernel, schedule: Schedule, cores: int) -> str:
    """Return the number of core groups with parts and the dims that part them: ``4 by n``."""
    grid, extents = grid_of(kernel, schedule), kernel.anchor.extents
    trips = {dim: ceil(extents[dim] / size) for dim, size in grid.items()}
    parts = prod(trips.values())
    run = ceil(parts / cores) * CPES
    groups = ceil(parts / run)
    if groups == 1:
        return "1"
    inner, dims = parts, list[str]()
    for dim, count in trips.items():
        inner //= count
        # The first part of each core group, as it is counted along the dim.
        if count > 1 and len({g * run // inner % count for g in range(groups)}) > 1:
            dims.append(dim)
    return f"{groups} by {' '.join(dims)}"

"""The price of a schedule that is stated, not searched: one level of tiles, in parts for cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, prod

import numpy as np

from tilewright.machine import Machine, Primitive
from tilewright.planning.cost.bounds import granule_bound, physical_bound
from tilewright.planning.cost.pipeline import Pipeline
from tilewright.planning.domain import Kernel
from tilewright.planning.own import start_cycles
from tilewright.planning.plan import Plan
from tilewright.planning.planners.cores import one_core, part_of, whole_schedule
from tilewright.planning.schedule import Level, Schedule
from tilewright.planning.space.cells import cells_of
from tilewright.planning.space.footprint import Floats, Ints, Use, uses_of
from tilewright.planning.space.mesh import Axis, Mesh, share_in_turns
from tilewright.planning.space.nests import Arrangement, Group, Loop, Nest, moves_of, trips_of
from tilewright.planning.space.tilings import Space, uncrossed


def tiling(
    kernel: Kernel,
    machine: Machine,
    primitive: Primitive,
    uses: tuple[Use, ...],
    sizes: Mapping[str, int],
) -> Space:
    """A space of one row: the tile of these sizes, along every dim."""
    columns = {dim: np.array([size], np.int64) for dim, size in sizes.items()}
    space = uncrossed(kernel, machine, primitive, uses, columns)
    return replace(space, index={dim: np.zeros(1, np.int64) for dim in sizes})


def nest_of(space: Space, order: Sequence[str]) -> Nest:
    """The nest of loops over these dims, the outermost first."""
    reduction = space.kernel.anchor.reduction
    moved = [use for use in space.uses if use.move is not None]
    loops = (
        Loop(Group((d,), frozenset(u.name for u in moved if d in u.operand.dims), d in reduction))
        for d in order
    )
    return Nest(tuple(loops))


def slots_of(space: Space, order: Sequence[str], slots: int) -> tuple[tuple[str, int], ...]:
    """Return ``slots`` slots for each operand that is moved more than once; one for the others."""
    nest = nest_of(space, order)
    trips = trips_of(space, nest, {})
    return tuple(
        (use.name, slots if float(moves_of(use, nest, trips).max()) > 1 else 1)
        for use in space.uses
        if use.move is not None
    )


def stated_schedule(
    space: Space,
    order: Sequence[str],
    slots: Sequence[tuple[str, int]],
    grid: Mapping[str, int],
    machine: Machine,
    exchanged: tuple[tuple[str, Axis], ...] = (),
) -> Schedule:
    """The schedule of a tile (a space of one row), in loops and with slots that are given."""
    tile = tuple((dim, int(space.size(dim)[0])) for dim in space.extents)
    inputs = [use for use in space.uses if not use.output and use.move is not None]
    memory = (inputs or [use for use in space.uses if use.output])[0].memory.name
    level = Level(memory, tile, tuple(order))
    schedule = Schedule(space.primitive.name, (level,), tuple(slots), exchanged=exchanged)
    return whole_schedule(schedule, grid, machine)


def core_in_turns(core: Machine, side: int) -> Machine:
    """A core that loads one tile in ``side`` turns: a turn has its part of the loads' latency."""
    moves = tuple(
        move.model_copy(update={"latency": round(move.latency / side)})
        if move.source == core.main
        else move
        for move in core.moves
    )
    return core.model_copy(update={"moves": moves})


def exchanging(
    space: Space, nest: Nest, exchanged: Sequence[tuple[str, str]], mesh: Mesh | None
) -> tuple[Space, Floats, Floats]:
    """The space of cores that get operands from others, and columns of the cycles that this takes
    beside computing: once, and between the tiles of a nest."""
    once, again = np.zeros(space.rows), np.zeros(space.rows)
    if mesh is None:
        return space, once, again
    axes, trips = dict(exchanged), trips_of(space, nest, {})
    shares, together = dict(space.shares), dict(space.together)
    for use in space.uses:
        axis = axes.get(use.name)
        if axis is None or use.move is None:
            continue
        visits = np.broadcast_to(moves_of(use, nest, trips), space.rows)
        if axis.endswith("in turns"):
            # What is sent in turns is sent by the products themselves, as they multiply.
            shares[use.name] = share_in_turns(visits, mesh.side)
        elif axis == "all":
            once = once + visits * mesh.broadcast_cycles
            shares[use.name] = mesh.broadcast_bytes / use.move.bytes_per_cycle
        else:
            cycles = mesh.exchange_cycles(space.box(use))
            once = once + np.where(visits > 1, 0, cycles)
            again = again + np.where(visits > 1, visits * cycles, 0)
            together[use.name] = mesh.side
    return replace(space, shares=shares, together=together), once, again


def priced(
    space: Space,
    nest: Nest,
    slots: Mapping[str, Ints],
    exchanged: Sequence[tuple[str, str]],
    mesh: Mesh | None,
) -> tuple[Floats, Floats]:
    """Columns: the cycles of a core's part, and its bytes of main memory, each tile that others get
    counted once for all of them."""
    space, once, again = exchanging(space, nest, exchanged, mesh)
    valid = np.ones(space.rows, np.bool_)
    arrangement = Arrangement(nest, valid, trips_of(space, nest, {}), {}, dict(slots))
    cells = cells_of(space).longer(again / space.trips_of(list(space.index)))
    pricing = Pipeline(space, cells, arrangement)
    cycles, moved = pricing.cycles_and_bytes()
    if mesh is None:
        return cycles, moved
    turns = [name for name, axis in exchanged if axis.endswith("in turns")]
    shares = {
        name: float(mesh.cores if axis == "all" else mesh.side)
        for name, axis in exchanged
        if axis not in ("row", "column")
    }
    if turns:
        # All cores load at the same time: the first turn waits for the tiles of a whole round, and
        # nothing is loaded during the last.
        full = cells.place[:, 0]
        loads = sum(pricing.time[name][full] for name in turns)
        once = once + (mesh.side - 1) * np.minimum(loads, cells.cycles[full])
    if shares:
        # What main memory gives is each tile once for all cores that get it: no core's own part.
        counted = replace(space, shares={**space.shares, **shares})
        moved = Pipeline(counted, cells, arrangement).moved()
    return cycles + once, moved


def stated_plan(
    kernel: Kernel,
    machine: Machine,
    schedule: Schedule,
    planner: str,
    mesh: Mesh | None = None,
) -> Plan:
    """The plan of a schedule of one level of tiles, by the pipeline that its slots allow.

    What cores exchange over the mesh takes their time, as computing does; what they exchange once,
    or get by broadcasts, overlaps with nothing.
    """
    primitive = machine.primitive(schedule.primitive)
    extents = kernel.anchor.extents
    cores = machine.cores
    grid: dict[str, int] = {}
    if schedule.shared:
        outer = schedule.levels[0]
        grid = {dim: outer.size(dim, extents[dim]) for dim in outer.order}
    parts = prod(ceil(extents[dim] / size) for dim, size in grid.items())
    rounds = ceil(parts / cores)
    core = one_core(machine) if cores > 1 else machine
    if mesh is not None and any(axis.endswith("in turns") for _, axis in schedule.exchanged):
        core = core_in_turns(core, mesh.side)
    part = part_of(kernel, grid)
    level = schedule.levels[-1]
    sizes = {dim: level.size(dim, extent) for dim, extent in part.anchor.extents.items()}
    space = tiling(part, core, primitive, uses_of(part, core, primitive), sizes)
    order = [dim for dim in level.order if sizes[dim] < part.anchor.extents[dim]]
    slots = {
        use.name: np.full(1, schedule.slots(use.name), np.int64)
        for use in space.uses
        if use.move is not None
    }
    cycles, moved = priced(space, nest_of(space, order), slots, schedule.exchanged, mesh)
    spawn = start_cycles(machine) if cores > 1 else 0
    return Plan(
        schedule=schedule,
        predicted_cycles=rounds * float(cycles[0]) + spawn,
        moved_bytes=int(moved[0]) * parts,
        physical_bound=physical_bound(kernel, core, primitive) / cores,
        granule_bound=granule_bound(kernel, core, primitive) / cores,
        candidates=1,
        priced=1,
        planner=planner,
    )

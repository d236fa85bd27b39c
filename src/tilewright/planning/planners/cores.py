"""Cores with memories of their own: each computes its part of the result in tiles of its own.

The result is cut into a grid of parts along its dims, at least as many as there are cores where the
dims give that many; core number i takes a run of the parts, as swTVM's ``athread_parallel`` has it.
No two cores write one element, and none waits for another. A part is planned as a kernel of its
own, by the ``exact`` planner, on the machine that one core sees: its own memories, and its share of
the bandwidth of main memory.

Grids come sorted by a lower bound of what the core with the most parts takes; they are planned
until the next bound exceeds the best so far, ``PLANNED`` at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, prod
from time import perf_counter

from tilewright.errors import TilewrightError
from tilewright.machine import Machine, Primitive, parse_expression
from tilewright.planning.bounds import granule_bound, main_bandwidth, physical_bound
from tilewright.planning.domain import Kernel, Stage
from tilewright.planning.plan import Budget, Plan, Timer
from tilewright.planning.planners.exact import plan_exact
from tilewright.planning.planners.schedules import agreeing
from tilewright.planning.schedule import Level, Schedule

PLANNED = 6
"""Grids of a primitive that are planned at most."""

ROUNDS = 4
"""Parts of each core at most, which even out what does not divide."""


@dataclass(frozen=True)
class Grid:
    """A cut of the result: size of a part along the dims that are cut, and parts in all."""

    sizes: tuple[tuple[str, int], ...]
    parts: int


def one_core(machine: Machine) -> Machine:
    """The machine as one of its cores sees it while the others do the same."""
    cores = machine.cores

    def shared(rate: float | None) -> float | None:
        return None if rate is None else rate / cores

    memories = tuple(
        memory.model_copy(update={"bytes_per_cycle": shared(memory.bytes_per_cycle)})
        if memory.name == machine.main
        else memory
        for memory in machine.memories
    )
    moves = tuple(
        move.model_copy(update={"bytes_per_cycle": move.bytes_per_cycle / cores})
        if machine.main in (move.source, move.target)
        else move
        for move in machine.moves
    )
    return machine.model_copy(
        update={"memories": memories, "moves": moves, "cores": 1, "spawn_cycles": 0}
    )


def plan_cores(
    kernel: Kernel, machine: Machine, *, timer: Timer | None = None, budget: Budget | None = None
) -> Plan:
    """The best grid's plan; ``Schedule.shared`` names the dims that are cut.

    Raises TilewrightError as ``plan_exact`` does. ``timer`` is not asked: it would time one core.
    """
    del timer
    begin = perf_counter()
    one, cores = one_core(machine), machine.cores
    best: Plan | None = None
    failure: TilewrightError | None = None
    considered = priced = 0
    primitives = agreeing(kernel, machine)
    for primitive in primitives:
        alone = one.model_copy(update={"primitives": (primitive,)})
        ranked = sorted(
            ((_bound(kernel, one, primitive, grid, cores), number, grid))
            for number, grid in enumerate(grids(kernel, primitive, cores))
        )
        for bound, _, grid in ranked[:PLANNED]:
            if best is not None and bound + machine.spawn_cycles >= best.predicted_cycles:
                break
            try:
                found = plan_exact(part_of(kernel, grid), alone, budget=budget)
            except TilewrightError as error:
                failure = failure or error
                continue
            considered, priced = considered + found.candidates, priced + found.priced
            rounds = ceil(grid.parts / cores)
            cycles = rounds * found.predicted_cycles + machine.spawn_cycles
            if best is None or cycles < best.predicted_cycles:
                best = replace(
                    found,
                    schedule=_whole(found, grid, machine),
                    predicted_cycles=cycles,
                    moved_bytes=found.moved_bytes * grid.parts,
                )
    if best is None:
        assert failure is not None
        raise failure
    return replace(
        best,
        physical_bound=min(physical_bound(kernel, one, p) for p in primitives) / cores,
        granule_bound=min(granule_bound(kernel, one, p) for p in primitives) / cores,
        candidates=considered,
        priced=priced,
        seconds=perf_counter() - begin,
        near=(),
    )


def grids(kernel: Kernel, primitive: Primitive, cores: int) -> list[Grid]:
    """The grids worth a look: parts for every core, where the dims give that many."""
    extents = kernel.anchor.extents
    allowed = [dim for dim in extents if dim in _shareable(kernel) and dim not in primitive.whole]
    sizes = {dim: _sizes(extents[dim], primitive.multiples.get(dim, 1), cores) for dim in allowed}
    # A dim that a part has one index of is cut as far as it goes: this many parts are there.
    most = min(cores, prod(ceil(extents[dim] / sizes[dim][-1]) for dim in allowed))
    found: list[Grid] = []
    for chosen in product(*(sizes[dim] for dim in allowed)):
        parts = prod(ceil(extents[d] / s) for d, s in zip(allowed, chosen, strict=True))
        if most <= parts <= cores * ROUNDS:
            cut = [(d, s) for d, s in zip(allowed, chosen, strict=True) if s < extents[d]]
            found.append(Grid(tuple(cut), parts))
    return found or [Grid((), 1)]


def _sizes(extent: int, granule: int, cores: int) -> list[int]:
    """Sizes of parts, the whole first: one for each count of parts, multiples of the granule."""
    counts = range(1, min(extent, cores) + 1)
    sizes = {ceil(ceil(extent / count) / granule) * granule for count in counts}
    return sorted({min(size, extent) for size in sizes}, reverse=True)


def _shareable(kernel: Kernel) -> frozenset[str]:
    """Dims of which different indices are different elements of every stage's result."""
    found = frozenset(kernel.anchor.extents) - frozenset(kernel.anchor.reduction) - kernel.awaited
    for stage in kernel.stages:
        found &= stage.output.dims
    return found


def part_of(kernel: Kernel, grid: Grid) -> Kernel:
    """The kernel of one part, the largest."""
    sizes = dict(grid.sizes)

    def cut(stage: Stage) -> Stage:
        dims = tuple(replace(dim, extent=sizes.get(dim.name, dim.extent)) for dim in stage.dims)
        return replace(stage, dims=dims)

    return replace(kernel, stages=tuple(cut(stage) for stage in kernel.stages))


def _bound(kernel: Kernel, one: Machine, primitive: Primitive, grid: Grid, cores: int) -> float:
    """Cycles that the core with the most parts takes at least: its computes, or what it moves."""
    part = part_of(kernel, grid)
    extents: Mapping[str, int] = part.anchor.extents
    compute = float(parse_expression(primitive.cycles).evaluate(extents))
    intervals = {dim: (0, extent) for dim, extent in extents.items()}
    moved = 0
    for operand in part.operands:
        lengths = (
            min(axis.interval(intervals)[1], size)
            for axis, size in zip(operand.access, operand.shape, strict=True)
        )
        moved += prod(lengths) * operand.element_bytes
    rounds = ceil(grid.parts / cores)
    return rounds * max(compute, moved / main_bandwidth(one))


def _whole(found: Plan, grid: Grid, machine: Machine) -> Schedule:
    """The schedule of the whole kernel: the part's, within loops over the parts."""
    if not grid.sizes:
        return found.schedule
    dims = tuple(dim for dim, _ in grid.sizes)
    outer = Level(machine.main, grid.sizes, dims)
    levels = (outer, *found.schedule.levels)
    return replace(found.schedule, levels=levels, shared=" ".join(dims))

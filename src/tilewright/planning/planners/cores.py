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
from dataclasses import replace
from math import ceil
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.machine import Machine, Move, Primitive, parse_expression
from tilewright.planning.bounds import granule_bound, main_bandwidth, physical_bound
from tilewright.planning.domain import Affine, Kernel, Operand, Stage
from tilewright.planning.footprint import run_elements
from tilewright.planning.plan import Budget, Plan, Timer
from tilewright.planning.planners.exact import plan_exact
from tilewright.planning.planners.schedules import agreeing
from tilewright.planning.schedule import Level, Schedule

PLANNED = 6
"""Grids of a primitive that are planned at most."""

SETTLED = 0.02
"""No further grid is planned whose bound leaves less than this to be gained."""

ROUNDS = 4
"""Parts of each core at most, which even out what does not divide."""


Columns = Mapping[str, NDArray[np.int64]]
"""Size of a part along every dim, one row for each grid."""


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
    core, cores = one_core(machine), machine.cores
    best: Plan | None = None
    failure: TilewrightError | None = None
    considered = priced = 0
    primitives = agreeing(kernel, machine)
    for primitive in primitives:
        alone = core.model_copy(update={"primitives": (primitive,)})
        sizes = grids(kernel, primitive, cores)
        parts = parts_of(kernel, sizes)
        rounds = -(-parts // cores)
        bounds = rounds * _bounds(kernel, core, primitive, sizes)
        for row in np.argsort(bounds, kind="stable")[:PLANNED].tolist():
            enough = float(bounds[row]) * (1 + SETTLED) + machine.spawn_cycles
            if best is not None and enough >= best.predicted_cycles:
                break
            extents = kernel.anchor.extents
            grid = {d: int(c[row]) for d, c in sizes.items() if int(c[row]) < extents[d]}
            try:
                part = plan_exact(part_of(kernel, grid), alone, budget=budget)
            except TilewrightError as error:
                failure = failure or error
                continue
            considered, priced = considered + part.candidates, priced + part.priced
            cycles = int(rounds[row]) * part.predicted_cycles + machine.spawn_cycles
            if best is None or cycles < best.predicted_cycles:
                best = replace(
                    part,
                    schedule=whole_schedule(part.schedule, grid, machine),
                    predicted_cycles=cycles,
                    moved_bytes=part.moved_bytes * int(parts[row]),
                )
    if best is None:
        assert failure is not None
        raise failure
    return replace(
        best,
        physical_bound=min(physical_bound(kernel, core, p) for p in primitives) / cores,
        granule_bound=min(granule_bound(kernel, core, p) for p in primitives) / cores,
        candidates=considered,
        priced=priced,
        seconds=perf_counter() - begin,
        near=(),
    )


def grids(kernel: Kernel, primitive: Primitive, cores: int) -> Columns:
    """The grids worth a look: parts for every core, where the dims give that many."""
    allowed = shareable(kernel) - set(primitive.whole)
    columns: dict[str, NDArray[np.int64]] = {}
    parts = np.ones(1, np.int64)
    for dim, extent in kernel.anchor.extents.items():
        granule = primitive.multiples.get(dim, 1)
        sizes = np.array(_sizes(extent, granule, cores) if dim in allowed else [extent])
        columns = {other: np.repeat(column, len(sizes)) for other, column in columns.items()}
        columns[dim] = np.tile(sizes, len(parts))
        parts = np.repeat(parts, len(sizes)) * -(-extent // columns[dim])
        kept = np.flatnonzero(parts <= cores * ROUNDS)
        parts, columns = parts[kept], {other: column[kept] for other, column in columns.items()}
    kept = np.flatnonzero(parts >= min(cores, int(parts.max())))
    return {dim: column[kept] for dim, column in columns.items()}


def parts_of(kernel: Kernel, sizes: Columns) -> NDArray[np.int64]:
    """Parts of each grid."""
    first = next(iter(sizes.values()))
    count = np.ones(len(first), np.int64)
    for dim, extent in kernel.anchor.extents.items():
        count *= -(-extent // sizes[dim])
    return count


def _sizes(extent: int, granule: int, cores: int) -> list[int]:
    """Sizes of parts, the whole first: one for each count of parts, multiples of the granule."""
    counts = range(1, min(extent, cores) + 1)
    sizes = {ceil(ceil(extent / count) / granule) * granule for count in counts}
    return sorted({min(size, extent) for size in sizes}, reverse=True)


def shareable(kernel: Kernel) -> frozenset[str]:
    """Dims of which different indices are different elements of every stage's result."""
    dims = frozenset(kernel.anchor.extents) - frozenset(kernel.anchor.reduction) - kernel.awaited
    for stage in kernel.stages:
        dims &= stage.output.dims
    return dims


def part_of(kernel: Kernel, grid: Mapping[str, int]) -> Kernel:
    """The kernel of one part, the largest."""

    def cut(stage: Stage) -> Stage:
        dims = tuple(replace(dim, extent=grid.get(dim.name, dim.extent)) for dim in stage.dims)
        inputs = tuple(_inside(operand, grid) for operand in stage.inputs)
        return replace(stage, dims=dims, inputs=inputs)

    return replace(kernel, stages=tuple(cut(stage) for stage in kernel.stages))


def _inside(operand: Operand, grid: Mapping[str, int]) -> Operand:
    """The operand of a part that does not begin at the image's border: padding takes nothing off
    its tiles, as it does for the first part alone."""

    def moved(axis: Affine) -> Affine:
        return replace(axis, offset=0) if axis.offset < 0 and grid.keys() & {*axis.dims} else axis

    return replace(operand, access=tuple(moved(axis) for axis in operand.access))


def _bounds(
    kernel: Kernel, core: Machine, primitive: Primitive, sizes: Columns
) -> NDArray[np.float64]:
    """Cycles that a core takes at least for one part of each grid: to compute, or to move it."""
    compute = parse_expression(primitive.cycles).evaluate(dict(sizes))
    moved = np.zeros(len(next(iter(sizes.values()))))
    for operand in kernel.operands:
        lengths: list[NDArray[np.int64]] = []
        count = np.full(len(moved), float(operand.element_bytes))
        for axis, extent in zip(operand.access, operand.shape, strict=True):
            length = np.ones(len(moved), np.int64)
            for dim, coefficient in axis.terms:
                length = length + abs(coefficient) * (sizes[dim] - 1)
            lengths.append(np.minimum(length, extent))
            count = count * lengths[-1]
        # Blocks of a tile are no longer than those of the part, so no more efficient.
        curve = _move(core, primitive, operand.role).efficiency
        if curve and lengths:
            run = run_elements(operand, lengths) * operand.element_bytes
            known, fractions = zip(*curve, strict=True)
            count = count / np.interp(run, known, fractions)
        moved = moved + count
    return np.maximum(compute, moved / main_bandwidth(core))


def _move(machine: Machine, primitive: Primitive, role: str) -> Move:
    """The move of an operand between main memory and the first memory on its way."""
    ends = (machine.main, primitive.operands[role].memory)
    return machine.path(*ends)[0] if role != "output" else machine.path(*ends[::-1])[-1]


def whole_schedule(part: Schedule, grid: Mapping[str, int], machine: Machine) -> Schedule:
    """The schedule of the whole kernel: the part's, within loops over the parts."""
    if not grid:
        return part
    outer = Level(machine.main, tuple(grid.items()), tuple(grid))
    return replace(part, levels=(outer, *part.levels), shared=" ".join(grid))

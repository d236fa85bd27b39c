"""Cores with memories of their own: each computes its part of the result in tiles of its own.

The result is cut into a grid of parts along its dims, at least as many as there are cores where the
dims give that many; core number i takes a run of the parts, as swTVM's ``athread_parallel`` has it.
No two cores write one element, and none waits for another. A part is planned as a kernel of its
own on the machine that one core sees: its own memories, and its share of
the bandwidth of main memory, or what a cache that all cores share gives it.

Grids come sorted by a lower bound of what the core with the most parts takes; they are planned
until the next bound exceeds the best so far, ``PLANNED`` at most, each up to what the best takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import ceil, prod

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.machine import Machine, Move, Primitive, parse_expression
from tilewright.machine.records import MemoryRecord
from tilewright.planning.chains.plans import plan_chain
from tilewright.planning.cost.bounds import granule_bound, main_bandwidth, physical_bound
from tilewright.planning.domain import Affine, Kernel, Operand, Stage
from tilewright.planning.own import on_one_core, shared_cache, start_cycles
from tilewright.planning.plan import Budget, Plan, Timer
from tilewright.planning.planners.exact import plan_exact
from tilewright.planning.planners.schedules import agreeing
from tilewright.planning.schedule import Level, Schedule
from tilewright.planning.space.footprint import run_elements
from tilewright.planning.space.levels import is_deep

PLANNED = 6
"""Grids of a primitive that are planned at most."""

SETTLED = 0.02
"""No further grid is planned whose bound leaves less than this to be gained."""

ROUNDS = 4
"""Parts of each core at most, which even out what does not divide."""


Columns = Mapping[str, NDArray[np.int64]]
"""Size of a part along every dim, one row for each grid."""


Allowed = Callable[[Kernel, Primitive, int], Columns]
"""Kernel, primitive, cores -> the grids that are worth a look."""


def one_core(machine: Machine) -> Machine:
    """The machine as one of its cores sees it while the others do the same."""
    return _with_rates(machine, lambda move: move.bytes_per_cycle / machine.cores)


def core_beside(machine: Machine, others: int, reuse: float, live: float) -> Machine:
    """The machine as one of its cores sees it while ``others`` more cores compute their parts of a
    kernel, and load every byte ``reuse`` times in all; ``live`` are the bytes of all operands.

    Behind a cache that cores share, memory is read once for all of them, if the cache holds the
    kernel, and each core loads no faster than the cache hits.
    """
    main = machine.memory(machine.main)
    cache, whole = shared_cache(machine), main.bytes_per_cycle
    if cache is None or whole is None:
        return one_core(machine)
    share, hit = whole / (others + 1), cache.hit_bytes_per_cycle
    cached = live <= cache.bytes

    def rate(move: Move) -> float:
        slower = min(move.bytes_per_cycle, share)
        if move.target == machine.main:
            return move.bytes_per_cycle if cached else slower
        return min(hit, slower * reuse) if cached else slower

    return _with_rates(machine, rate)


def _with_rates(machine: Machine, rate: Callable[[Move], float]) -> Machine:
    """One core, whose moves of main memory have other rates; what cores share limits nothing more
    than these."""
    main = machine.memory(machine.main)
    moves = tuple(
        move.model_copy(update={"bytes_per_cycle": rate(move)})
        if machine.main in (move.source, move.target)
        else move
        for move in machine.moves
    )
    known, own = main.bytes_per_cycle, main.own
    if shared_cache(machine) is not None:
        known, own = None, MemoryRecord()  # Loads and stores have paths of their own.
    elif known is not None:
        known /= machine.cores
    memories = tuple(
        memory.model_copy(update={"bytes_per_cycle": known, "own": own})
        if memory is main
        else memory
        for memory in machine.memories
    )
    return machine.model_copy(update={"memories": memories, "moves": moves, "cores": 1})


def plan_cores(
    kernel: Kernel,
    machine: Machine,
    *,
    timer: Timer | None = None,
    budget: Budget | None = None,
    allowed: Allowed | None = None,
) -> Plan:
    """The best grid's plan; ``Schedule.shared`` names the dims that are cut.

    Raises TilewrightError as ``plan_exact`` does. ``timer`` is not asked: it would time one core.
    ``allowed`` gives the grids of a primitive on a number of cores, if not all (``grids``).
    """
    del timer
    budget = budget or Budget()
    best: Plan | None = None
    failure: TilewrightError | None = None
    considered = priced = 0
    primitives = agreeing(kernel, machine)
    for primitive in primitives:
        plan = plan_chain if is_deep(machine, primitive) else plan_exact
        cores = 1 if on_one_core(primitive) else machine.cores
        # Where cores share no path, the last round may well leave some of them idle.
        paths = shared_cache(machine) is not None
        fewest = ceil(cores / 2) if paths else cores
        if allowed is None:
            sizes = grids(kernel, primitive, cores, fewest)
        else:
            sizes = allowed(kernel, primitive, cores)
        parts = parts_of(kernel, sizes)
        rounds = -(-parts // cores)
        supply = _Supply(kernel, machine.model_copy(update={"cores": cores}), sizes, parts)
        bounds = rounds * _bounds(kernel, primitive, sizes, supply)
        for row in np.argsort(bounds, kind="stable")[:PLANNED].tolist():
            enough = float(bounds[row]) * (1 + SETTLED) + start_cycles(machine)
            if best is not None and enough >= best.predicted_cycles:
                break
            extents = kernel.anchor.extents
            grid = {d: int(c[row]) for d, c in sizes.items() if int(c[row]) < extents[d]}
            alone = supply.core(row).model_copy(update={"primitives": (primitive,)})
            most = budget.limit if best is None else min(best.predicted_cycles, budget.limit)
            limited = replace(budget, limit=(most - start_cycles(machine)) / int(rounds[row]))
            try:
                part = plan(part_of(kernel, grid), alone, budget=limited)
            except TilewrightError as error:
                failure = failure or error
                continue
            considered, priced = considered + part.candidates, priced + part.priced
            cycles = int(rounds[row]) * part.predicted_cycles + start_cycles(machine)
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
        physical_bound=min(_shared_bound(physical_bound, kernel, machine, p) for p in primitives),
        granule_bound=min(_shared_bound(granule_bound, kernel, machine, p) for p in primitives),
        candidates=considered,
        priced=priced,
        others=(),
    )


def _shared_bound(
    bound: Callable[[Kernel, Machine, Primitive], float],
    kernel: Kernel,
    machine: Machine,
    primitive: Primitive,
) -> float:
    """A bound of a kernel on all cores that compute it."""
    cores = 1 if on_one_core(primitive) else machine.cores
    machine = machine.model_copy(update={"cores": cores})
    main = machine.memory(machine.main)
    if shared_cache(machine) is None or main.bytes_per_cycle is None:
        return bound(kernel, one_core(machine), primitive) / cores
    # Loads and stores at once, and what is loaded comes from memory once.
    core = core_beside(machine, cores - 1, 1.0, 0.0)
    rates = [_move(core, primitive, role).bytes_per_cycle for role in ("input", "output")]
    memory = main.model_copy(update={"bytes_per_cycle": sum(rates)})
    memories = tuple(
        memory if replaced.name == memory.name else replaced for replaced in core.memories
    )
    return bound(kernel, core.model_copy(update={"memories": memories}), primitive) / cores


class _Supply:
    """The share of main memory that a core gets, for each grid."""

    def __init__(
        self, kernel: Kernel, machine: Machine, sizes: Columns, parts: NDArray[np.int64]
    ) -> None:
        self.machine = machine
        self.others = np.minimum(parts, machine.cores) - 1
        part, whole = np.zeros(len(parts)), 0.0
        self.live = 0.0
        for operand in kernel.operands:
            size = float(operand.bytes)
            self.live += size
            if operand.role != "output":
                whole += size
                part = part + prod(_lengths(operand, sizes), start=operand.element_bytes)
        self.reuse = np.maximum(parts * part / whole, 1.0) if whole else np.ones(len(parts))
        self.known: dict[tuple[int, float], Machine] = {}

    def core(self, row: int) -> Machine:
        """The machine that one core sees."""
        key = int(self.others[row]), float(self.reuse[row])
        if key not in self.known:
            self.known[key] = core_beside(self.machine, *key, self.live)
        return self.known[key]


def grids(kernel: Kernel, primitive: Primitive, cores: int, fewest: int | None = None) -> Columns:
    """The grids worth a look: parts for every core, or the ``fewest``, where the dims give that
    many."""
    allowed = shareable(kernel) - set(primitive.whole)
    columns: dict[str, NDArray[np.int64]] = {}
    parts = np.ones(1, np.int64)
    for dim, extent in kernel.anchor.extents.items():
        granule = primitive.multiples.get(dim, 1)
        fair = _sizes(extent, granule, cores) if dim in allowed else [extent]
        least = _fewest(kernel, primitive, dim)
        sizes = np.array([s for s in fair if s == extent or min(s, extent % s or s) >= least])
        columns = {other: np.repeat(column, len(sizes)) for other, column in columns.items()}
        columns[dim] = np.tile(sizes, len(parts))
        parts = np.repeat(parts, len(sizes)) * -(-extent // columns[dim])
        kept = np.flatnonzero(parts <= cores * ROUNDS)
        parts, columns = parts[kept], {other: column[kept] for other, column in columns.items()}
    kept = np.flatnonzero(parts >= min(fewest or cores, int(parts.max())))
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


def _fewest(kernel: Kernel, primitive: Primitive, dim: str) -> int:
    """Return how many indices a part along a dim needs for each tap of its windows to meet the
    image, where tiles are of a single tap: more than padding takes at either end."""
    least = 1
    for operand in kernel.anchor.inputs:
        for axis, extent in zip(operand.access, operand.shape, strict=True):
            steps = dict(axis.terms)
            step = abs(steps.get(dim, 0))
            if not step or all(primitive.limits.get(d) != 1 for d in steps):
                continue
            extents = kernel.anchor.extents
            last = axis.offset + sum(c * (extents[d] - 1) for d, c in steps.items())
            least = max(least, 1 - axis.offset // step, 1 + max(0, last - extent + step) // step)
    return least


def shareable(kernel: Kernel) -> frozenset[str]:
    """Dims of which different indices are different elements of every stage's result."""
    dims = frozenset(kernel.anchor.extents) - frozenset(kernel.anchor.reduction)
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
    kernel: Kernel, primitive: Primitive, sizes: Columns, supply: _Supply
) -> NDArray[np.float64]:
    """Cycles that a core takes at least for one part of each grid: to compute, or to move it."""
    compute = parse_expression(primitive.cycles).evaluate(dict(sizes))
    grids = range(len(next(iter(sizes.values()))))
    paths = shared_cache(supply.machine) is not None
    moved = np.zeros((2, len(grids)))
    for operand in kernel.operands:
        lengths = _lengths(operand, sizes)
        count = np.full(len(grids), float(operand.element_bytes))
        for length in lengths:
            count = count * length
        # Blocks of a tile are no longer than those of the part, so no more efficient.
        curve = _move(supply.machine, primitive, operand.role).efficiency
        if curve and lengths:
            run = run_elements(operand, lengths) * operand.element_bytes
            known, fractions = zip(*curve, strict=True)
            count = count / np.interp(run, known, fractions)
        moved[int(paths and operand.role == "output")] += count
    for number, role in enumerate(("input", "output") if paths else ("",)):
        rates = [
            _move(core, primitive, role).bytes_per_cycle if paths else main_bandwidth(core)
            for core in map(supply.core, grids)
        ]
        compute = np.maximum(compute, moved[number] / np.array(rates))
    return compute


def _lengths(operand: Operand, sizes: Columns) -> list[NDArray[np.int64]]:
    """Return the length that a part reads or writes of each axis of an operand, for each grid."""
    axes = zip(operand.access, operand.shape, strict=True)
    return [np.minimum(axis.span(sizes), extent) for axis, extent in axes]


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

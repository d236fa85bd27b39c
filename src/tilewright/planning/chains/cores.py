"""Plans of chains on cores with memories of their own.

The result of the last kernel is cut into parts, as that of a kernel alone is (planners/cores.py),
and a part is planned as a chain on the machine that one core sees beside the others. What a part
reads of a producer it computes itself, so that cuts which let several cores compute the same cost
more: grids come sorted by what a core computes in all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from math import ceil, prod

from tilewright.errors import TilewrightError
from tilewright.machine import Machine, parse_expression
from tilewright.planning.chains.plans import bounds, kernels_of, plan_chain
from tilewright.planning.chains.units import Unit, units_of
from tilewright.planning.cost.bounds import main_bandwidth, primitives_for
from tilewright.planning.domain import Kernel, Operand
from tilewright.planning.own import start_cycles
from tilewright.planning.plan import Budget, Plan, Timer
from tilewright.planning.planners.cores import (
    core_beside,
    grids,
    one_core,
    parts_of,
    whole_schedule,
)
from tilewright.planning.space.mesh import FEWEST_ELEMENTS, Mesh

PLANNED = 4
"""Grids that are planned."""


def plan_chain_cores(
    kernel: Kernel,
    machine: Machine,
    *,
    timer: Timer | None = None,
    budget: Budget | None = None,
    mesh: Mesh | None = None,
) -> Plan:
    """The best of some grids' plans; raises TilewrightError as ``plan_chain`` does. ``timer`` is
    not asked: it would time one core. Over a ``mesh``, one core loads what all need alike."""
    del timer
    chosen = [primitives_for(each, machine)[0] for each in kernels_of(kernel)]
    units = units_of(kernel, machine, chosen)
    whole = (*chosen[-1].whole, *_whole_dims(units))
    granules = {dim: max(unit.granule(dim) for unit in units) for dim in kernel.anchor.extents}
    last = chosen[-1].model_copy(update={"whole": whole, "multiples": granules})
    sizes = grids(kernel.alone, last, machine.cores, ceil(machine.cores / 2))
    parts = parts_of(kernel.alone, sizes)
    extents = kernel.anchor.extents
    choices: list[tuple[float, float, dict[str, int], int, Machine]] = []
    for row, count in enumerate(parts.tolist()):
        part = {dim: int(column[row]) for dim, column in sizes.items()}
        grid = {dim: size for dim, size in part.items() if size < extents[dim]}
        shared = {o.name for o in _alike(units, grid)} if mesh and not count % machine.cores else ()
        known = _known(units, part)
        core = _core(units, known, count, machine)
        read = sum(
            _read(operand, unit, known)
            for unit, operand in _loads(units)
            if operand.name not in shared
        )
        rounds, work = ceil(count / machine.cores), _work(units, known)
        loaded = read / main_bandwidth(core)
        choices.append((rounds * (work + loaded), rounds * work, grid, count, core))
    best: Plan | None = None
    failure: TilewrightError | None = None
    for _, least, grid, count, core in sorted(choices, key=lambda choice: choice[0])[:PLANNED]:
        if best is not None and least >= best.predicted_cycles:
            continue
        try:
            plan = plan_chain(_part(kernel, grid), core, budget=budget)
        except TilewrightError as error:
            failure = failure or error
            continue
        for alternative in (plan, *plan.others):
            every = _whole(alternative, units, grid, count, machine, mesh)
            if best is None or every.predicted_cycles < best.predicted_cycles:
                best = every
    if best is None:
        assert failure is not None
        raise failure
    # What is loaded comes from memory once.
    core = core_beside(machine, machine.cores - 1, 1.0, 0.0)
    physical, granule = (bound / machine.cores for bound in bounds(kernel, core))
    return replace(
        best,
        physical_bound=physical,
        granule_bound=granule,
        others=(),
    )


def _whole(
    plan: Plan,
    units: tuple[Unit, ...],
    grid: dict[str, int],
    count: int,
    machine: Machine,
    mesh: Mesh | None,
) -> Plan:
    """The plan of all ``count`` parts from that of one."""
    rounds, rate = ceil(count / machine.cores), main_bandwidth(one_core(machine))
    schedule, cycles = whole_schedule(plan.schedule, grid, machine), plan.predicted_cycles
    moved = plan.moved_bytes * count
    if mesh is not None and not count % machine.cores:
        looped = {dim for level in plan.schedule.levels for dim in level.order}
        alike = _alike(units, {*grid, *looped})
        schedule = replace(schedule, exchanged=tuple((o.name, "all") for o in alike))
        # Loaded once for each part, before anything is computed.
        for size in (_bytes(operand) for operand in alike):
            cycles += mesh.broadcast_cycles + size / mesh.broadcast_bytes - size / rate
            moved -= (count - rounds) * size
    cycles = rounds * cycles + start_cycles(machine)
    return replace(plan, schedule=schedule, predicted_cycles=cycles, moved_bytes=moved)


def _alike(units: tuple[Unit, ...], cut: Collection[str]) -> list[Operand]:
    """The operands that do not depend on dims that are cut, nor do the tiles that read them."""
    bound = {dim: axis for unit in units for dim, axis in unit.bound.items()}

    def depends(dim: str) -> bool:
        return dim in cut or (dim in bound and any(depends(other) for other in bound[dim].dims))

    return [
        operand
        for unit, operand in _loads(units)
        if prod(operand.shape) >= FEWEST_ELEMENTS
        and not any(depends(dim) for axis in unit.axes[operand.name] for dim in axis.dims)
    ]


def _loads(units: tuple[Unit, ...]) -> Iterator[tuple[Unit, Operand]]:
    """The operands that units read from main memory: no unit before computes them."""
    computed = {unit.kernel.output.name for unit in units[:-1]}
    for unit in units:
        yield from (
            (unit, operand) for operand in unit.kernel.inputs if operand.name not in computed
        )


def _bytes(operand: Operand, unit: Unit | None = None) -> int:
    stated = unit.primitive.operands[operand.role].element_bytes if unit is not None else None
    return prod(operand.shape) * (stated or operand.element_bytes)


def _read(operand: Operand, unit: Unit, known: dict[str, int]) -> float:
    """The bytes of an operand that a part reads if it needs ``known`` indices of each dim."""
    axes = zip(unit.axes[operand.name], operand.shape, strict=True)
    lengths = [min(extent, axis.span(known)) for axis, extent in axes]
    return _bytes(operand, unit) * prod(lengths) / prod(operand.shape)


def _part(kernel: Kernel, grid: dict[str, int]) -> Kernel:
    """The chain of one part, the first; its tensors are whole, and its producers' dims follow."""

    def cut(extent: int, dim: str) -> int:
        return grid.get(dim, extent)

    stages = tuple(
        replace(
            stage,
            dims=tuple(replace(dim, extent=cut(dim.extent, dim.name)) for dim in stage.dims),
        )
        for stage in kernel.stages
    )
    return replace(kernel, stages=stages)


def _whole_dims(units: tuple[Unit, ...]) -> Iterator[str]:
    """The dims of the last kernel of which a producer needs all for dims that it takes whole, and
    those that a producer without a domain of its own does not have: parts would compute its points
    again."""
    bound = {dim: axis for unit in units for dim, axis in unit.bound.items()}

    def roots(dim: str) -> Iterator[str]:
        if dim not in bound:
            yield dim
            return
        for other in bound[dim].dims:
            yield from roots(other)

    for unit in units[:-1]:
        if not unit.bound:
            dims = {unit.names.get(dim, dim) for dim in unit.kernel.anchor.extents}
            yield from (dim for dim in units[-1].kernel.anchor.extents if dim not in dims)
        for dim in unit.primitive.whole:
            yield from roots(unit.names.get(dim, dim))


def _known(units: tuple[Unit, ...], sizes: dict[str, int]) -> dict[str, int]:
    """The indices of all dims, by the chain's names, that a part of the last kernel of these sizes
    needs."""
    known: dict[str, int] = dict(sizes)
    for unit in reversed(units):
        for dim, extent in unit.kernel.anchor.extents.items():
            name = unit.names.get(dim, dim)
            axis = unit.bound.get(name)
            known.setdefault(name, extent if axis is None else min(extent, axis.span(known)))
    return known


def _work(units: tuple[Unit, ...], known: dict[str, int]) -> float:
    """The cycles at peak rate of all kernels for a part that needs ``known`` indices of each dim;
    of those beyond a primitive's limits, one tile after the other."""
    total = 0.0
    for unit in units:
        sizes = {dim: known[unit.names.get(dim, dim)] for dim in unit.kernel.anchor.extents}
        most = {dim: unit.primitive.limits.get(dim, size) for dim, size in sizes.items()}
        tiles = prod(ceil(size / most[dim]) for dim, size in sizes.items())
        tile = {dim: min(size, most[dim]) for dim, size in sizes.items()}
        total += tiles * float(parse_expression(unit.primitive.cycles).evaluate(tile))
    return total


def _core(units: tuple[Unit, ...], known: dict[str, int], count: int, machine: Machine) -> Machine:
    """The machine that a core sees which computes one of ``count`` parts."""
    inputs = {operand.name: (unit, operand) for unit, operand in _loads(units)}
    whole = sum(_bytes(operand, unit) for unit, operand in inputs.values())
    loaded = sum(_read(operand, unit, known) for unit, operand in inputs.values())
    live = whole + units[-1].kernel.output.bytes
    others = min(count, machine.cores) - 1
    return core_beside(machine, others, max(count * loaded / whole, 1.0), live)

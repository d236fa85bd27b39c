"""Functions that planners share: primitives that may compute a kernel, the best of several plans,
and writing out a schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tilewright.errors import TilewrightError
from tilewright.machine import Machine, Primitive
from tilewright.planning.cost.bounds import primitives_for
from tilewright.planning.domain import Kernel
from tilewright.planning.layout import Layout
from tilewright.planning.plan import Plan
from tilewright.planning.schedule import Level, Schedule
from tilewright.planning.space.nests import Arrangement
from tilewright.planning.space.operand_layouts import lies_along, operand_layout
from tilewright.planning.space.tilings import Space


def schedule_of(space: Space, arrangement: Arrangement, row: int) -> Schedule:
    """The schedule of one row of a space under one arrangement."""
    extents = space.extents
    tile = {dim: int(space.size(dim)[row]) for dim in extents}
    trips = {dim: -(-extents[dim] // tile[dim]) for dim in extents}
    output = next(use for use in space.uses if use.output)
    others = [use.operand.resident_in or use.memory.name for use in space.uses if not use.output]
    grown = {dim: int(count[row]) for dim, count in arrangement.grown.items()}
    outer: list[str] = []
    inner: list[str] = []
    for loop in arrangement.nest.loops:
        for dim in loop.group.dims:
            rounds = -(-trips[dim] // grown.get(dim, 1))
            if loop.inner:
                if grown[dim] > 1:
                    inner.append(dim)
            elif rounds > 1:
                (inner if loop.group.reduction else outer).append(dim)
    buffers = tuple(
        (use.name, int(arrangement.slots[use.host or use.name][row]))
        for use in space.uses
        if use.move is not None
    )
    fine = tuple((dim, tile[dim]) for dim in extents)
    innermost = others[0] if others else output.memory.name
    if not arrangement.nest.grown:
        return Schedule(space.primitive.name, (Level(innermost, fine, (*outer, *inner)),), buffers)
    reduction = space.kernel.anchor.reduction
    coarse = tuple(
        (
            dim,
            extents[dim] if dim in reduction else min(tile[dim] * grown.get(dim, 1), extents[dim]),
        )
        for dim in extents
    )
    within = next((name for name in others if name != output.memory.name), innermost)
    levels = Level(output.memory.name, coarse, tuple(outer)), Level(within, fine, tuple(inner))
    return Schedule(space.primitive.name, levels, buffers)


def agreeing(kernel: Kernel, machine: Machine) -> tuple[Primitive, ...]:
    """The primitives that take the kernel's maps, and its operands in the layouts that they have
    and, those that are resident, where they lie; all if none does."""
    maps = [stage.operation for stage in kernel.stages[1:]]

    def agrees(primitive: Primitive) -> bool:
        if not primitive.accepts(maps):
            return False
        for operand in kernel.operands:
            rank = len(operand.shape)
            wanted = operand_layout(machine, primitive, operand)
            turned = machine.turned_layout(primitive, operand.role, rank)
            if (
                wanted != "any"
                and Layout.parse(operand.layout, rank) != Layout.parse(wanted, rank)
                and not (
                    turned and Layout.parse(operand.layout, rank) == Layout.parse(turned, rank)
                )
            ):
                return False
            storage = primitive.operands.get(operand.role)
            if storage is None or not lies_along(operand, operand.layout, storage.along, extents):
                return False
            if operand.resident_in and operand.resident_in != storage.memory:
                return False
        return True

    extents = kernel.anchor.extents
    serving = primitives_for(kernel, machine)
    return tuple(p for p in serving if agrees(p)) or serving


def cheapest(makers: Iterable[Callable[[], Sequence[Plan]]]) -> Plan:
    """The plan of the fewest cycles of those that can be made, the first of equals, with what was
    looked at for all of them; raises the first's TilewrightError if none can."""
    plans: list[Plan] = []
    failures: list[TilewrightError] = []
    for make in makers:
        try:
            plans += make()
        except TilewrightError as error:
            failures.append(error)
    if not plans:
        raise failures[0]
    return replace(
        min(plans, key=lambda plan: plan.cycles),
        physical_bound=min(plan.physical_bound for plan in plans),
        granule_bound=min(plan.granule_bound for plan in plans),
        candidates=sum(plan.candidates for plan in plans),
        priced=sum(plan.priced for plan in plans),
        timed=sum(plan.timed for plan in plans),
    )

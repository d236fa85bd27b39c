"""Planning: domains, layouts, schedules, the cost model, the planners: a schedule per kernel.

found = plan(kernel, machine, timer=timer)
found.schedule, found.predicted_cycles, found.granule_bound, found.efficiency
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from typing import Protocol

from tilewright.machine import Machine
from tilewright.planning.bounds import in_place, primitives_for
from tilewright.planning.caches import in_place_planning
from tilewright.planning.canonical import canonical, renamed
from tilewright.planning.chains import plan_chain
from tilewright.planning.domain import Kernel
from tilewright.planning.layout import Layout
from tilewright.planning.plan import Budget, Plan, Timer, timed
from tilewright.planning.planners.cores import plan_cores
from tilewright.planning.planners.exact import plan_exact, priced_first


class Search(Protocol):
    """What finds a kernel's plan."""

    def __call__(
        self, kernel: Kernel, machine: Machine, *, timer: Timer | None, budget: Budget | None
    ) -> Plan:
        """The plan; raises TilewrightError as ``plan`` does."""
        ...


PlanKey = tuple[Kernel, bool]
"""A kernel without names, and whether a timer was asked."""

PlanCache = MutableMapping[PlanKey, Plan]
"""Plans of one machine, timer, budget and search."""


def plan(
    kernel: Kernel,
    machine: Machine,
    *,
    timer: Timer | None = None,
    budget: Budget | None = None,
    cache: PlanCache | None = None,
    search: Search | None = None,
) -> Plan:
    """The best schedule of a kernel on a machine, or the one that ``search`` finds.

    ``timer`` gives the simulated cycles of a schedule; with it the best candidates are run and the
    fastest is taken. ``cache`` spares planning a kernel again that differs in names only; give one
    mapping per machine, timer, budget and search. The same arguments give the same schedule.

    Raises TilewrightError: ``plan-primitive`` when no primitive computes the kernel,
    ``plan-operand`` when the primitive has no place for an operand, ``plan-capacity`` when not
    even the smallest tile fits.
    """
    unnamed, names = canonical(kernel)
    key = unnamed, timer is not None
    if cache is not None and key in cache:
        known = cache[key]
        back = {new: old for old, new in names.items()}
        return replace(_renamed(known, back), seconds=0.0)
    planner = search if search is not None and not kernel.producers else planner_of(kernel, machine)
    apart = planner is plan_chain or (planner is plan_exact and priced_first(kernel, machine))
    if apart and timer is not None:
        # What asks without a timer, such as the fusion search, shares the longer part of the work.
        alone = replace(kernel, first=False)
        result = timed(plan(alone, machine, budget=budget, cache=cache), kernel, timer)
    else:
        result = planner(kernel, machine, timer=timer, budget=budget)
    if cache is not None:
        cache[key] = _renamed(result, names)
    return result


def planner_of(kernel: Kernel, machine: Machine) -> Search:
    """The planner that a kernel on a machine asks for."""
    if kernel.producers:
        return plan_chain  # Other planners cut one kernel.
    if in_place(kernel, machine, primitives_for(kernel, machine)[0]):
        return in_place_planning(machine).plan
    shared = machine.cores > 1 or machine.memory(machine.main).own.shared_cache() is not None
    return plan_cores if shared else plan_exact


def _renamed(chosen: Plan, names: Mapping[str, str]) -> Plan:
    """The plan with its operands' names replaced."""
    near = tuple(_renamed(close, names) for close in chosen.near)
    others = tuple(_renamed(other, names) for other in chosen.others)
    return replace(chosen, schedule=renamed(chosen.schedule, names), near=near, others=others)


__all__ = ["Budget", "Layout", "Plan", "PlanCache", "PlanKey", "Search", "Timer", "plan"]

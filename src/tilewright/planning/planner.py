"""The planner of a machine: a plan for each kernel, kernels alike once."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter
from typing import ClassVar, Protocol

from tilewright.errors import TilewrightError
from tilewright.ir.passes import CompilerContext
from tilewright.machine import Machine
from tilewright.planning.canonical import canonical, renamed
from tilewright.planning.chains.cores import plan_chain_cores
from tilewright.planning.chains.plans import passes_memories, plan_chain
from tilewright.planning.cost.bounds import in_place, primitives_for
from tilewright.planning.domain import Kernel
from tilewright.planning.own import shared_cache
from tilewright.planning.plan import (
    Budget,
    Plan,
    Timer,
    for_methods,
    infinite_if_refused,
    timed,
)
from tilewright.planning.planners.caches import in_place_planning
from tilewright.planning.planners.cores import plan_cores
from tilewright.planning.planners.exact import plan_exact

Ask = Callable[[Kernel], Plan | None]
"""A kernel's plan, or None where the planner's own search is to find it."""


class Search(Protocol):
    """A search for a kernel's plan."""

    def __call__(
        self, kernel: Kernel, machine: Machine, *, timer: Timer | None, budget: Budget | None
    ) -> Plan:
        """The plan; raises TilewrightError as ``Planner.plan`` does."""
        ...


PlanKey = tuple[Kernel, bool]
"""A kernel without names, and whether a timer was asked."""

PlanCache = MutableMapping[PlanKey, Plan]
"""Plans of one machine, timer, budget and search."""


class PlanStore(Protocol):
    """Plans that outlive a planner: of other planners, or of other processes."""

    def cache(self, planner: Planner) -> PlanCache:
        """The plans that are known of a planner's machine, timer, budget and search."""
        ...


@dataclass
class Planner:
    """Plans the kernels of one machine: the same kernel and options give the same schedule."""

    machine: Machine
    timer: Timer | None = None
    """The simulated cycles of a schedule: with it the best candidates are run, and the fastest is
    taken. None takes the best by the machine's cost model."""
    budget: Budget | None = None
    search: Search | None = None
    """The search for plans of kernels without producers; None for the exact search."""
    chains: Search | None = None
    """The search for plans of kernels with producers; None for that of the machine's cores."""
    ask: Ask | None = None
    """Asked for a kernel's plan before anything is searched."""
    cache: PlanCache = field(default_factory=dict[PlanKey, Plan])
    """Plans of kernels that differ from those asked for in names only."""
    _store: ClassVar[PlanStore | None] = None

    @staticmethod
    @contextmanager
    def sharing(store: PlanStore | None) -> Generator[None]:
        """Let all planners of this process look plans up in a store, and keep them there, in a
        block; None is no store."""
        before = Planner._store
        Planner._store = store
        try:
            yield
        finally:
            Planner._store = before

    def plan(self, kernel: Kernel) -> Plan:
        """The best schedule of a kernel.

        Raises TilewrightError: ``plan-primitive`` when no primitive computes the kernel,
        ``plan-operand`` when the primitive has no place for an operand, ``plan-capacity`` when not
        even the smallest tile fits.
        """
        if self.ask is not None and (asked := self.ask(kernel)) is not None:
            return asked
        unnamed, names = canonical(kernel)
        key = unnamed, self.timer is not None
        cache = self.cache if Planner._store is None else Planner._store.cache(self)
        if key in cache:
            back = {new: old for old, new in names.items()}
            return replace(_renamed(cache[key], back), seconds=0.0)
        begin = perf_counter()
        result = replace(self._searched(kernel), seconds=perf_counter() - begin)
        cache[key] = _renamed(result, names)
        return result

    def cycles(self, kernel: Kernel) -> float:
        """The cost model's cycles of the best schedule of a kernel; infinite if it has none."""
        try:
            return self.plan(kernel).predicted_cycles
        except TilewrightError:
            return inf

    def by_cost(self) -> Planner:
        """The planner by the machine's cost model alone, with the same cache."""
        alone = self.timer is None and self.ask is None
        return self if alone else replace(self, timer=None, ask=None)

    def on(self, machine: Machine, timer: Timer | None) -> Planner:
        """The planner of a variant of the machine, which searches as long: nothing is asked for."""
        return replace(self, machine=machine, timer=timer, ask=None, cache={})

    def for_methods(self) -> Planner:
        """The planner that passes ask to choose methods: it times nothing, and asks what ``ask``
        has as ``methods``, if it has that."""
        return replace(self, timer=None, ask=for_methods(self.ask))

    def _searched(self, kernel: Kernel) -> Plan:
        search = self.chains if kernel.producers else self.search
        search = search or search_of(kernel, self.machine)
        timer = None if self.timer is None else infinite_if_refused(self.timer)
        if timer is not None and search is plan_chain:
            # What asks without a timer, such as the fusion search, shares the longer part of this.
            priced = self.by_cost().plan(replace(kernel, first=False))
            return timed(priced, kernel, timer)
        return search(kernel, self.machine, timer=timer, budget=self.budget)


def planner_in(context: CompilerContext) -> Planner:
    """The planner that a pass asks."""
    planner = context.planner
    return planner if isinstance(planner, Planner) else Planner(context.machine)


def search_of(kernel: Kernel, machine: Machine) -> Search:
    """The search that a kernel on a machine asks for."""
    cached = shared_cache(machine) is not None
    # Other searches cut one kernel, into commands of whole tiles.
    if kernel.producers or machine.synchronisation.by_rows:
        return plan_chain if machine.cores == 1 and not cached else plan_chain_cores
    if in_place(kernel, machine, primitives_for(kernel, machine)[0]):
        return in_place_planning(machine).plan
    if machine.cores > 1 or cached:
        return plan_cores
    return plan_chain if passes_memories(kernel, machine) else plan_exact


def _renamed(chosen: Plan, names: Mapping[str, str]) -> Plan:
    """The plan with its operands' names replaced."""
    others = tuple(_renamed(other, names) for other in chosen.others)
    return replace(chosen, schedule=renamed(chosen.schedule, names), others=others)

"""Plan: what a planner says of one kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Schedule

Timer = Callable[[Kernel, Schedule], float]
"""Simulated cycles of a kernel under a schedule; raises TilewrightError where the target's lowering
refuses the schedule."""


@dataclass(frozen=True)
class Budget:
    """The limits of a search, as counts, so that the same plan is found on every computer.

    When a bound cuts the space, the plan says which (``Plan.cuts``).
    """

    rows: int = 1_000_000
    """Tilings in one cross product ("rows")."""
    priced: int = 100_000
    """Tilings that are priced, best lower bound first ("priced")."""
    timed: int = 32
    """The most candidates that are timed, best cost first."""
    timed_tiles: int = 30_000
    """Tiles of all candidates of a kernel that are timed; the first is timed in any case."""
    settled: float = 0.003
    """Timing stops at a schedule that is this close to the granule bound."""
    margin: float = 0.04
    """Timing stops when the costs left exceed the best time by this: the cost is hardly ever
    that much too high."""
    firsts: float = 0.2
    """The margin for the best candidate of each primitive: for another one the cost may be further
    off."""
    limit: float = inf
    """Cycles above which no plan is wanted: what cannot be faster is not priced."""
    greedy: bool = True
    """True if the greedy planner's tilings are timed, too."""


@dataclass(frozen=True)
class Plan:
    """A schedule with what was found out on the way to it."""

    schedule: Schedule
    predicted_cycles: float
    """Cycles by the cost model."""
    moved_bytes: int
    """Through main memory, both ways."""
    physical_bound: float
    """The physical bound in cycles; see cost/bounds.py."""
    granule_bound: float
    candidates: int
    """Size of the space: tilings looked at."""
    priced: int
    """Schedules whose cost was computed; the others' lower bounds exceed the best."""
    complete: bool = True
    """True if no bound cut the space."""
    cuts: tuple[str, ...] = ()
    """The bounds that cut it: fields of ``Budget``."""
    timed_cycles: float | None = None
    """The cycles of the schedule by the timer; None if none was given."""
    timed: int = 0
    """Candidates that were timed."""
    others: tuple[Plan, ...] = ()
    """For a plan that nothing has timed, the next best by cost, for a timer to choose from."""
    planner: str = "exact"
    """The name of the planner in planners/registry.py."""
    seconds: float = 0.0
    """Time that the search took, as ``Planner`` finds."""

    @property
    def cycles(self) -> float:
        """Timed cycles, or else predicted."""
        return self.predicted_cycles if self.timed_cycles is None else self.timed_cycles

    def in_a_row(self, cycles: float) -> Plan:
        """The plan of a kernel that adds these cycles to those of the kernels before it.

        Part of its work may run beside theirs, so its bounds are those of what it adds: no more
        than that.
        """
        return replace(
            self,
            timed_cycles=cycles,
            physical_bound=min(self.physical_bound, cycles),
            granule_bound=min(self.granule_bound, cycles),
        )

    @property
    def efficiency(self) -> float:
        """Granule bound over cycles."""
        return self.granule_bound / self.cycles if self.cycles else 1.0

    @property
    def physical_efficiency(self) -> float:
        """The physical bound divided by the cycles."""
        return self.physical_bound / self.cycles if self.cycles else 1.0

    def to_json(self) -> dict[str, Any]:
        """A JSON object for ``tilewright plan --json``."""
        return {
            "planner": self.planner,
            "schedule": self.schedule.to_json(),
            "predicted_cycles": self.predicted_cycles,
            "timed_cycles": self.timed_cycles,
            "moved_bytes": self.moved_bytes,
            "bound_cycles": self.physical_bound,
            "granule_bound_cycles": self.granule_bound,
            "efficiency": self.efficiency,
            "candidates": self.candidates,
            "priced": self.priced,
            "timed": self.timed,
            "seconds": self.seconds,
            "complete": self.complete,
            "cuts": list(self.cuts),
        }


def timed(priced: Plan, kernel: Kernel, timer: Timer) -> Plan:
    """The fastest of a plan that was priced and of those that came after it; of equal ones, the
    best by cost."""
    plans = (priced, *priced.others)
    times = [timer(kernel, other.schedule) for other in plans]
    best = min(range(len(plans)), key=lambda number: times[number])
    return replace(plans[best], timed_cycles=times[best], timed=len(plans), others=())


def infinite_if_refused(timer: Timer) -> Timer:
    """The timer with infinite cycles for schedules that the lowering refuses: planners take others.

    What a lowering needs beyond memory, such as scalar registers, is known once it has emitted a
    schedule's code, so its refusal is its answer. This is the one place where that becomes a price.
    """

    def cycles(kernel: Kernel, schedule: Schedule) -> float:
        try:
            return timer(kernel, schedule)
        except TilewrightError:
            return inf

    return cycles


def plans_chains(planner: Callable[[Kernel], Plan | None] | None) -> bool:
    """Return True if a planner plans chains, too; one that was asked for cuts single kernels, if it
    does not say otherwise (``chains``)."""
    return planner is None or bool(getattr(planner, "chains", False))


def for_methods(planner: Callable[[Kernel], Plan | None] | None) -> Any:
    """Return the planner for passes that choose methods: its ``methods``, or the planner itself."""
    return getattr(planner, "methods", planner)

"""Plans of kernels that the points of a sweep share, on machines that do not differ for them.

A kernel's plan depends on the machine but for its names and its clock, and but for the times of
primitives that compute none of the kernel's operations. Machines that are equal otherwise share it.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, MutableMapping
from copy import deepcopy
from dataclasses import dataclass, field
from math import inf
from typing import Any

from tilewright.machine import Machine
from tilewright.planning import Budget, Plan, PlanCache, PlanKey, Planner, Timer
from tilewright.planning.domain import Kernel

MOST_MACHINES = 256
"""Machines whose plans are kept, those that were asked for last."""

QUICK = Budget(timed=1, greedy=False)
"""The schedule that the cost model ranks first, timed: a twentieth of the time of all candidates
and of the greedy planner beside them."""


@dataclass
class SweepPlanner(Planner):
    """A planner whose budget may be too small for a target that refuses schedules."""

    def _searched(self, kernel: Kernel) -> Plan:
        plan = super()._searched(kernel)
        if plan.cycles == inf and self.budget is not None:
            # Nothing that was timed can be lowered: all candidates are tried.
            return Planner(
                self.machine, self.timer, search=self.search, chains=self.chains
            )._searched(kernel)
        return plan


@dataclass
class SharedPlans:
    """A store of plans (``Planner.sharing``) for one point after the other."""

    machine: Machine | None = None
    """The machine of the point at hand, and its timer; other planners keep their own plans."""
    timer: Timer | None = None
    plans: OrderedDict[str, dict[PlanKey, Plan]] = field(
        default_factory=OrderedDict[str, dict[PlanKey, Plan]]
    )
    texts: dict[frozenset[str], str] = field(default_factory=dict[frozenset[str], str])
    """The part of the machine that kernels of some operations depend on."""
    _data: dict[str, Any] = field(default_factory=dict[str, Any])

    def begin(self, machine: Machine, timer: Timer | None) -> None:
        """Turn to another point's machine."""
        self.machine, self.timer, self._data = machine, timer, machine.to_json()
        self.texts.clear()

    def cache(self, planner: Planner) -> PlanCache:
        """The plans that are known for a planner's machine, if planners differ in nothing else."""
        same = planner.timer is None or planner.timer is self.timer
        if planner.machine is not self.machine or not same or planner.search or planner.chains:
            return planner.cache
        return _View(self, str(planner.budget))

    def of(self, kernel: Kernel, budget: str) -> dict[PlanKey, Plan]:
        """The plans of kernels on machines that are the same for this one."""
        key = f"{budget}\n{self.seen(kernel)}"
        known = self.plans.setdefault(key, {})
        self.plans.move_to_end(key)
        while len(self.plans) > MOST_MACHINES:
            self.plans.popitem(last=False)
        return known

    def seen(self, kernel: Kernel) -> str:
        """A text of what a kernel's plan depends on in the machine at hand."""
        operations = frozenset(operations_of(kernel))
        if operations not in self.texts:
            self.texts[operations] = without_times(self._data, operations)
        return self.texts[operations]


def operations_of(kernel: Kernel) -> Iterator[str]:
    """The operations of a kernel and of its producers."""
    for stage in kernel.stages:
        yield stage.operation
    for producer in kernel.producers:
        yield from operations_of(producer)


def without_times(data: dict[str, Any], operations: frozenset[str]) -> str:
    """A machine's JSON without its names, its clock, and the times of primitives that compute none
    of some operations."""
    kept = {key: value for key, value in data.items() if key not in UNSEEN}
    kept["primitives"] = [
        primitive
        if operations & set(primitive["operations"])
        else {key: value for key, value in primitive.items() if key not in ("cycles", "peak")}
        for primitive in data["primitives"]
    ]
    return json.dumps(kept, sort_keys=True)


UNSEEN = ("name", "description", "clock_hz")
"""The keys of a machine that no plan depends on."""

_TIMES = {
    "memories": ("bytes_per_cycle",),
    "moves": ("bytes_per_cycle", "latency", "in_flight", "transaction", "curve"),
    "engines": ("queue",),
    "primitives": ("cycles", "peak"),
}


def text_of(machine: Machine) -> str:
    """A text of all that plans depend on in a machine."""
    data = {key: value for key, value in machine.to_json().items() if key not in UNSEEN}
    return json.dumps(data, sort_keys=True)


def form_of(machine: Machine) -> str:
    """A text of what the passes on a graph see of a machine, up to the choice of its numbers.

    Times are left out, and sizes of memories: whether a kernel fits is asked afterwards. A machine
    with a record of its target's own is seen whole, as that may bring passes.
    """
    data = deepcopy(machine.to_json())
    if not machine.own.family:
        data = {key: value for key, value in data.items() if key not in UNSEEN}
        for table, names in _TIMES.items():
            for part in data[table]:
                for name in (*names, *(("bytes", "banks", "reserved") * (table == "memories"))):
                    part.pop(name, None)
    return json.dumps(data, sort_keys=True)


@dataclass
class _View(MutableMapping[PlanKey, Plan]):
    """The plans of one planner, each with the machines that are the same for its kernel."""

    store: SharedPlans
    budget: str

    def _of(self, key: PlanKey) -> dict[PlanKey, Plan]:
        return self.store.of(key[0], self.budget)

    def __getitem__(self, key: PlanKey) -> Plan:
        return self._of(key)[key]

    def __setitem__(self, key: PlanKey, made: Plan) -> None:
        self._of(key)[key] = made

    def __delitem__(self, key: PlanKey) -> None:
        del self._of(key)[key]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, tuple) and key in self._of(key)

    def __iter__(self) -> Iterator[PlanKey]:
        return (key for known in self.store.plans.values() for key in known)

    def __len__(self) -> int:
        return sum(len(known) for known in self.store.plans.values())

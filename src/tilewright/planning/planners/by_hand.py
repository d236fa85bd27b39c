"""Schedules that the caller writes for some of a model's nodes
(planning/planners/papers/scheduling.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.machine import Machine
from tilewright.planning.domain import Kernel
from tilewright.planning.plan import Plan, for_methods
from tilewright.planning.planners.papers.scheduling import Scheduling
from tilewright.planning.planners.stated import stated_plan

Steps = Callable[[Scheduling], None]
"""Splits, orders and buffers the loops of one kernel."""


@dataclass
class ByHand:
    """A planner of the kernels that compute certain nodes; another one plans the rest."""

    schedules: Mapping[str, Steps]
    """By the model's nodes."""
    machine: Machine
    otherwise: Callable[[Kernel], Plan | None] | None = None
    refused: list[TilewrightError] = field(default_factory=list[TilewrightError])
    met: set[str] = field(default_factory=set[str])
    """Nodes whose kernels were asked for."""

    def __call__(self, kernel: Kernel) -> Plan | None:
        """The plan by hand, or what the other planner says of the kernel."""
        nodes = [node for node in self.schedules if node in kernel.nodes]
        if not nodes:
            return None if self.otherwise is None else self.otherwise(kernel)
        self.met.update(nodes)
        try:
            scheduling = Scheduling(kernel, self.machine)
            self.schedules[nodes[0]](scheduling)
            plan = stated_plan(kernel, self.machine, scheduling.finished(), "by-hand")
        except TilewrightError as error:
            self.refused.append(error)
            raise
        return plan

    def methods(self, kernel: Kernel) -> Plan | None:
        """Plan a kernel for a pass that chooses methods: kernels that are scheduled by hand have no
        price, so that they keep the method that the schedule is for."""
        if any(node in kernel.nodes for node in self.schedules):
            raise refuse("schedule-node", "it is scheduled by hand", kernel.symbol)
        asked = for_methods(self.otherwise)
        return None if asked is None else asked(kernel)

    def check(self, on_host: Mapping[str, Problem | None]) -> None:
        """Refuse what went wrong once the network is compiled: a schedule, a name, a kernel on the
        host. ``on_host`` has the nodes that the host runs, and why the machine does not."""
        if self.refused:
            raise self.refused[0]
        for node in self.schedules:
            if node not in self.met:
                raise refuse("schedule-node", "no kernel of the network computes it", node)
        for node, problem in on_host.items():
            if node in self.schedules and problem is not None:
                raise TilewrightError(problem)
            if node in self.schedules:
                raise refuse("schedule-node", "the host runs it, without a schedule", node)

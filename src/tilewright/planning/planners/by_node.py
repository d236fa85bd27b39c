"""Planners of the kernels that compute certain nodes: by a schedule that the caller writes
(planning/planners/papers/scheduling.py), or by the best strategy of a space that the caller writes
(planning/planners/papers/strategies.py). Another planner plans the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.machine import Machine
from tilewright.planning.domain import Kernel
from tilewright.planning.plan import Plan, for_methods
from tilewright.planning.planners.papers.scheduling import Scheduling
from tilewright.planning.planners.papers.strategies import ScheduleSpace, count, strategies
from tilewright.planning.planners.stated import stated_plan
from tilewright.planning.space.mesh import Mesh
from tilewright.system.files import need_file, reason_of

if TYPE_CHECKING:
    from tilewright.planning.planners.registry import Request

Steps = Callable[[Scheduling], None]
"""Splits, orders and buffers the loops of one kernel."""


@dataclass
class ByNode:
    """A planner of the kernels that compute certain nodes; another one plans the rest."""

    plans: Mapping[str, Callable[[Kernel], Plan]]
    """Planner of the kernel that computes a node, by node; nodes of one kernel may share it."""
    where: Mapping[str, str]
    """The place in the user's input that names each node."""
    code: str
    """The code of what is refused of a node."""
    otherwise: Callable[[Kernel], Plan | None] | None = None
    """The planner of the other kernels; None for the machine's cost model."""
    refused: list[TilewrightError] = field(default_factory=list[TilewrightError])
    met: set[str] = field(default_factory=set[str])
    """Nodes whose kernels were asked for."""

    def __call__(self, kernel: Kernel) -> Plan | None:
        """The plan of one of the nodes, or what the other planner says of the kernel."""
        nodes = [node for node in self.plans if node in kernel.nodes]
        if not nodes:
            return None if self.otherwise is None else self.otherwise(kernel)
        plan = self.plans[nodes[0]]
        self.met.update(node for node in nodes if self.plans[node] is plan)
        try:
            return plan(kernel)
        except TilewrightError as error:
            self.refused.append(error)
            raise

    def methods(self, kernel: Kernel) -> Plan | None:
        """Plan a kernel for a pass that chooses methods: kernels of the nodes have no price, so
        that they keep the method that their schedule is for."""
        for node in self.plans:
            if node in kernel.nodes:
                raise refuse(self.code, "its schedule is given", self.where[node])
        asked = for_methods(self.otherwise)
        return None if asked is None else asked(kernel)

    def check(self, on_host: Mapping[str, Problem | None] | None = None) -> None:
        """Refuse what went wrong once the network is compiled: a schedule, a name, a kernel on the
        host. ``on_host`` has the nodes that the host runs, and why the machine does not."""
        if self.refused:
            raise self.refused[0]
        for node, where in self.where.items():
            if node not in self.met:
                raise refuse(self.code, f"no kernel that is planned computes {node}", where)
        for node, problem in (on_host or {}).items():
            if node in self.plans and problem is not None:
                raise TilewrightError(problem)
            if node in self.plans:
                raise refuse(self.code, "the host runs it, without a schedule", self.where[node])


def by_hand(
    schedules: Mapping[str, Steps],
    machine: Machine,
    otherwise: Callable[[Kernel], Plan | None] | None,
) -> ByNode:
    """The planner of nodes whose schedules the caller writes."""

    def plan(steps: Steps, kernel: Kernel) -> Plan:
        scheduling = Scheduling(kernel, machine)
        steps(scheduling)
        return stated_plan(kernel, machine, scheduling.finished(), "by-hand")

    plans = {node: partial(plan, steps) for node, steps in schedules.items()}
    return ByNode(plans, {node: node for node in schedules}, "schedule-node", otherwise)


def by_spaces(path: Path, machine: Machine, mesh: Mesh | None) -> ByNode:
    """The ``space`` planner, of a file; refuses what is no file (``space-file``) or no space."""
    # The import takes lark with it, which planning does not need otherwise.
    from tilewright.planning.planners.papers.strategy_text import parse_spaces

    need_file(path, "space-file")
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise refuse("space-file", f"cannot be read: {reason_of(error)}", str(path)) from None
    plans: dict[str, Callable[[Kernel], Plan]] = {}
    where: dict[str, str] = {}
    for space in parse_spaces(text, str(path)):
        plan = partial(best_of, space, machine=machine, mesh=mesh)
        plans |= dict.fromkeys(space.nodes, plan)
        where |= dict.fromkeys(space.nodes, space.where)
    return ByNode(plans, where, "space-node")


def best_of(
    space: ScheduleSpace, kernel: Kernel, machine: Machine, mesh: Mesh | None = None
) -> Plan:
    """The strategy that the machine's cost model finds fastest, the first of equals.

    ``Plan.candidates`` is the size of the space, ``Plan.priced`` how many of it fit. Refuses a
    space of which none does (``space-empty``), with the reason that most of them have.
    """
    size = count(space, kernel, machine, mesh)
    best: Plan | None = None
    reasons: Counter[str] = Counter()
    known: set[str] = set()
    for strategy in strategies(space, kernel, machine, mesh):
        if isinstance(strategy, TilewrightError):
            reasons[str(strategy.problems[0])] += 1
        elif (text := str(strategy)) not in known:
            known.add(text)
            plan = stated_plan(kernel, machine, strategy, "space", mesh)
            if best is None or plan.predicted_cycles < best.predicted_cycles:
                best = plan
    if best is None:
        reason = f"none of its {size:,} strategies fits {kernel.symbol}"
        often = reasons.most_common(1)
        raise refuse("space-empty", reason, space.where, often[0][0] if often else "")
    return replace(best, candidates=size, priced=len(known))


@contextmanager
def space(request: Request) -> Generator[ByNode]:
    """The planner of a file of strategies. Leaving the context raises an error if no planned kernel
    computes a node that the file names."""
    file = request.options.get("file")
    if not file:
        raise refuse("option-planner", "names no file of spaces", "space", "space{file=FILE}")
    mesh = request.mesh if request.mesh and request.mesh.cores == request.machine.cores else None
    planner = by_spaces(Path(file), request.machine, mesh)
    yield planner
    planner.check()

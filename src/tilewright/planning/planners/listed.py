"""The ``space`` planner: the best strategy of a space that the caller writes
(planning/planners/papers/strategies.py), for the nodes that it names; another planner for the
rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter

from tilewright.errors import TilewrightError, refuse
from tilewright.machine import Machine
from tilewright.planning.domain import Kernel
from tilewright.planning.plan import Plan, for_methods
from tilewright.planning.planners.papers.strategies import ScheduleSpace, count, strategies
from tilewright.planning.planners.papers.strategy_text import parse_spaces
from tilewright.planning.planners.stated import stated_plan
from tilewright.planning.space.mesh import Mesh


@dataclass
class Listed:
    """A planner of the kernels that compute the nodes of spaces."""

    spaces: Sequence[ScheduleSpace]
    machine: Machine
    mesh: Mesh | None = None
    otherwise: Callable[[Kernel], Plan | None] | None = None
    """The planner of the other kernels; None for the machine's cost model."""
    refused: list[TilewrightError] = field(default_factory=list[TilewrightError])
    met: set[str] = field(default_factory=set[str])
    """Nodes whose kernels were asked for."""

    @classmethod
    def read(cls, path: Path, machine: Machine, mesh: Mesh | None) -> Listed:
        """The planner of a file; refuses what is no file (``space-file``) or no space."""
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise refuse("space-file", f"cannot be read: {error}", str(path)) from None
        return cls(parse_spaces(text, str(path)), machine, mesh)

    def __call__(self, kernel: Kernel) -> Plan | None:
        """The best strategy, or what the other planner says."""
        space = self._space(kernel)
        if space is None:
            return None if self.otherwise is None else self.otherwise(kernel)
        self.met.update(node for node in space.nodes if node in kernel.nodes)
        try:
            return best_of(space, kernel, self.machine, self.mesh)
        except TilewrightError as error:
            self.refused.append(error)
            raise

    def methods(self, kernel: Kernel) -> Plan | None:
        """Plan a kernel for a pass that chooses methods: kernels that have a space have no other
        method than the one that it is for."""
        space = self._space(kernel)
        if space is not None:
            raise refuse("space-node", "a space already schedules it", space.where)
        asked = for_methods(self.otherwise)
        return None if asked is None else asked(kernel)

    def check(self) -> None:
        """Refuse, once a network is planned, what went wrong: a kernel, or a node of no kernel."""
        if self.refused:
            raise self.refused[0]
        for space in self.spaces:
            for node in space.nodes:
                if node not in self.met:
                    reason = f"no kernel that is planned computes {node}"
                    raise refuse("space-node", reason, space.where)

    def _space(self, kernel: Kernel) -> ScheduleSpace | None:
        return next((s for s in self.spaces if set(s.nodes) & set(kernel.nodes)), None)


def best_of(
    space: ScheduleSpace, kernel: Kernel, machine: Machine, mesh: Mesh | None = None
) -> Plan:
    """The strategy that the machine's cost model finds fastest, the first of equals.

    ``Plan.candidates`` is the size of the space, ``Plan.priced`` how many of it fit. Refuses a
    space of which none does (``space-empty``), with the reason that most of them have.
    """
    begin = perf_counter()
    size = count(space, kernel, machine, mesh)
    best: Plan | None = None
    reasons: Counter[str] = Counter()
    known: set[str] = set()
    for strategy in strategies(space, kernel, machine, mesh):
        if isinstance(strategy, TilewrightError):
            reasons[str(strategy.problems[0])] += 1
            continue
        text = str(strategy)
        if text in known:
            continue
        known.add(text)
        plan = stated_plan(kernel, machine, strategy, "space", mesh)
        if best is None or plan.predicted_cycles < best.predicted_cycles:
            best = plan
    if best is None:
        reason = f"none of its {size:,} strategies fits {kernel.symbol}"
        often = reasons.most_common(1)
        raise refuse("space-empty", reason, space.where, often[0][0] if often else "")
    return replace(best, candidates=size, priced=len(known), seconds=perf_counter() - begin)

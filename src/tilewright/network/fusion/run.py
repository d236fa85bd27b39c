"""The search as a whole: a network and a machine in, candidates with costs and plans out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.errors import Problem, TilewrightError
from tilewright.graph.dialect import KernelOp, NetworkOp
from tilewright.machine import Fusion, Machine
from tilewright.network.fusion.capacity import shortage
from tilewright.network.fusion.cost import CostOracle
from tilewright.network.fusion.embeddings import Candidate, candidates_of
from tilewright.network.fusion.graph import DependenceGraph, graph_of
from tilewright.network.fusion.plan import FusedGroup, FusionPlan
from tilewright.network.fusion.search import SEARCHES, Cover, Group, lower_bound
from tilewright.runtime.executable import Progress, quiet


@dataclass(frozen=True)
class PricedCandidate:
    """An embedding of a pattern, with its costs or the reason why it is not fused."""

    fusion: str
    kernels: tuple[str, ...]
    """Symbols, in the order of the network."""
    nodes: tuple[str, ...]
    """Nodes of the model."""
    apart: float | None
    """Cycles of the kernels apart; None where that was not asked, as they cannot be one."""
    fused: float | None
    """Cycles of the one kernel; None where there is none."""
    problem: Problem | None = None
    """Why it is no choice: it cannot be one kernel, or gains too little."""
    kept: int = 0
    """Of how many results between the kernels each tile leaves rows on the chip to the next."""

    def to_json(self) -> dict[str, Any]:
        """A JSON object for ``tilewright fuse --json``."""
        why = self.problem
        return {
            "fusion": self.fusion,
            "kernels": list(self.kernels),
            "nodes": list(self.nodes),
            "apart_cycles": self.apart,
            "fused_cycles": self.fused,
            "keeps_rows": self.kept,
            "problem": None
            if why is None
            else {"code": why.code, "where": why.where, "reason": why.reason, "help": why.help},
        }


@dataclass(frozen=True)
class FusionReport:
    """The results of the searches for a network's fusions."""

    kernels: int
    """Kernels of the accelerator."""
    candidates: tuple[PricedCandidate, ...]
    apart: float
    """Cycles of all kernels with nothing fused."""
    bound: float
    """No plan has fewer cycles."""
    plans: dict[str, FusionPlan]
    refused: dict[str, Problem]
    """Searches that gave up, and why."""

    def gap(self, search: str) -> float:
        """Return the fraction of a plan's cycles by which it may exceed the best plan."""
        cycles = self.plans[search].cycles
        return max(cycles - self.bound, 0.0) / cycles if cycles else 0.0

    def to_json(self) -> dict[str, Any]:
        """A JSON object for ``tilewright fuse --json``."""
        return {
            "kernels": self.kernels,
            "candidates": [candidate.to_json() for candidate in self.candidates],
            "apart_cycles": self.apart,
            "bound_cycles": self.bound,
            "plans": {
                name: plan.to_json() | {"gap": self.gap(name)} for name, plan in self.plans.items()
            },
            "refused": {name: str(problem) for name, problem in self.refused.items()},
        }


def search_fusions(
    network: NetworkOp,
    machine: Machine,
    oracle: CostOracle,
    searches: Sequence[str] = tuple(SEARCHES),
    fusions: Sequence[Fusion] | None = None,
    progress: Progress = quiet,
) -> FusionReport:
    """Search a network whose kernels are formed; it is left as it is.

    ``fusions`` are those of the machine unless others are given. Kernels that planning refuses
    alone cost nothing, fused or not, and are in no group. Without any fusion nothing is priced.
    """
    fusions = machine.fusions if fusions is None else fusions
    dependences = graph_of(network)
    if not fusions:
        count = sum(
            candidate is not None and not candidate.on_host for candidate in dependences.kernels
        )
        return FusionReport(count, (), 0.0, 0.0, {}, {})
    graph, kernels = dependences.graph, dependences.kernels
    alone: dict[int, float] = {}
    unplanned: dict[int, Problem] = {}
    for number, kernel in enumerate(kernels):
        progress("price kernels", number, len(kernels))
        if kernel is not None and not kernel.on_host:
            try:
                cost = oracle.cost([kernel])
            except TilewrightError as error:
                cost = error.problems[0]
            if isinstance(cost, Problem):
                unplanned[number] = cost
            else:
                alone[number] = cost

    def condition(candidate: Candidate) -> Problem | None:
        for vertex in candidate.vertices:
            if vertex in unplanned:
                return unplanned[vertex]
        return shortage(members_of(candidate, kernels), candidate.fusion, machine)

    candidates = candidates_of(graph, fusions, condition)
    priced: list[PricedCandidate] = []
    groups: list[Group] = []
    names: list[str] = []
    for number, candidate in enumerate(candidates):
        progress("price groups", number, len(candidates))
        result = _priced(candidate, graph, kernels, alone, oracle)
        priced.append(result)
        if result.fused is not None and result.problem is None:
            groups.append(Group(candidate.vertices, result.fused))
            names.append(candidate.fusion.name)
    costs = tuple(alone.get(number, 0.0) for number in range(len(kernels)))
    cover = Cover(graph, costs, tuple(groups))
    plans: dict[str, FusionPlan] = {}
    refused: dict[str, Problem] = {}
    for name in searches:
        try:
            selection = SEARCHES[name](cover)
        except TilewrightError as error:
            refused[name] = error.problems[0]
            continue
        taken = {number: cover.groups[number] for number in selection}
        inside = {vertex for group in taken.values() for vertex in group.vertices}
        plans[name] = FusionPlan(
            network.symbol.data,
            machine.name,
            name,
            tuple(
                FusedGroup(names[n], tuple(graph.nodes[v].name for v in group.vertices), group.cost)
                for n, group in taken.items()
            ),
            tuple((graph.nodes[n].name, own) for n, own in alone.items() if n not in inside),
        )
    bound = lower_bound(cover)
    return FusionReport(len(alone), tuple(priced), sum(costs), bound, plans, refused)


def members_of(candidate: Candidate, kernels: Sequence[KernelOp | None]) -> list[KernelOp]:
    """The kernels of a candidate, in the network's order."""
    members = [kernels[vertex] for vertex in candidate.vertices]
    return [kernel for kernel in members if kernel is not None]


def _priced(
    candidate: Candidate,
    graph: DependenceGraph,
    kernels: Sequence[KernelOp | None],
    alone: dict[int, float],
    oracle: CostOracle,
) -> PricedCandidate:
    nodes = [graph.nodes[vertex] for vertex in candidate.vertices]
    apart: float | None = None
    fused: float | None = None
    problem = candidate.problem
    if problem is None:
        apart = sum(alone[vertex] for vertex in candidate.vertices)
        cost = oracle.cost(members_of(candidate, kernels))
        if isinstance(cost, Problem):
            problem = cost
        else:
            fused = cost
            if fused >= candidate.fusion.gain * apart:
                share = "" if candidate.fusion.gain == 1 else f"{candidate.fusion.gain:.0%} of "
                problem = Problem(
                    "fusion-gain", f"one kernel does not take less than {share}the separate cycles"
                )
    return PricedCandidate(
        candidate.fusion.name,
        tuple(node.name for node in nodes),
        tuple(dict.fromkeys(name for node in nodes for name in node.nodes)),
        apart,
        fused,
        problem,
        oracle.kept.get(tuple(node.name for node in nodes), 0),
    )

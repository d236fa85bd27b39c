"""The search as a whole: a network and a machine in, candidates with costs and plans out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.errors import Problem, TilewrightError
from tilewright.graph.dialect import NetworkOp
from tilewright.machine import Fusion, Machine
from tilewright.network.fusion.capacity import shortage
from tilewright.network.fusion.cost import CostOracle
from tilewright.network.fusion.graph import Node, graph_of
from tilewright.network.fusion.matching import embeddings
from tilewright.network.fusion.plan import FusedGroup, FusionPlan
from tilewright.network.fusion.search import SEARCHES, Cover, Group
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
    """Cycles of the kernels without the fusion; None if the group cannot be one kernel."""
    fused: float | None
    """Cycles of the fused kernel; None if the group cannot be one kernel."""
    problem: Problem | None = None
    """The reason not to fuse: there is no such kernel, or it gains too little. None if it pays."""
    kept: int = 0
    """The number of results between the kernels of which each tile leaves rows on the chip to the
    next."""

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
    plans: dict[str, FusionPlan]

    def to_json(self) -> dict[str, Any]:
        """A JSON object for ``tilewright fuse --json``."""
        return {
            "kernels": self.kernels,
            "candidates": [candidate.to_json() for candidate in self.candidates],
            "apart_cycles": self.apart,
            "plans": {name: plan.to_json() for name, plan in self.plans.items()},
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
    graph = graph_of(network)
    kernels = [node.kernel for node in graph.nodes]
    if not fusions:
        count = sum(kernel is not None and not kernel.on_host for kernel in kernels)
        return FusionReport(count, (), 0.0, {})
    alone: dict[int, float | Problem] = {}
    for number, kernel in enumerate(kernels):
        progress("price kernels", number, len(kernels))
        if kernel is not None and not kernel.on_host:
            try:
                alone[number] = oracle.cost([kernel])
            except TilewrightError as error:
                alone[number] = error.problems[0]
    costs = {n: cost for n, cost in alone.items() if not isinstance(cost, Problem)}
    places = [(fusion, at) for fusion in fusions for at in embeddings(fusion.query, graph)]
    candidates: list[PricedCandidate] = []
    groups: list[Group] = []
    names: list[str] = []
    for number, (fusion, vertices) in enumerate(places):
        progress("price groups", number, len(places))
        nodes = [graph.nodes[vertex] for vertex in vertices]
        result = _priced(fusion, nodes, [alone.get(vertex) for vertex in vertices], oracle)
        candidates.append(result)
        if result.fused is not None and result.problem is None:
            groups.append(Group(vertices, result.fused))
            names.append(fusion.name)
    every = tuple(costs.get(number, 0.0) for number in range(len(kernels)))
    cover = Cover(graph, every, tuple(groups))
    plans: dict[str, FusionPlan] = {}
    for name in searches:
        taken = {number: groups[number] for number in SEARCHES[name](cover)}
        inside = {vertex for group in taken.values() for vertex in group.vertices}
        plans[name] = FusionPlan(
            network.symbol.data,
            machine.name,
            name,
            tuple(
                FusedGroup(names[n], tuple(graph.nodes[v].name for v in group.vertices), group.cost)
                for n, group in taken.items()
            ),
            tuple((graph.nodes[n].name, lone) for n, lone in costs.items() if n not in inside),
        )
    return FusionReport(len(costs), tuple(candidates), sum(every), plans)


def _priced(
    fusion: Fusion,
    nodes: Sequence[Node],
    alone: Sequence[float | Problem | None],
    oracle: CostOracle,
) -> PricedCandidate:
    """The candidate of some nodes, whose cycles are ``alone`` (None: they are no kernels of the
    accelerator)."""
    names = tuple(node.name for node in nodes)
    fixed = [Problem("fusion-fixed", node.fixed, node.name) for node in nodes if node.fixed]
    problems = [*fixed, *(cost for cost in alone if isinstance(cost, Problem))]
    kernels = [node.kernel for node in nodes if node.kernel is not None]
    problem = problems[0] if problems else shortage(kernels, fusion, oracle.machine)
    apart: float | None = None
    fused: float | None = None
    if problem is None:
        apart = sum(cost for cost in alone if cost is not None and not isinstance(cost, Problem))
        cost = oracle.cost(kernels)
        if isinstance(cost, Problem):
            problem = cost
        else:
            fused = cost
            if fused >= fusion.gain * apart:
                share = "" if fusion.gain == 1 else f"{fusion.gain:.0%} of "
                problem = Problem(
                    "fusion-gain", f"one kernel does not take less than {share}the separate cycles"
                )
    model_nodes = tuple(dict.fromkeys(name for node in nodes for name in node.nodes))
    kept = oracle.kept.get(names, 0)
    return PricedCandidate(fusion.name, names, model_nodes, apart, fused, problem, kept)

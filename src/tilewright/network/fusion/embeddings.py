"""Embeddings of a machine's patterns that are groups of kernels which could be one kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.errors import Problem
from tilewright.machine.model import Fusion
from tilewright.machine.patterns import parse_pattern
from tilewright.network.fusion.graph import DependenceGraph
from tilewright.network.fusion.matching import Embedding, embeddings


@dataclass(frozen=True)
class Candidate:
    """An embedding of a fusion's pattern, and the reason why it cannot be one kernel, if any."""

    fusion: Fusion
    embedding: Embedding
    problem: Problem | None = None

    @property
    def vertices(self) -> tuple[int, ...]:
        """The nodes of the graph, in its order."""
        return tuple(sorted(self.embedding))


Condition = Callable[[Candidate], Problem | None]
"""Why a candidate cannot be one kernel."""


def candidates_of(
    graph: DependenceGraph, fusions: Sequence[Fusion], condition: Condition | None = None
) -> list[Candidate]:
    """Every embedding of every fusion's pattern, in the machine's order and then the graph's.

    Candidates are refused (their ``problem`` says why) that hold views or kernels of the host, that
    are not convex, and for which ``condition`` gives a reason.
    """
    candidates: list[Candidate] = []
    for fusion in fusions:
        for embedding in embeddings(parse_pattern(fusion.query), graph):
            candidate = Candidate(fusion, embedding)
            problem = _fixed(graph, candidate) or _not_convex(graph, candidate)
            if problem is None and condition is not None:
                problem = condition(candidate)
            candidates.append(Candidate(fusion, embedding, problem))
    return candidates


def leaves_and_returns(graph: DependenceGraph, vertices: Sequence[int]) -> int:
    """The nodes outside of a group, as bits, on paths that leave it and return.

    A group is convex if there are none; otherwise it would wait for itself.
    """
    after = before = inside = 0
    for number in vertices:
        after |= graph.descendants[number]
        before |= graph.ancestors[number]
        inside |= 1 << number
    return after & before & ~inside


def _fixed(graph: DependenceGraph, candidate: Candidate) -> Problem | None:
    for number in candidate.vertices:
        node = graph.nodes[number]
        if node.fixed:
            return Problem("fusion-fixed", node.fixed, node.name)
    return None


def _not_convex(graph: DependenceGraph, candidate: Candidate) -> Problem | None:
    outside = leaves_and_returns(graph, candidate.vertices)
    if not outside:
        return None
    node = graph.nodes[(outside & -outside).bit_length() - 1]
    return Problem(
        "fusion-convex",
        "it reads a result of the group, and the group depends on its own result",
        node.name,
        "use a pattern that includes this node",
    )

"""The search for a pattern's occurrences in a dependence graph (DNNVM's Algorithm 1).

By backtracking, node after node of the chain that a pattern is: each must be of its vertex's kinds,
meet its conditions, and read the result of the node before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilewright.errors import refuse
from tilewright.machine.patterns import Pattern, parse_pattern
from tilewright.network.fusion.graph import DependenceGraph

Embedding = tuple[int, ...]
"""The node of each vertex of a pattern, in the pattern's order, which is the graph's."""

MOST_EMBEDDINGS = 20_000
"""Embeddings of one pattern that are looked at; real networks have some hundreds."""


def embeddings(query: str, graph: DependenceGraph) -> list[Embedding]:
    """All embeddings of a pattern, in a fixed order.

    The nodes may have further edges. Refuses (``fusion-many``) patterns with too many embeddings.
    """
    chains: list[Embedding] = []
    for chain in _chains((), range(len(graph.nodes)), parse_pattern(query), graph):
        chains.append(chain)
        if len(chains) > MOST_EMBEDDINGS:
            raise refuse(
                "fusion-many",
                f"the pattern occurs more than {MOST_EMBEDDINGS:,} times",
                query,
                "put conditions on its operations",
            )
    return chains


def _chains(
    before: Embedding, nodes: Iterable[int], pattern: Pattern, graph: DependenceGraph
) -> Iterator[Embedding]:
    """Every way to go on with a chain by one of some nodes, to the end of the pattern."""
    vertex, *rest = pattern
    for number in nodes:
        node, chain = graph.nodes[number], (*before, number)
        if vertex.matches(node.operation, node.properties):
            if rest:
                yield from _chains(chain, graph.successors[number], tuple(rest), graph)
            else:
                yield chain

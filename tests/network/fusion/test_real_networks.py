"""Matching and searching in the graphs of real networks."""

from itertools import product
from pathlib import Path
from random import Random

import pytest

from tests.network.fusion.kernel_networks import graph_of_benchmark
from tests.network.fusion.random_graphs import matches, symmetries
from tests.network.fusion.search.integer_program import solved
from tests.network.fusion.test_matching import orbit
from tilewright.machine import Fusion
from tilewright.machine.patterns import parse_pattern
from tilewright.network.fusion.embeddings import candidates_of
from tilewright.network.fusion.graph import DependenceGraph
from tilewright.network.fusion.matching import embeddings
from tilewright.network.fusion.search import SEARCHES, Cover, Group, lower_bound

PATTERNS = (
    "conv -> pool",
    "conv|depthwise -> add",
    "{conv, conv}",
    "conv -> conv[window=1]",
    "depthwise[window=3] -> conv[window=1, stride=1]",
    "pool -> conv[window=1]",
    "conv -> sum: add; conv -> sum",
    "conv -> conv -> conv",
)
FOUND = {
    "googlenet": {"{conv, conv}": 27},
    "resnet18": {"conv|depthwise -> add": 11, "conv -> sum: add; conv -> sum": 3},
    "mobilenet_v2": {"depthwise[window=3] -> conv[window=1, stride=1]": 17},
}


def by_hand(text: str, graph: DependenceGraph) -> set[frozenset[tuple[int, ...]]]:
    """All embeddings by trying every assignment of nodes of the right kinds."""
    template = parse_pattern(text)
    numbers = range(len(graph.nodes))
    kinds = [
        [n for n in numbers if graph.nodes[n].operation in vertex.operations]
        for vertex in template.vertices
    ]
    group = symmetries(template)
    return {
        orbit(image, group)
        for image in product(*kinds)
        if len(set(image)) == len(image)
        and all(
            # Cheap before thorough: the edges of chains.
            e.relation != "produces" or image[e.source] in graph.nodes[image[e.target]].reads
            for e in template.edges
        )
        and known(graph, image)
        and matches(template, graph, image)
    }


def known(graph: DependenceGraph, image: tuple[int, ...]) -> bool:
    """Whether the nodes read tensors of nodes alone, whose properties ``matches`` looks up."""
    return all(tensor >= 0 for node in image for tensor in graph.nodes[node].reads)


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_embeddings(name: str, tmp_path: Path) -> None:
    graph = graph_of_benchmark(name, tmp_path)
    counts: dict[str, int] = {}
    for text in PATTERNS:
        template = parse_pattern(text)
        found = [e for e in embeddings(template, graph) if known(graph, e)]
        assert {orbit(e, symmetries(template)) for e in found} == by_hand(text, graph), text
        counts[text] = len(found)
    assert counts | FOUND[name] == counts

    # Costs at random: the searches keep their order on the shape of the network, too.
    random = Random(1)
    fusions = [Fusion(name=f"f{n}", query=text) for n, text in enumerate(PATTERNS)]
    candidates = [c for c in candidates_of(graph, fusions) if c.problem is None]
    alone = tuple(float(random.randint(5, 20)) for _ in graph.nodes)
    groups = [
        Group(c.vertices, sum(alone[v] for v in c.vertices) * random.uniform(0.5, 1))
        for c in candidates
    ]
    cover = Cover(graph, alone, tuple(groups))
    costs = [cover.cost(SEARCHES[search](cover)) for search in ("exact", "paths", "greedy")]
    assert costs[0] == pytest.approx(solved(cover)[0])
    assert lower_bound(cover) <= costs[0] + 1e-6
    assert costs[0] <= costs[1] + 1e-9 and costs[1] <= costs[2] + 1e-9
    assert costs[0] < costs[2], "a first fusion keeps a better one away"

"""Matching and searching in the graphs of real networks."""

from itertools import product
from pathlib import Path
from random import Random

import pytest

from tests.network.fusion.kernel_networks import graph_of_benchmark
from tests.network.fusion.random_graphs import matches
from tests.network.fusion.search.integer_program import solved
from tests.network.fusion.search.problems import alone_read
from tilewright.machine.patterns import parse_pattern
from tilewright.network.fusion.graph import DependenceGraph
from tilewright.network.fusion.matching import embeddings
from tilewright.network.fusion.search import SEARCHES, Cover, Group

PATTERNS = (
    "conv -> pool",
    "conv|depthwise -> add",
    "conv -> conv[window=1]",
    "depthwise[window=3] -> conv[window=1, stride=1]",
    "pool -> conv[window=1]",
    "conv -> conv -> conv",
)
FOUND = {
    "googlenet": {"pool -> conv[window=1]": 18},
    "resnet18": {"conv|depthwise -> add": 11},
    "mobilenet_v2": {"depthwise[window=3] -> conv[window=1, stride=1]": 17},
}


def by_hand(text: str, graph: DependenceGraph) -> list[tuple[int, ...]]:
    """All embeddings by trying every assignment of nodes of the right kinds."""
    pattern = parse_pattern(text)
    kinds = [
        [n for n, node in enumerate(graph.nodes) if node.operation in vertex.operations]
        for vertex in pattern
    ]
    return sorted(image for image in product(*kinds) if matches(pattern, graph, image))


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_embeddings(name: str, tmp_path: Path) -> None:
    graph = graph_of_benchmark(name, tmp_path)
    counts: dict[str, int] = {}
    for text in PATTERNS:
        found = embeddings(text, graph)
        assert found == by_hand(text, graph), text
        counts[text] = len(found)
    assert counts | FOUND[name] == counts

    # Costs at random: the searches keep their order on the shape of the network, too.
    random = Random(1)
    chains = [c for text in PATTERNS for c in embeddings(text, graph) if alone_read(graph, c)]
    alone = tuple(float(random.randint(5, 20)) for _ in graph.nodes)
    groups = [
        Group(chain, sum(alone[v] for v in chain) * random.uniform(0.5, 1)) for chain in chains
    ]
    cover = Cover(graph, alone, tuple(groups))
    costs = [cover.cost(SEARCHES[search](cover)) for search in ("exact", "paths", "greedy")]
    assert costs[0] == pytest.approx(solved(cover)[0])
    assert costs[0] <= costs[1] + 1e-9 and costs[1] <= costs[2] + 1e-9
    # Where no two chains have a kernel in common, as in GoogLeNet, there is nothing to choose.
    disjoint = len({vertex for chain in chains for vertex in chain}) == sum(map(len, chains))
    assert disjoint == (name == "googlenet")
    assert disjoint or costs[0] < costs[2], "a first fusion keeps a better one away"

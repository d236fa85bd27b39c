"""Matching against brute force: every embedding, each once."""

from random import Random

import pytest

from tests.network.fusion.random_graphs import (
    all_embeddings,
    graph_of,
    random_graph,
    random_pattern,
)
from tilewright.errors import TilewrightError
from tilewright.network.fusion.graph import DependenceGraph
from tilewright.network.fusion.matching import embeddings


def compared(query: str, graph: DependenceGraph) -> int:
    found = embeddings(query, graph)
    assert found == sorted(all_embeddings(query, graph))
    return len(found)


@pytest.mark.few(1)
@pytest.mark.parametrize("part", range(4))
def test_random_graphs(part: int) -> None:
    random, found = Random(part), 0
    for _ in range(250):
        found += compared(random_pattern(random), random_graph(random, 9))
    assert found > 100


@pytest.mark.slow
def test_larger_random_graphs() -> None:
    random = Random(100)
    assert sum(compared(random_pattern(random), random_graph(random)) for _ in range(1000)) > 1500


def test_both_operands_of_a_sum() -> None:
    graph = graph_of(["conv", "conv", "add"], [(0, 2), (1, 2)])
    assert embeddings("conv -> add", graph) == [(0, 2), (1, 2)]


def test_extra_edges_are_allowed() -> None:
    graph = graph_of(["conv", "relu", "add"], [(0, 1), (1, 2), (0, 2)])
    assert embeddings("conv -> relu -> add", graph) == [(0, 1, 2)]


def test_a_long_chain_takes_no_time() -> None:
    count = 400
    graph = graph_of(["conv", "relu"] * count, [(n, n + 1) for n in range(2 * count - 1)])
    assert len(embeddings("conv -> relu -> conv -> relu", graph)) == count - 1


def test_patterns_that_occur_too_often_are_refused() -> None:
    layers, width = 4, 12
    edges = [
        (layer * width + source, (layer + 1) * width + target)
        for layer in range(layers - 1)
        for source in range(width)
        for target in range(width)
    ]
    graph = graph_of(["conv"] * layers * width, edges)
    assert len(embeddings("conv -> conv", graph)) == (layers - 1) * width**2
    with pytest.raises(TilewrightError) as caught:
        embeddings("conv -> conv -> conv -> conv", graph)
    (problem,) = caught.value.problems
    assert (problem.code, problem.where) == ("fusion-many", "conv -> conv -> conv -> conv")

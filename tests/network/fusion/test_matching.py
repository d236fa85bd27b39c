"""Algorithm 1 against brute force: every embedding, each once up to symmetry."""

from random import Random

import pytest

from tests.network.fusion.random_graphs import (
    all_embeddings,
    matches,
    random_graph,
    random_template,
    symmetries,
)
from tests.slow import few
from tilewright.errors import TilewrightError
from tilewright.machine.patterns import Template, parse_pattern
from tilewright.network.fusion.graph import DependenceGraph, Node
from tilewright.network.fusion.matching import embeddings


def orbit(image: tuple[int, ...], group: list[tuple[int, ...]]) -> frozenset[tuple[int, ...]]:
    return frozenset(tuple(image[to] for to in mapped) for mapped in group)


def compared(template: Template, graph: DependenceGraph) -> int:
    found = embeddings(template, graph)
    group = symmetries(template)
    want = {orbit(image, group) for image in all_embeddings(template, graph)}
    assert all(matches(template, graph, image) for image in found)
    orbits = [orbit(image, group) for image in found]
    assert len(set(orbits)) == len(orbits), "each once"
    assert set(orbits) == want
    return len(found)


@pytest.mark.parametrize("part", few(range(4), 1))
def test_random_graphs(part: int) -> None:
    random, found = Random(part), 0
    for _ in range(250):
        found += compared(random_template(random), random_graph(random, 9))
    assert found > 100


@pytest.mark.slow
def test_larger_random_graphs() -> None:
    random = Random(100)
    assert sum(compared(random_template(random), random_graph(random)) for _ in range(1000)) > 1500


def test_siblings_are_kept_once() -> None:
    graph = DependenceGraph.of(["relu", *["conv"] * 6], [(0, n) for n in range(1, 7)])
    assert len(embeddings(parse_pattern("{conv, conv, conv}"), graph)) == 20
    eight = DependenceGraph.of(["relu", *["conv"] * 8], [(0, n) for n in range(1, 9)])
    siblings = parse_pattern("{" + ", ".join(["conv"] * 8) + "}")
    assert embeddings(siblings, eight) == [tuple(range(1, 9))]


def test_both_operands_of_a_sum() -> None:
    graph = DependenceGraph.of(["conv", "conv", "add"], [(0, 2), (1, 2)])
    assert embeddings(parse_pattern("conv -> add"), graph) == [(0, 2), (1, 2)]
    # Vertices are numbered in the order of the text: a convolution, the sum, the other one.
    assert embeddings(parse_pattern("conv -> sum: add; conv -> sum"), graph) == [(0, 2, 1)]


def test_extra_edges_are_allowed() -> None:
    graph = DependenceGraph.of(["conv", "relu", "add"], [(0, 1), (1, 2), (0, 2)])
    assert embeddings(parse_pattern("conv -> relu -> add"), graph) == [(0, 1, 2)]


def test_network_inputs_are_shared() -> None:
    graph = DependenceGraph((Node("a", "conv", (-1,)), Node("b", "conv", (-1,))))
    assert embeddings(parse_pattern("{conv, conv}"), graph) == [(0, 1)]
    assert embeddings(parse_pattern("{conv, conv}[readers=3]"), graph) == []


def test_a_long_chain_takes_no_time() -> None:
    count = 400
    graph = DependenceGraph.of(["conv", "relu"] * count, [(n, n + 1) for n in range(2 * count - 1)])
    assert len(embeddings(parse_pattern("conv -> relu -> conv -> relu"), graph)) == count - 1


def test_patterns_that_occur_too_often_are_refused() -> None:
    graph = DependenceGraph.of(["relu", *["conv"] * 60], [(0, n) for n in range(1, 61)])
    assert len(embeddings(parse_pattern("{conv, conv}"), graph)) == 60 * 59 // 2
    with pytest.raises(TilewrightError) as caught:
        embeddings(parse_pattern("{conv, conv, conv, conv}"), graph)
    (problem,) = caught.value.problems
    assert (problem.code, problem.where) == ("fusion-many", "{conv, conv, conv, conv}")

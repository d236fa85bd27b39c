"""Convexity against every path, and what candidates are refused for."""

from random import Random

from tests.network.fusion.random_graphs import random_graph
from tilewright.machine import Fusion
from tilewright.network.fusion.embeddings import candidates_of, leaves_and_returns
from tilewright.network.fusion.graph import DependenceGraph, Node


def on_a_path(graph: DependenceGraph, group: set[int]) -> set[int]:
    """The nodes outside on a path from the group to the group, by walking all paths."""
    found: set[int] = set()

    def walk(number: int, outside: tuple[int, ...]) -> None:
        for reader in graph.successors[number]:
            if reader in group:
                found.update(outside)
            walk(reader, () if reader in group else (*outside, reader))

    for number in group:
        walk(number, ())
    return found


def test_convexity_is_that_of_all_paths() -> None:
    random, inside = Random(3), [0, 0]
    for _ in range(300):
        graph = random_graph(random, 9)
        numbers = range(len(graph.nodes))
        group = set(random.sample(numbers, random.randint(1, len(graph.nodes))))
        bits = leaves_and_returns(graph, sorted(group))
        assert {n for n in numbers if bits >> n & 1} == on_a_path(graph, group)
        inside[bool(bits)] += 1
    assert min(inside) > 30


def test_a_group_that_waits_for_itself() -> None:
    graph = DependenceGraph.of(["conv", "relu", "add"], [(0, 1), (1, 2), (0, 2)])
    fusion = Fusion(name="conv-add", query="conv -> add")
    (found,) = candidates_of(graph, [fusion])
    assert found.problem is not None
    assert (found.problem.code, found.problem.where) == ("fusion-convex", "relu1")


def test_views_and_kernels_of_the_host_stay_apart() -> None:
    graph = DependenceGraph(
        (Node("a", "conv"), Node("b", "relu", (0,), fixed="runs on the host: why"))
    )
    (found,) = candidates_of(graph, [Fusion(name="f", query="conv -> relu")])
    assert found.problem is not None
    assert str(found.problem) == "[fusion-fixed] b: runs on the host: why"

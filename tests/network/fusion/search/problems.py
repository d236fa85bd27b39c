"""Problems for the searches, and their best selections by trying all."""

from collections.abc import Sequence
from itertools import pairwise
from random import Random

from tests.network.fusion.random_graphs import graph_of, random_graph
from tilewright.network.fusion.graph import DependenceGraph
from tilewright.network.fusion.matching import embeddings
from tilewright.network.fusion.search import Cover, Group, Selection


def problem(
    edges: Sequence[tuple[int, int]],
    alone: Sequence[float],
    groups: dict[tuple[int, ...], float],
) -> Cover:
    graph = graph_of(["conv"] * len(alone), edges)
    return Cover(graph, tuple(alone), tuple(Group(v, cost) for v, cost in groups.items()))


def best(given: Cover) -> tuple[float, Selection]:
    """The least cost of all valid selections, group by group in or out, without any pruning."""
    least: tuple[float, Selection] = given.cost(()), ()

    def extend(first: int, taken: list[int], used: frozenset[int]) -> None:
        nonlocal least
        for number in range(first, len(given.groups)):
            vertices = given.groups[number].vertices
            if used.isdisjoint(vertices):
                selection = [*taken, number]
                least = min(least, (given.cost(selection), tuple(selection)))
                extend(number + 1, selection, used | set(vertices))

    extend(0, [], frozenset())
    return least


def contracted_runs(given: Cover, selection: Sequence[int]) -> bool:
    """Whether groups are disjoint and their contraction has no cycle: the closure of its edges
    holds no part twice."""
    taken = [v for n in selection for v in given.groups[n].vertices]
    part = {v: n for n in selection for v in given.groups[n].vertices}
    part = {v: part.get(v, -1 - v) for v in range(len(given.alone))}
    reach: dict[int, set[int]] = {one: set() for one in part.values()}
    for vertex, readers in enumerate(given.graph.successors):
        for other in readers:
            if part[other] != part[vertex]:
                reach[part[vertex]].add(part[other])
    for middle in list(reach):
        for one in reach:
            if middle in reach[one]:
                reach[one] |= reach[middle]
    return len(set(taken)) == len(taken) and all(one not in reach[one] for one in reach)


def alone_read(graph: DependenceGraph, chain: tuple[int, ...]) -> bool:
    """Whether each node of a chain alone reads the result of the one before."""
    return all(graph.successors[source] == (target,) for source, target in pairwise(chain))


def series_parallel(random: Random, most: int = 11) -> DependenceGraph:
    """A graph of chains, forks and joins, nested, as networks are."""
    edges: set[tuple[int, int]] = set()
    count = 1

    def grow(source: int, depth: int) -> int:
        """Nodes behind a source; returns the last."""
        nonlocal count
        if depth and random.random() < 0.6 and count < most - 4:
            ends = [grow(source, depth - 1) for _ in range(random.randint(2, 3))]
            join, count = count, count + 1
            edges.update((end, join) for end in ends)
            return join
        for _ in range(random.randint(1, 2)):
            if count < most:
                edges.add((source, count))
                source, count = count, count + 1
        return source

    last = grow(0, 2)
    while count < most - 2 and random.random() < 0.7:
        last = grow(last, 1)
    return graph_of(["conv"] * count, sorted(edges))


def random_problem(random: Random, graph: DependenceGraph | None = None, groups: int = 14) -> Cover:
    """Chains of a graph with costs below and above those of their nodes."""
    graph = graph or random_graph(random, 11)
    alone = tuple(float(random.randint(5, 20)) for _ in graph.nodes)
    queries = ("any -> any", "any -> any -> any")
    possible = [c for query in queries for c in embeddings(query, graph) if alone_read(graph, c)]
    random.shuffle(possible)
    costs = {
        vertices: sum(alone[v] for v in vertices) * random.choice((0.4, 0.6, 0.7, 0.9, 1.1))
        for vertices in sorted(possible[: random.randint(2, groups)])
    }
    return Cover(graph, alone, tuple(Group(v, cost) for v, cost in costs.items()))

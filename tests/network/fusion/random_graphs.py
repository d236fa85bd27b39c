"""Random dependence graphs and patterns, and the slow ways that the fast ones are compared with."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, permutations
from random import Random

from tilewright.machine.patterns import Pattern, Vertex, parse_pattern
from tilewright.network.fusion.graph import DependenceGraph, Node

OPERATIONS = ("conv", "max_pool", "add", "relu")

PATTERNS = (
    "conv -> max_pool",
    "conv|relu -> add",
    "conv -> conv -> relu",
    "any -> any -> add",
    "conv[readers=1] -> any",
    "any[inputs>=2] -> any[readers<=1]",
)


def graph_of(operations: Sequence[str], edges: Iterable[tuple[int, int]]) -> DependenceGraph:
    """A graph of operations; an edge is (what is read, who reads it)."""
    reads: list[set[int]] = [set() for _ in operations]
    for source, target in edges:
        reads[target].add(source)
    readers = [sum(number in sources for sources in reads) for number in range(len(operations))]
    return DependenceGraph(
        tuple(
            Node(
                f"{operation}{number}",
                operation,
                tuple(sorted(own)),
                {"inputs": len(own), "readers": readers[number]},
            )
            for number, (operation, own) in enumerate(zip(operations, reads, strict=True))
        )
    )


def random_graph(random: Random, most: int = 12) -> DependenceGraph:
    count = random.randint(most // 2, most)
    density = random.choice((0.15, 0.3, 0.6))
    edges = [(a, b) for b in range(count) for a in range(b) if random.random() < density]
    return graph_of([random.choice(OPERATIONS) for _ in range(count)], edges)


def random_pattern(random: Random) -> str:
    """A pattern of the list, or one of up to four vertices."""
    if random.random() < 0.5:
        return random.choice(PATTERNS)
    kinds = [random.choice((*OPERATIONS, "any", "any")) for _ in range(random.randint(2, 4))]
    return " -> ".join(kinds)


def matches(pattern: Pattern, graph: DependenceGraph, image: tuple[int, ...]) -> bool:
    """Whether an assignment is an embedding, condition by condition."""

    def meets(vertex: Vertex, node: Node) -> bool:
        return node.operation in vertex.operations and all(
            predicate.holds(node.properties.get(predicate.property, 1))
            for predicate in vertex.predicates
        )

    nodes = [graph.nodes[number] for number in image]
    return all(meets(v, node) for v, node in zip(pattern, nodes, strict=True)) and all(
        source in graph.nodes[target].reads for source, target in pairwise(image)
    )


def all_embeddings(query: str, graph: DependenceGraph) -> Iterator[tuple[int, ...]]:
    """Every assignment of different nodes that matches."""
    pattern = parse_pattern(query)
    for image in permutations(range(len(graph.nodes)), len(pattern)):
        if matches(pattern, graph, image):
            yield image

"""Random dependence graphs and patterns, and the slow ways that the fast ones are compared with."""

from collections.abc import Iterator
from itertools import permutations, product
from random import Random

from tilewright.machine.patterns import Edge, Template, Vertex, parse_pattern
from tilewright.network.fusion.graph import DependenceGraph

OPERATIONS = ("conv", "max_pool", "add", "relu")

PATTERNS = (
    "conv -> max_pool",
    "conv|relu -> add",
    "{conv, conv}",
    "conv -> conv -> relu",
    "left: any -> sum: add; any -> sum",
    "{one: conv, conv, relu}; one -> any",
    "top: any -> any -> bottom: add; top -> bottom",
    "conv -[readers=1]-> any",
    "any[inputs>=2] -> any[readers<=1]",
    "one: conv -> any; two: conv -> any; {one, two}",
)


def random_graph(random: Random, most: int = 12) -> DependenceGraph:
    count = random.randint(most // 2, most)
    density = random.choice((0.15, 0.3, 0.6))
    edges = [(a, b) for b in range(count) for a in range(b) if random.random() < density]
    return DependenceGraph.of([random.choice(OPERATIONS) for _ in range(count)], edges)


def random_template(random: Random) -> Template:
    """A pattern of the list, or a connected one of up to four vertices."""
    if random.random() < 0.5:
        return parse_pattern(random.choice(PATTERNS))
    count = random.randint(2, 4)
    kinds = [random.choice((*OPERATIONS, "any", "any")) for _ in range(count)]
    edges = [Edge(random.randrange(b), b) for b in range(1, count)]
    for a, b in product(range(count), repeat=2):
        if a < b and random.random() < 0.2:
            relation = random.choice(("produces", "shares input"))
            if not any((e.source, e.target, e.relation) == (a, b, relation) for e in edges):
                edges.append(Edge(a, b, relation))
    return Template(tuple(Vertex((kind,)) for kind in kinds), tuple(edges))


def matches(template: Template, graph: DependenceGraph, image: tuple[int, ...]) -> bool:
    """Whether an assignment is an embedding, condition by condition."""
    for vertex, node in zip(template.vertices, image, strict=True):
        if graph.nodes[node].operation not in vertex.operations:
            return False
        for predicate in vertex.predicates:
            if not predicate.holds(graph.nodes[node].properties.get(predicate.property, 1)):
                return False
    for edge in template.edges:
        source, target = image[edge.source], image[edge.target]
        if edge.relation == "produces":
            shared = {source} & set(graph.nodes[target].reads)
        else:
            shared = set(graph.nodes[source].reads) & set(graph.nodes[target].reads)
        if not any(
            all(
                predicate.holds(graph.nodes[tensor].properties[predicate.property])
                for predicate in edge.predicates
            )
            for tensor in shared
        ):
            return False
    return True


def all_embeddings(template: Template, graph: DependenceGraph) -> Iterator[tuple[int, ...]]:
    """Every assignment of different nodes that matches."""
    for image in permutations(range(len(graph.nodes)), len(template.vertices)):
        if matches(template, graph, image):
            yield image


def symmetries(template: Template) -> list[tuple[int, ...]]:
    """The permutations of a template's vertices that leave it what it is."""

    def facts(mapped: tuple[int, ...]) -> set[object]:
        return {
            (
                (mapped[e.source], mapped[e.target])
                if e.relation == "produces"
                else frozenset((mapped[e.source], mapped[e.target])),
                e.predicates,
            )
            for e in template.edges
        }

    count = len(template.vertices)
    same = facts(tuple(range(count)))
    return [
        mapped
        for mapped in permutations(range(count))
        if facts(mapped) == same
        and all(template.vertices[to] == template.vertices[n] for n, to in enumerate(mapped))
    ]

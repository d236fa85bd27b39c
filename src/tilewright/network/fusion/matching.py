"""The search for a pattern's occurrences in a dependence graph: DNNVM's Algorithm 1.

It is subgraph matching by backtracking, in the scheme that Lee, Han, Kasperovics and Lee give for
all such algorithms ("An in-depth comparison of subgraph isomorphism algorithms in graph databases",
2012): start with the vertex that the graph has fewest of, go on breadth first, take only
neighbours of what is matched, and join a node if all edges to matched vertices exist.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.errors import refuse
from tilewright.machine.patterns import Edge, Template
from tilewright.network.fusion.graph import DependenceGraph, Tensor

Embedding = tuple[int, ...]
"""The node of each vertex of a template, in the template's order."""

MOST_EMBEDDINGS = 20_000
"""Embeddings of one template that are looked at; real networks have some hundreds."""


def embeddings(template: Template, graph: DependenceGraph) -> list[Embedding]:
    """All embeddings of a template, in a fixed order.

    They are monomorphisms: the nodes may have further edges. Of those that differ by a symmetry of
    the template (two siblings exchanged) the first is given. Refuses (``fusion-many``) templates
    with too many.
    """
    distinct: list[Embedding] = []
    known: dict[frozenset[int], list[Embedding]] = {}
    for image in _Matcher(template, graph).run():
        alike = known.setdefault(frozenset(image), [])
        if not any(_symmetric(template, image, other) for other in alike):
            alike.append(image)
            distinct.append(image)
        if len(distinct) > MOST_EMBEDDINGS:
            raise refuse(
                "fusion-many",
                f"the pattern occurs more than {MOST_EMBEDDINGS:,} times",
                str(template),
                "put conditions on its operations",
            )
    return sorted(distinct)


class _Matcher:
    def __init__(self, template: Template, graph: DependenceGraph) -> None:
        self.template, self.graph = template, graph
        self.candidates = [self._candidates(number) for number in range(len(template.vertices))]
        self.edges: list[list[Edge]] = [
            [edge for edge in template.edges if number in (edge.source, edge.target)]
            for number in range(len(template.vertices))
        ]
        self.order = self._order()
        self.twins = self._twins()
        self.image: dict[int, int] = {}

    def run(self) -> Iterator[Embedding]:
        """Every embedding that respects the order of twins."""
        if all(self.candidates):
            yield from self._extend(0)

    def _candidates(self, vertex: int) -> frozenset[int]:
        """The nodes of a vertex's kinds that meet its conditions."""
        wanted = self.template.vertices[vertex]
        operations = wanted.operations
        return frozenset(
            number
            for number, node in enumerate(self.graph.nodes)
            if node.operation in operations
            and all(
                predicate.holds(self.graph.property_of(number, predicate.property))
                for predicate in wanted.predicates
            )
        )

    def _order(self) -> list[int]:
        """The rarest vertex, then breadth first."""
        rarity = [len(nodes) for nodes in self.candidates]
        order = [min(range(len(rarity)), key=lambda vertex: (rarity[vertex], vertex))]
        for vertex in order:
            for edge in self.edges[vertex]:
                other = edge.source + edge.target - vertex
                if other not in order:
                    order.append(other)
        return order

    def _twins(self) -> list[tuple[int, int]]:
        """Vertices that can be exchanged for one another: the first takes the lower node."""
        numbers = range(len(self.template.vertices))
        twins: list[tuple[int, int]] = []
        for first in numbers:
            for second in numbers[first + 1 :]:
                swapped = [{first: second, second: first}.get(number, number) for number in numbers]
                if _automorphism(self.template, swapped):
                    twins.append((first, second))
        return twins

    def _extend(self, depth: int) -> Iterator[Embedding]:
        if depth == len(self.order):
            yield tuple(self.image[vertex] for vertex in range(len(self.order)))
            return
        vertex = self.order[depth]
        for node in sorted(self._refined(vertex)):
            if self._joinable(vertex, node):
                self.image[vertex] = node
                yield from self._extend(depth + 1)
                del self.image[vertex]

    def _refined(self, vertex: int) -> frozenset[int]:
        """A vertex's candidates that are neighbours of the image of a matched neighbour."""
        nodes = self.candidates[vertex]
        for edge in self.edges[vertex]:
            other = edge.source + edge.target - vertex
            if other in self.image:
                nodes &= self._neighbours(self.image[other], edge, other == edge.source)
                break
        return nodes - set(self.image.values())

    def _neighbours(self, node: int, edge: Edge, source: bool) -> frozenset[int]:
        graph = self.graph
        if edge.relation == "produces":
            return frozenset((graph.successors if source else graph.predecessors)[node])
        return frozenset(
            reader for tensor in graph.nodes[node].reads for reader in graph.readers[tensor]
        )

    def _joinable(self, vertex: int, node: int) -> bool:
        """Return True if a node has all edges of its vertex to matched vertices, as conditioned."""
        for edge in self.edges[vertex]:
            ends = {**self.image, vertex: node}
            if edge.source in ends and edge.target in ends:
                tensors = self._tensors(edge, ends[edge.source], ends[edge.target])
                if not any(self._meets(edge, tensor) for tensor in tensors):
                    return False
        for lower, higher in self.twins:
            if vertex == higher and lower in self.image and self.image[lower] > node:
                return False
            if vertex == lower and higher in self.image and node > self.image[higher]:
                return False
        return True

    def _tensors(self, edge: Edge, source: int, target: int) -> Iterator[Tensor]:
        """The tensors that can be an edge's."""
        reads = self.graph.nodes[target].reads
        if edge.relation == "produces":
            yield from (tensor for tensor in reads if tensor == source)
        else:
            yield from (tensor for tensor in reads if tensor in self.graph.nodes[source].reads)

    def _meets(self, edge: Edge, tensor: Tensor) -> bool:
        return all(
            predicate.holds(self.graph.tensor_property(tensor, predicate.property))
            for predicate in edge.predicates
        )


def _symmetric(template: Template, first: Embedding, second: Embedding) -> bool:
    """Return True if two embeddings on the same nodes differ by a symmetry of the template."""
    place = {node: vertex for vertex, node in enumerate(second)}
    return _automorphism(template, [place[node] for node in first])


def _automorphism(template: Template, mapped: list[int]) -> bool:
    """Return True if a permutation of the vertices maps the template to itself."""
    vertices = template.vertices
    if any(vertices[to] != vertices[number] for number, to in enumerate(mapped)):
        return False
    return {_key(edge, mapped) for edge in template.edges} == {
        _key(edge, list(range(len(vertices)))) for edge in template.edges
    }


def _key(edge: Edge, mapped: list[int]) -> tuple[object, ...]:
    source, target = mapped[edge.source], mapped[edge.target]
    if edge.relation != "produces":
        source, target = min(source, target), max(source, target)
    return source, target, edge.relation, edge.predicates

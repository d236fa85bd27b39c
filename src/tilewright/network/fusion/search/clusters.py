"""Groups whose choice depends on one another; those of different clusters are chosen apart."""

from __future__ import annotations

from tilewright.network.fusion.search.cover import Cover, cycle


def clusters_of(cover: Cover) -> list[list[int]]:
    """The useful groups, divided so that any valid choices in each make a valid one in all.

    Groups that share a node are in one cluster. So are clusters that depend on one another in a
    circle, the nodes on the way included: outside of such circles, groups of different clusters
    cannot wait for one another.
    """
    owner = list(range(len(cover.alone)))

    def root(vertex: int) -> int:
        while owner[vertex] != vertex:
            owner[vertex] = owner[owner[vertex]]
            vertex = owner[vertex]
        return vertex

    for number in cover.useful:
        first, *others = cover.groups[number].vertices
        for vertex in others:
            owner[root(vertex)] = root(first)
    nodes = range(len(owner))
    while circle := cycle(cover.graph.predecessors, {node: root(node) for node in nodes}):
        first, *others = circle
        for vertex in others:
            owner[root(vertex)] = root(first)
    clusters: dict[int, list[int]] = {}
    for number in cover.useful:
        clusters.setdefault(root(cover.groups[number].vertices[0]), []).append(number)
    return list(clusters.values())

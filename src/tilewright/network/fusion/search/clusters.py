"""Groups whose choice depends on one another; those of different clusters are chosen apart."""

from __future__ import annotations

from tilewright.network.fusion.search.cover import Cover


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
    while circle := _circle(cover, [root(vertex) for vertex in range(len(owner))]):
        first, *others = circle
        for vertex in others:
            owner[root(vertex)] = root(first)
    found: dict[int, list[int]] = {}
    for number in cover.useful:
        found.setdefault(root(cover.groups[number].vertices[0]), []).append(number)
    return list(found.values())


def _circle(cover: Cover, part: list[int]) -> list[int]:
    """Parts of the nodes that depend on one another in a circle; none if there is no circle."""
    before: dict[int, set[int]] = {one: set() for one in part}
    for vertex, others in enumerate(cover.graph.predecessors):
        before[part[vertex]] |= {part[other] for other in others} - {part[vertex]}
    done = set[int]()
    for start in before:
        path: list[int] = []
        waiting = [(start, iter(sorted(before[start])))]
        if start in done:
            continue
        path.append(start)
        while waiting:
            one, others = waiting[-1]
            following = next((other for other in others if other not in done), None)
            if following is None:
                done.add(one)
                path.pop()
                waiting.pop()
            elif following in path:
                return path[path.index(following) :]
            else:
                path.append(following)
                waiting.append((following, iter(sorted(before[following]))))
    return []

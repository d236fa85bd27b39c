"""``exact``: the selection of least cost, by dynamic programming over the trees of chains."""

from __future__ import annotations

from itertools import pairwise

from tilewright.network.fusion.search.cover import Cover, Selection


def exact(cover: Cover) -> Selection:
    """Return the selection of least cost.

    The links within groups are those from a node to the only one that reads it, so they form trees,
    of which each node is the root of a smaller one. The least cost of a tree is the least over what
    can take its root: the node alone, or a group that ends there; and the rest of the tree is the
    smaller ones below that. Of choices that cost the same the longest group is taken, and of these
    the one of the latest nodes.
    """
    below: list[set[int]] = [set() for _ in cover.alone]
    ending: list[list[int]] = [[] for _ in cover.alone]
    for number in cover.useful:
        vertices = cover.groups[number].vertices
        ending[vertices[-1]].append(number)
        for source, target in pairwise(vertices):
            below[target].add(source)
    least: list[float] = []
    chosen: list[tuple[int, ...]] = []
    """For each node, the group that takes it as the root of its tree; () for none."""

    def rest(vertices: tuple[int, ...]) -> set[int]:
        """The roots of the smaller trees below some nodes of a tree."""
        return {v for vertex in vertices for v in below[vertex]}.difference(vertices)

    for vertex, alone in enumerate(cover.alone):
        groups = [(cover.groups[number].vertices, number) for number in ending[vertex]]
        groups.sort(key=lambda g: (-len(g[0]), [-v for v in g[0]], g[1]))
        choices: list[tuple[float, tuple[int, ...]]] = [
            (cover.groups[number].cost + sum(least[v] for v in sorted(rest(vertices))), (number,))
            for vertices, number in groups
        ]
        choices.append((alone + sum(least[v] for v in sorted(below[vertex])), ()))
        cost, choice = min(choices, key=lambda option: option[0])
        least.append(cost)
        chosen.append(choice)
    selection: list[int] = []
    roots = set(range(len(cover.alone))).difference(*below)
    while roots:
        root = roots.pop()
        selection += chosen[root]
        taken = [cover.groups[number].vertices for number in chosen[root]]
        roots |= rest(taken[0] if taken else (root,))
    return tuple(sorted(selection))

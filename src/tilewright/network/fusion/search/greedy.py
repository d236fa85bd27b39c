"""``greedy``: node by node in the graph's order, the group that saves most from there on."""

from __future__ import annotations

from tilewright.network.fusion.search.cover import Cover, Selection


def greedy(cover: Cover) -> Selection:
    """A selection; never worse than fusing nothing.

    At each node that is still free, of the groups that begin there, hold only free nodes and wait
    for none of those taken, the one that saves most is taken. It is what DNNVM (section 4.3, Fig.
    8b) compares with: a first fusion that saves little may keep a later one from saving much.
    """
    by_first: dict[int, list[int]] = {}
    for number in cover.useful:
        by_first.setdefault(cover.groups[number].vertices[0], []).append(number)
    taken: list[int] = []
    used = set[int]()
    for vertex in range(len(cover.alone)):
        if vertex in used:
            continue
        for number in sorted(by_first.get(vertex, ()), key=lambda n: (-cover.gain(n), n)):
            group = cover.groups[number]
            if used.isdisjoint(group.vertices) and cover.valid([*taken, number]):
                taken.append(number)
                used.update(group.vertices)
                break
    return tuple(sorted(taken))

"""``exact``: the selection of least cost, by dynamic programming over topological cuts."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.errors import refuse
from tilewright.network.fusion.search.clusters import clusters_of
from tilewright.network.fusion.search.cover import Cover, Selection

MOST_CUTS = 200_000
"""Cuts of one cluster that are looked at; real networks have few, as they are narrow."""


def exact(cover: Cover, most_cuts: int = MOST_CUTS) -> Selection:
    """The best selection. Refuses (``fusion-cuts``) graphs that are too wide.

    A valid selection can run node by node and group by group; what has run at any time is a cut: a
    set of nodes that holds all that its nodes depend on. So the best selection is the cheapest way
    from the empty cut to the whole graph by steps of one node or one group, and no selection that
    waits for itself is on any way. Clusters of groups are solved one by one (clusters.py).
    """
    selection: list[int] = []
    for cluster in clusters_of(cover):
        selection += _Cuts(cover, cluster, most_cuts).best()
    return tuple(sorted(selection))


class _Cuts:
    """The cuts of one cluster, as bits of its nodes."""

    def __init__(self, cover: Cover, cluster: list[int], most_cuts: int) -> None:
        self.cover, self.most_cuts = cover, most_cuts
        inside = {v for number in cluster for v in cover.groups[number].vertices}
        members = sum(1 << vertex for vertex in inside)
        graph = cover.graph
        # Nodes between those of the groups order them, too.
        between = [
            vertex
            for vertex in range(len(cover.alone))
            if vertex in inside
            or (graph.ancestors[vertex] & members and graph.descendants[vertex] & members)
        ]
        place = {vertex: bit for bit, vertex in enumerate(between)}
        self.vertices = between
        self.whole = (1 << len(between)) - 1
        self.before = [
            sum(1 << place[other] for other in graph.predecessors[vertex] if other in place)
            for vertex in between
        ]
        self.plain = [bit for bit, vertex in enumerate(between) if vertex not in inside]
        self.steps: list[tuple[int, int, float, int]] = []
        """Nodes of a step, nodes that it waits for, its cost, and its group, or -1."""
        for vertex in sorted(inside):
            bit = place[vertex]
            self.steps.append((1 << bit, self.before[bit], cover.alone[vertex], -1))
        for number in cluster:
            bits = [place[vertex] for vertex in cover.groups[number].vertices]
            nodes = sum(1 << bit for bit in bits)
            waits = 0
            for bit in bits:
                waits |= self.before[bit]
            self.steps.append((nodes, waits & ~nodes, cover.groups[number].cost, number))

    def best(self) -> Iterator[int]:
        """The groups of the cheapest way."""
        start = self.closed(0)
        costs: dict[int, float] = {start: 0.0}
        came: dict[int, tuple[int, int]] = {}
        layers: list[list[int]] = [[] for _ in range(len(self.vertices) + 1)]
        layers[start.bit_count()].append(start)
        for layer in layers:
            for cut in layer:
                cost = costs[cut]
                for nodes, waits, price, group in self.steps:
                    if cut & nodes or waits & ~cut:
                        continue
                    after = self.closed(cut | nodes)
                    if after not in costs:
                        layers[after.bit_count()].append(after)
                    elif cost + price >= costs[after]:
                        continue
                    costs[after] = cost + price
                    came[after] = cut, group
                if len(costs) > self.most_cuts:
                    raise refuse(
                        "fusion-cuts",
                        f"the search looks at more than {self.most_cuts:,} cuts of a part of "
                        f"{len(self.vertices)} kernels",
                        help="search with paths, or give fewer patterns",
                    )
        cut = self.whole
        while cut != start:
            cut, group = came[cut]
            if group >= 0:
                yield group

    def closed(self, cut: int) -> int:
        """A cut with the nodes of no group that can run: they never need to wait."""
        for bit in self.plain:
            if not cut >> bit & 1 and not self.before[bit] & ~cut:
                cut |= 1 << bit
        return cut

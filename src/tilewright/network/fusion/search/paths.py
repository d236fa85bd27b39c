"""``paths``: shortest paths between barriers, with what joins at them: DNNVM's Algorithm 2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from tilewright.network.fusion.search.cover import Cover, Selection
from tilewright.network.fusion.search.greedy import greedy


def paths(cover: Cover) -> Selection:
    """A selection by the paper's method (section 5.2); the greedy one where that costs less.

    Nodes and edges change places: tensors are nodes, and a node of the network is an edge from what
    it reads to what it gives, as is every group. Tensors with several readers, and nodes that read
    several tensors, are barriers. Between two barriers lies a chain of nodes; its shortest path
    says which groups are taken. At a node that reads several tensors it may be taken by the end of
    one of the chains that lead to it; the edges by which the others reach it are cut then, as it is
    computed once. (The paper's groups of siblings are no kernels here.)

    Barriers are decided one after the other. So it is not always the best: a chain that begins at
    one barrier and ends at another is decided twice, and groups that pass a barrier are not looked
    at.
    """
    selection = _Chains(cover).selection()
    # What passes one barrier after the other may have cost more than it seemed to.
    other = greedy(cover)
    return selection if cover.cost(selection) <= cover.cost(other) else other


@dataclass(frozen=True)
class _Join:
    """A group at a barrier: the node that reads several tensors, taken by the end of a chain."""

    group: int
    node: int
    chain: int
    taken: int
    """Nodes at the chain's end that the group holds."""


@dataclass
class _Chains:
    """The chains between barriers, and the decisions on them so far."""

    cover: Cover
    heads: set[int] = field(default_factory=set[int])
    """Chains whose first node a group at a barrier holds."""
    tails: dict[int, int] = field(default_factory=dict[int, int])
    """Chains of which such a group holds nodes at the end, and how many."""

    def __post_init__(self) -> None:
        self.chains = list(_chains(self.cover))
        self.place = {
            vertex: (number, position)
            for number, chain in enumerate(self.chains)
            for position, vertex in enumerate(chain)
        }
        self.edges: list[dict[tuple[int, int], int]] = [{} for _ in self.chains]
        """For each chain, the cheapest groups by the positions from and to which they lead."""
        self.joins: dict[int, list[_Join]] = {}
        """For nodes that read several tensors, the groups that take them into a chain."""
        for number in self.cover.useful:
            self._sort(number)

    def _sort(self, number: int) -> None:
        """Find out of which kind a group is."""
        groups = self.cover.groups
        *rest, last = groups[number].vertices
        chain, start = self.place[rest[0]]
        stop = start + len(rest)
        if self.chains[chain][start:stop] != rest:
            return
        if self.place[last] == (chain, stop):
            known = self.edges[chain].get((start, stop + 1))
            if known is None or groups[number].cost < groups[known].cost:
                self.edges[chain][start, stop + 1] = number
        elif stop == len(self.chains[chain]):
            self.joins.setdefault(last, []).append(_Join(number, last, chain, len(rest)))

    def selection(self) -> Selection:
        """The groups at all barriers, and those of the shortest paths of all chains."""
        taken = [group for node in sorted(self.joins) for group in self._decide(self.joins[node])]
        for chain in range(len(self.chains)):
            taken += self._shortest(chain)[1]
        taken.sort(key=lambda number: (-self.cover.gain(number), number))
        return self.cover.first_disjoint(taken)

    def _decide(self, joins: Sequence[_Join]) -> list[int]:
        """Let the group at a barrier that saves most take its node, if any saves anything; the
        first of equal ones."""
        best, least = None, 0.0
        for join in joins:
            if join.chain in self.tails:
                continue
            head = self.place[join.node][0]
            before = sum(self._shortest(chain)[0] for chain in {head, join.chain})
            self.heads.add(head)
            self.tails[join.chain] = join.taken
            after = sum(self._shortest(chain)[0] for chain in {head, join.chain})
            self.heads.remove(head)
            del self.tails[join.chain]
            added = self.cover.groups[join.group].cost + after - before
            if added < least:
                best, least = join, added
        if best is None:
            return []
        self.heads.add(self.place[best.node][0])
        self.tails[best.chain] = best.taken
        return [best.group]

    def _shortest(self, number: int) -> tuple[float, list[int]]:
        """Length of a chain's shortest path between what barriers took, and its groups."""
        chain = self.chains[number]
        start = 1 if number in self.heads else 0
        stop = len(chain) - self.tails.get(number, 0)
        if stop < start:
            return inf, []
        best: list[tuple[float, list[int]]] = [(inf, [])] * (len(chain) + 1)
        best[start] = 0.0, []
        for position in range(start, stop):
            length, groups = best[position]
            alone = length + self.cover.alone[chain[position]], groups
            best[position + 1] = min(best[position + 1], alone, key=lambda path: path[0])
            for (begin, end), group in self.edges[number].items():
                if begin == position and end <= stop:
                    path = length + self.cover.groups[group].cost, [*groups, group]
                    best[end] = min(best[end], path, key=lambda path: path[0])
        return best[stop]


def _chains(cover: Cover) -> Iterator[list[int]]:
    """The nodes between barriers: each but the first reads what the one before gives it alone."""
    graph = cover.graph
    following: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        alone = len(node.reads) == 1 and node.reads[0] >= 0
        if alone and len(graph.successors[node.reads[0]]) == 1:
            following[node.reads[0]] = number
    inside = set(following.values())
    for number in range(len(graph.nodes)):
        if number not in inside:
            chain = [number]
            while chain[-1] in following:
                chain.append(following[chain[-1]])
            yield chain

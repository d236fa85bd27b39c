"""``paths``: shortest paths between barriers, with what joins at them: DNNVM's Algorithm 2."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import inf, prod

from tilewright.network.fusion.graph import Tensor
from tilewright.network.fusion.search.cover import Cover, Selection
from tilewright.network.fusion.search.greedy import greedy

MOST_CASES = 4096
"""Combinations of special cases that are looked at together; beyond, barrier by barrier."""


def paths(cover: Cover) -> Selection:
    """A selection by the paper's method (section 5.2); the greedy one where that costs less.

    Nodes and edges change places: tensors are nodes, and a node of the network is an edge from what
    it reads to what it gives, as is every group that is a chain. Tensors with several readers, and
    nodes that read several tensors, are barriers. Between two barriers lies a chain of nodes; its
    shortest path says which groups are taken. At the barriers groups of two further kinds join:

    - a node that reads several tensors, taken by the end of one of the chains that lead to it; the
      edges by which the others reach it are cut then, as it is computed once;
    - first nodes of chains that read one tensor (siblings); their own edges are cut.

    A fork and the joins that its chains lead to are decided together, over all cases; regions one
    after the other. So it is not always the best: a chain that begins at one region's join and ends
    at another's is decided twice, and groups of other forms are not looked at.
    """
    selection = _Regions(cover).selection()
    # What passes one barrier after the other may have cost more than it seemed to.
    other = greedy(cover)
    return selection if cover.cost(selection) <= cover.cost(other) else other


@dataclass(frozen=True)
class _Case:
    """A special case at a barrier: groups, with what they take away from chains."""

    groups: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    """Chains whose first node they hold."""
    tails: tuple[tuple[int, int], ...] = ()
    """Chains of which they hold nodes at the end, and how many."""


@dataclass
class _State:
    """The decisions about the chains so far."""

    heads: set[int] = field(default_factory=set[int])
    tails: dict[int, int] = field(default_factory=dict[int, int])
    groups: list[int] = field(default_factory=list[int])

    def with_case(self, case: _Case) -> _State | None:
        """The state with one case more; None if both take the same nodes."""
        if self.heads.intersection(case.heads) or any(c in self.tails for c, _ in case.tails):
            return None
        return _State(
            self.heads | set(case.heads),
            self.tails | dict(case.tails),
            [*self.groups, *case.groups],
        )


class _Regions:
    def __init__(self, cover: Cover) -> None:
        self.cover = cover
        self.chains = list(_chains(cover))
        self.place = {
            vertex: (number, position)
            for number, chain in enumerate(self.chains)
            for position, vertex in enumerate(chain)
        }
        self.edges: list[dict[tuple[int, int], int]] = [{} for _ in self.chains]
        """Of each chain: from and to which position a group leads; of several the cheapest."""
        self.joins: dict[int, list[_Case]] = {}
        """Of nodes that read several tensors, those that take them into a chain."""
        self.forks: dict[Tensor, list[_Case]] = {}
        """Of tensors, the siblings that read them."""
        for number in cover.useful:
            self._sort(number)

    def _sort(self, number: int) -> None:
        """Find out of which kind a group is."""
        vertices = self.cover.groups[number].vertices
        places = [self.place[vertex] for vertex in vertices]
        reads = [self.cover.graph.nodes[vertex].reads for vertex in vertices]
        shared = set(reads[0]).intersection(*reads[1:])
        if (run := self._run(vertices)) is not None:
            chain, start, stop = run
            known = self.edges[chain].get((start, stop))
            groups = self.cover.groups
            if known is None or groups[number].cost < groups[known].cost:
                self.edges[chain][start, stop] = number
        elif shared and all(position == 0 for _, position in places):
            heads = tuple(chain for chain, _ in places)
            self.forks.setdefault(min(shared), []).append(_Case((number,), heads))
        else:
            *rest, last = vertices
            run = self._run(rest)
            joined = self.place[last]
            if run is not None and joined[1] == 0 and len(reads[-1]) > 1:
                chain, start, stop = run
                if stop == len(self.chains[chain]) and self.chains[chain][-1] in reads[-1]:
                    tail = ((chain, stop - start),)
                    case = _Case((number,), (joined[0],), tail)
                    self.joins.setdefault(last, []).append(case)

    def _run(self, vertices: Sequence[int]) -> tuple[int, int, int] | None:
        """Chain, first and last position of nodes that stand side by side in one chain."""
        chain, start = self.place[vertices[0]]
        wanted = [(chain, start + step) for step in range(len(vertices))]
        if [self.place[vertex] for vertex in vertices] != wanted:
            return None
        return chain, start, start + len(vertices)

    def selection(self) -> Selection:
        """The groups of all regions, and of the shortest paths of all chains."""
        state = _State()
        for region in self._regions():
            if prod(len(cases) for cases in region) <= MOST_CASES:
                state = self._decide(state, product(*region))
            else:
                for cases in region:
                    state = self._decide(state, product(cases))
        taken = list(state.groups)
        for chain in range(len(self.chains)):
            taken += self._shortest(chain, state)[1]
        taken.sort(key=lambda number: (-self.cover.gain(number), number))
        return tuple(sorted(self.cover.first_valid(taken)))

    def _regions(self) -> Iterator[list[list[_Case]]]:
        """The cases of barriers that are decided together, in the order of their first nodes."""
        graph = self.cover.graph
        owner: dict[tuple[str, int], tuple[str, int]] = {}

        def root(barrier: tuple[str, int]) -> tuple[str, int]:
            owner.setdefault(barrier, barrier)
            while owner[barrier] != barrier:
                barrier = owner[barrier]
            return barrier

        cases: dict[tuple[str, int], list[_Case]] = {}
        for tensor, siblings in self.forks.items():
            cases["fork", tensor] = list(_disjoint(siblings))
        for vertex, chains in self.joins.items():
            cases["join", vertex] = [_Case(), *chains]
        for barrier in cases:
            root(barrier)
        for chain in self.chains:
            around = [("fork", tensor) for tensor in graph.nodes[chain[0]].reads]
            around += [("join", reader) for reader in graph.successors[chain[-1]]]
            first, *others = [root(barrier) for barrier in around if barrier in cases] or [("", 0)]
            for other in others:
                owner[other] = first
        regions: dict[tuple[str, int], list[tuple[str, int]]] = {}
        for barrier in sorted(cases, key=lambda barrier: barrier[::-1]):
            regions.setdefault(root(barrier), []).append(barrier)
        for barriers in regions.values():
            yield [cases[barrier] for barrier in barriers]

    def _decide(self, state: _State, choices: Iterable[Sequence[_Case]]) -> _State:
        """The state with the choice that makes all chains shortest; the first of equal ones."""
        best, least = state, 0.0
        for cases in choices:
            following: _State | None = state
            for case in cases:
                following = None if following is None else following.with_case(case)
            if following is None:
                continue
            touched = {c for case in cases for c in (*case.heads, *(c for c, _ in case.tails))}
            added = sum(self.cover.groups[n].cost for case in cases for n in case.groups)
            after = sum(self._shortest(chain, following)[0] for chain in touched)
            before = sum(self._shortest(chain, state)[0] for chain in touched)
            if added + after - before < least:
                best, least = following, added + after - before
        return best

    def _shortest(self, number: int, state: _State) -> tuple[float, list[int]]:
        """Length of a chain's shortest path between what barriers took, and its groups."""
        chain = self.chains[number]
        start = 1 if number in state.heads else 0
        stop = len(chain) - state.tails.get(number, 0)
        if stop < start:
            return inf, []
        lengths = [inf] * (len(chain) + 1)
        came: list[int | None] = [None] * (len(chain) + 1)
        lengths[start] = 0.0
        for position in range(start, stop):
            alone = lengths[position] + self.cover.alone[chain[position]]
            if alone < lengths[position + 1]:
                lengths[position + 1], came[position + 1] = alone, None
            for (begin, end), group in self.edges[number].items():
                length = lengths[position] + self.cover.groups[group].cost
                if begin == position and end <= stop and length < lengths[end]:
                    lengths[end], came[end] = length, group
        groups: list[int] = []
        position = stop
        while position > start:
            group = came[position]
            if group is None:
                position -= 1
            else:
                groups.append(group)
                position -= len(self.cover.groups[group].vertices)
        return lengths[stop], groups


def _chains(cover: Cover) -> Iterator[list[int]]:
    """The nodes between barriers: each but the first reads what the one before gives it alone."""
    graph = cover.graph
    following: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        if len(node.reads) == 1 and len(graph.readers[node.reads[0]]) == 1 and node.reads[0] >= 0:
            following[node.reads[0]] = number
    inside = set(following.values())
    for number in range(len(graph.nodes)):
        if number not in inside:
            chain = [number]
            while chain[-1] in following:
                chain.append(following[chain[-1]])
            yield chain


def _disjoint(cases: Sequence[_Case]) -> Iterator[_Case]:
    """Every choice of siblings without a chain in common, nothing first; at most MOST_CASES."""
    disjoint = [_Case()]
    for case in cases:
        for known in list(disjoint):
            if len(disjoint) < MOST_CASES and not set(known.heads).intersection(case.heads):
                disjoint.append(_Case(known.groups + case.groups, known.heads + case.heads))
    yield from disjoint

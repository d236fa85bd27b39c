"""The problem that searches solve: which groups to take, so that all nodes together cost least."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from tilewright.network.fusion.graph import DependenceGraph

Selection = tuple[int, ...]
"""The groups taken, by their numbers, ascending; all other nodes stay alone."""


@dataclass(frozen=True)
class Group:
    """Nodes that can be computed as one, and what that costs."""

    vertices: tuple[int, ...]
    """Ascending."""
    cost: float


@dataclass(frozen=True)
class Cover:
    """A graph, the cost of each node alone, and convex groups of nodes with theirs.

    A selection is valid if its groups have no node in common, and no two or more of them wait for
    one another.
    """

    graph: DependenceGraph
    alone: tuple[float, ...]
    groups: tuple[Group, ...]

    def cost(self, selection: Iterable[int]) -> float:
        """The cost of a selection and of all nodes that stay alone."""
        taken = [self.groups[number] for number in selection]
        fused = {vertex for group in taken for vertex in group.vertices}
        # Added in one order whatever the search, so that equal selections cost the same.
        rest = [cost for vertex, cost in enumerate(self.alone) if vertex not in fused]
        return sum(rest) + sum(group.cost for group in taken)

    def apart(self, number: int) -> float:
        """Return the cycles of a group's nodes as kernels of their own."""
        return sum(self.alone[vertex] for vertex in self.groups[number].vertices)

    def gain(self, number: int) -> float:
        """Return the cycles that fusing a group saves."""
        return self.apart(number) - self.groups[number].cost

    @cached_property
    def useful(self) -> tuple[int, ...]:
        """The groups that save anything: no best selection needs another."""
        return tuple(number for number in range(len(self.groups)) if self.gain(number) > 0)

    def valid(self, selection: Sequence[int]) -> bool:
        """Return True if the groups are disjoint and contracting them leaves no cycle."""
        owner: dict[int, int] = {}
        for number in selection:
            for vertex in self.groups[number].vertices:
                if vertex in owner:
                    return False
                owner[vertex] = number
        return not cycle(self.graph.predecessors, owner)

    def first_valid(self, wanted: Iterable[int], taken: Sequence[int] = ()) -> list[int]:
        """``taken``, and those wanted, one after the other, that leave the selection valid."""
        selection = list(taken)
        for number in wanted:
            if self.valid([*selection, number]):
                selection.append(number)
        return selection


def cycle(predecessors: Sequence[Sequence[int]], owners: Mapping[int, int]) -> list[int]:
    """Owners that wait for one another, the last for the first; empty if there are none.

    Nodes without an owner stand for themselves, as ``-1 - node``.
    """
    owner_of = [owners.get(node, -1 - node) for node in range(len(predecessors))]
    waits: dict[int, set[int]] = {owner: set() for owner in owner_of}
    for node, sources in enumerate(predecessors):
        waits[owner_of[node]].update(owner_of[source] for source in sources)
        waits[owner_of[node]].discard(owner_of[node])
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        return error.args[1][1:]
    return []

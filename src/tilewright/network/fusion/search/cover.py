"""The problem that searches solve: which groups to take, so that all nodes together cost least."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

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
        """What the nodes of a group cost alone."""
        return sum(self.alone[vertex] for vertex in self.groups[number].vertices)

    def gain(self, number: int) -> float:
        """What a group saves."""
        return self.apart(number) - self.groups[number].cost

    @cached_property
    def useful(self) -> tuple[int, ...]:
        """The groups that save anything: no best selection needs another."""
        return tuple(number for number in range(len(self.groups)) if self.gain(number) > 0)

    def valid(self, selection: Sequence[int]) -> bool:
        """Whether the groups are disjoint, and their contraction has no cycle."""
        owner: dict[int, int] = {}
        for number in selection:
            for vertex in self.groups[number].vertices:
                if vertex in owner:
                    return False
                owner[vertex] = number
        return runs(self.graph.predecessors, owner)

    def first_valid(self, wanted: Iterable[int], taken: Sequence[int] = ()) -> list[int]:
        """``taken``, and those wanted, one after the other, that leave the selection valid."""
        found = list(taken)
        for number in wanted:
            if self.valid([*found, number]):
                found.append(number)
        return found


def runs(predecessors: Sequence[Sequence[int]], owner: dict[int, int]) -> bool:
    """Whether nodes can run in some order, those of one owner together."""
    count = len(predecessors)
    part = {vertex: owner.get(vertex, -1 - vertex) for vertex in range(count)}
    before: dict[int, set[int]] = {one: set() for one in part.values()}
    for vertex in range(count):
        before[part[vertex]] |= {part[other] for other in predecessors[vertex]}
    behind: dict[int, list[int]] = {one: [] for one in before}
    left: dict[int, int] = {}
    for one, others in before.items():
        others.discard(one)
        left[one] = len(others)
        for other in others:
            behind[other].append(one)
    free = [one for one, waits in left.items() if not waits]
    for one in free:
        for other in behind[one]:
            left[other] -= 1
            if not left[other]:
                free.append(other)
    return len(free) == len(before)

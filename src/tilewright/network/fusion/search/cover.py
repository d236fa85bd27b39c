"""The problem that searches solve: which groups to take, so that all nodes together cost least."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from tilewright.network.fusion.graph import DependenceGraph

Selection = tuple[int, ...]
"""The groups taken, by their numbers, ascending; all other nodes stay alone."""


@dataclass(frozen=True)
class Group:
    """Nodes that can be computed as one, and what that costs.

    They are a chain, of which each node alone reads the result of the one before: so no groups wait
    for one another, whatever is taken.
    """

    vertices: tuple[int, ...]
    """Numbers of the group's nodes, ascending."""
    cost: float


@dataclass(frozen=True)
class Cover:
    """A graph, the cost of each node alone, and groups of nodes with theirs.

    A selection is valid if its groups have no node in common.
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

    def gain(self, number: int) -> float:
        """Return the cycles that fusing a group saves."""
        group = self.groups[number]
        return sum(self.alone[vertex] for vertex in group.vertices) - group.cost

    @cached_property
    def useful(self) -> tuple[int, ...]:
        """The groups that save anything: no best selection needs another."""
        return tuple(number for number in range(len(self.groups)) if self.gain(number) > 0)

    def first_disjoint(self, wanted: Iterable[int]) -> Selection:
        """The groups wanted, in order, without groups that hold a node of an earlier one."""
        taken, used = list[int](), set[int]()
        for number in wanted:
            vertices = self.groups[number].vertices
            if used.isdisjoint(vertices):
                taken.append(number)
                used.update(vertices)
        return tuple(sorted(taken))

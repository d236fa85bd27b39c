"""The cost of stages after a kernel's tiles: rows that are read and rewritten in place.

A block of rows of the result is complete when the loops over what it waits for have ended
(``Kernel.awaited``). Then its rows are normalised in place. What a cache still has of the block is
not fetched again: all that the tiles touched has passed the first cache meanwhile, of the others
weights leave the result there (cost.py). As a kernel of its own the same work reads the
whole result, when all of it has been written, and writes it to another place, which is fetched
first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.machine import Machine, parse_expression
from tilewright.planning.domain import Kernel
from tilewright.targets.cpu.planning.capabilities import facts_of
from tilewright.targets.cpu.planning.cost import Nest, box_bytes, cache_levels, part_kept


class BehindCost:
    """Prices the stages behind the tiles of one kernel."""

    def __init__(self, kernel: Kernel, machine: Machine) -> None:
        self.kernel = kernel
        self.costs, self.levels = facts_of(machine).cache_costs, cache_levels(machine)
        extents, first = kernel.anchor.extents, kernel.post_stages[0]
        along, rows = 1, 1
        for dim in first.output.dims:
            if dim in first.reduction:
                along *= extents[dim]
            else:
                rows *= extents[dim]
        primitive = next(iter(machine.primitives_for(first.operation)))
        cycles: Any = parse_expression(primitive.cycles).evaluate({"axis": along, "d0": rows})
        self.compute = float(cycles)
        self.result = box_bytes(kernel.output, extents)

    def price(self, nest: Nest) -> float:
        """Cycles behind the tiles of a nest."""
        body = dict(nest.extents)
        for dim, _, step in nest.loops:
            if dim in self.kernel.awaited:
                break
            body[dim] = step
        return self._cycles(self._touched(body), box_bytes(self.kernel.output, body), written=1)

    def apart(self) -> float:
        """Cycles as a kernel of its own, that finds in the caches what they can hold."""
        touched = self._touched(self.kernel.anchor.extents)
        return self._cycles(touched + self.result, 2 * self.result, written=2)

    def _touched(self, sizes: Mapping[str, int]) -> int:
        """Bytes that the tiles touch before so much of the result is complete."""
        return sum(box_bytes(operand, sizes) for operand in self.kernel.front.operands)

    def _cycles(self, first: int, others: int, written: int) -> float:
        """Cycles if so many bytes want to stay in the first cache, and in the others.

        A result that was not fetched is written once, another is fetched before.
        """
        part = self.costs.exposed
        hidden, exposed = (1.0 - part) * self.compute, part * self.compute
        for level, (capacity, bandwidth) in enumerate(self.levels):
            wanted = others if level else first
            away = self.result * (1.0 - part_kept(self.costs, wanted, capacity))
            hidden = max(hidden, (1.0 - part) * away / bandwidth)
            exposed += (part + written) * away / bandwidth
        return hidden + exposed

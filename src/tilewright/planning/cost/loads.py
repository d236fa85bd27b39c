"""The work that kernels give to each engine and to main memory, however they are scheduled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tilewright.machine import Machine
from tilewright.planning.cost.bounds import (
    compute_cycles,
    engine_flows,
    main_bandwidth,
    peak_cycles,
    primitives_for,
)
from tilewright.planning.domain import Kernel
from tilewright.planning.space.footprint import whole_elements

Cycles = defaultdict[str, float]
"""By engine."""


@dataclass
class Loads:
    """Cycles of work by engine, and bytes that pass main memory."""

    peak: Cycles = field(default_factory=lambda: Cycles(float))
    """Of computes, at peak."""
    granule: Cycles = field(default_factory=lambda: Cycles(float))
    """Of computes, with the machine's rounding of whole layers."""
    moving: Cycles = field(default_factory=lambda: Cycles(float))
    """Of moves, each byte once."""
    moved: int = 0
    """Bytes of main memory, each once."""

    def traffic(self, machine: Machine) -> float:
        """Cycles of main memory, or of the engine that moves longest."""
        return max(self.moved / main_bandwidth(machine), *self.moving.values(), 0.0)


def loads_of(units: Sequence[Kernel], machine: Machine, internal: Collection[str] = ()) -> Loads:
    """The least work of some kernels, each without its producers; the operands that are
    ``internal`` stay on the chip."""
    loads = Loads()
    for unit in units:
        primitives = primitives_for(unit, machine)
        fastest = min(primitives, key=lambda primitive: compute_cycles(unit, primitive))
        for total, cycles in ((loads.peak, peak_cycles), (loads.granule, compute_cycles)):
            total[fastest.engine] += min(cycles(unit, each) for each in primitives)
        flows = [engine_flows(unit, machine, each, internal) for each in primitives]
        for engine in flows[0]:
            loads.moving[engine] += min(sum(flow.get(engine, {}).values()) for flow in flows)
        for operand in unit.operands:
            if operand.name not in internal and not operand.resident_in:
                loads.moved += whole_elements(operand, unit.anchor.extents) * operand.element_bytes
    return loads

"""The work that kernels give to each engine and to main memory, however they are scheduled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tilewright.machine import Machine
from tilewright.planning.cost.bounds import (
    bandwidth_of,
    compute_cycles,
    engine_flows,
    homes_bytes,
    peak_cycles,
    primitives_for,
)
from tilewright.planning.domain import Kernel

Cycles = defaultdict[str, float]
"""Cycles of work by engine."""


@dataclass
class Loads:
    """Cycles of work by engine, and bytes that pass main memory."""

    peak: Cycles = field(default_factory=lambda: Cycles(float))
    """Cycles of computes, at peak rate."""
    granule: Cycles = field(default_factory=lambda: Cycles(float))
    """Cycles of computes, with the machine's rounding of whole layers."""
    moving: Cycles = field(default_factory=lambda: Cycles(float))
    """Cycles of moves, each byte once."""
    moved: dict[str, int] = field(default_factory=dict[str, int])
    """Bytes of main memory, and of others that hold operands, each once."""

    def traffic(self, machine: Machine) -> float:
        """Cycles of the memory, or of the engine, that moves longest."""
        flows = [size / bandwidth_of(name, machine) for name, size in self.moved.items()]
        return max(*flows, *self.moving.values(), 0.0)


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
        for name, size in homes_bytes(unit, machine, internal).items():
            loads.moved[name] = loads.moved.get(name, 0) + size
    return loads

"""The register file of a machine behind caches, and what a step of a register tile costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.errors import refuse
from tilewright.machine import Machine, Primitive, parse_expression

REGISTERS = "registers"
"""Name of the memory; its granule is one vector."""

FOLDED = 4
"""Points up to which compilers read a vector of weights again for each of them."""


@dataclass(frozen=True)
class Registers:
    """The register file as tiles see it."""

    lanes: int
    count: int
    vectors_per_cycle: float
    temporaries: int = 0
    """Registers that a step needs beside those of a float multiply-add."""

    def fits(self, points: int, vectors: int) -> bool:
        """Whether accumulators, one set of weights and a broadcast fit.

        With 64-byte vectors a multiply-add takes its broadcast from memory (AVX-512).
        """
        broadcast = 0 if self.lanes >= 16 else 1
        return points * vectors + vectors + broadcast + self.temporaries <= self.count

    def step_cycles(self, points: float, vectors: int) -> float:
        """Cycles of one step of the reduction: multiply-adds, loads, issue, latency.

        Compilers hold the weights' vectors in registers unless they are used so few times that a
        load each time looks as cheap (measured: ``FOLDED``). As many whole vectors are loaded in a
        cycle as are multiplied, and twice as many single elements where those are operands.
        """
        products = points * vectors
        held = products + vectors + 1 <= self.count and points > (FOLDED if vectors > 1 else 1)
        loads = vectors + points / 2 if held else products + points
        latency = 4.0
        return max(
            products / self.vectors_per_cycle,
            loads / self.vectors_per_cycle,
            (products + vectors + 3) / 6,
            latency,
        )


def registers_of(machine: Machine, primitive: Primitive) -> Registers:
    """The register file of a machine, from its memory ``registers`` and the primitive's rate."""
    try:
        memory = machine.memory(REGISTERS)
    except KeyError:
        raise refuse("plan-machine", f"{machine.name} has no memory named {REGISTERS}") from None
    lanes = memory.granule // 4
    dim = "co" if "co" in primitive.multiples else "c"
    cycles: Any = parse_expression(primitive.peak).evaluate({dim: lanes})
    rate = 1.0 / (float(cycles) * primitive.dot)
    count = (memory.bytes or 0) // memory.granule
    return Registers(lanes, count, rate, primitive.temporaries)

"""The register file of a machine behind caches, and what a step of a register tile costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tilewright.errors import refuse
from tilewright.machine import Machine, Primitive, parse_expression
from tilewright.targets.cpu.planning.capabilities import own_of

REGISTERS = "registers"
"""Name of the memory; its granule is one vector."""

FOLDED = 4
"""Points up to which compilers read a vector of weights again for each of them."""

WIDE_LOADS = 1.2
"""Vectors of 64 bytes that are loaded in a cycle where they are operands (measured)."""

BROADCASTS = 1.75
"""Elements that are loaded in a cycle where each is the operand of one product of 64 bytes, as in
tiles of one vector (measured)."""


@dataclass(frozen=True)
class TileCycles:
    """Eq. 2 of swATOP for one register tile: K steps take ``step * K + call`` cycles."""

    vectors: int
    points: int
    step: float
    call: float


@dataclass(frozen=True)
class Registers:
    """The register file: lanes, count and rates that bound register tiles."""

    lanes: int
    count: int
    vectors_per_cycle: float
    temporaries: int = 0
    """Registers that a step needs beside those of a float multiply-add."""
    measured: tuple[TileCycles, ...] = ()
    """Tiles that were measured, by vectors and points ascending; empty where costs are nominal."""

    _steps: dict[tuple[float, int], float] = field(
        default_factory=dict[tuple[float, int], float], init=False, repr=False, compare=False
    )
    """Steps that were priced: planners ask for the same ones over and over."""

    @cached_property
    def _by_vectors(self) -> dict[int, list[TileCycles]]:
        by_vectors: dict[int, list[TileCycles]] = {}
        for tile in self.measured:
            by_vectors.setdefault(tile.vectors, []).append(tile)
        return by_vectors

    def fits(self, points: int, vectors: int) -> bool:
        """Return True if accumulators, one set of weights and a broadcast fit the registers.

        With 64-byte vectors a multiply-add takes its broadcast from memory (AVX-512).
        """
        broadcast = 0 if self.lanes >= 16 else 1
        return points * vectors + vectors + broadcast + self.temporaries <= self.count

    def step_cycles(self, points: float, vectors: int) -> float:
        """Cycles of one step of the reduction: as measured, between two sizes in proportion."""
        key = points, vectors
        if key not in self._steps:
            self._steps[key] = self._step_cycles(points, vectors)
        return self._steps[key]

    def _step_cycles(self, points: float, vectors: int) -> float:
        known = self._by_vectors.get(vectors)
        if not known:
            return self.nominal_step_cycles(points, vectors)
        above = next((tile for tile in known if tile.points >= points), known[-1])
        below = next((tile for tile in reversed(known) if tile.points < points), above)
        if below.points >= above.points or points > above.points:
            return above.step * max(1.0, points / above.points)
        part = (points - below.points) / (above.points - below.points)
        return below.step + part * (above.step - below.step)

    def call_cycles(self, points: float, vectors: int) -> float:
        """Cycles of a call beside its steps: setting up, writing, the call itself; measured."""
        known = self._by_vectors.get(vectors)
        if not known:
            return 20.0 + 2.0 * points * vectors
        return min(known, key=lambda tile: abs(tile.points - points)).call

    def nominal_step_cycles(self, points: float, vectors: int) -> float:
        """Cycles of one step of the reduction: multiply-adds, loads, issue, latency.

        Compilers hold the weights' vectors in registers unless they are used so few times that a
        load each time looks as cheap (measured: ``FOLDED``). As many whole vectors are loaded in a
        cycle as are multiplied (of 64 bytes not more than ``WIDE_LOADS``), and twice as many single
        elements where those are operands.
        """
        products = points * vectors
        fits = products + vectors + 1 <= self.count and points > (FOLDED if vectors > 1 else 1)
        loads = vectors + points / 2 if fits else products + points
        latency, wide = 4.0, self.lanes >= 16
        alone = products / BROADCASTS if wide and vectors == 1 else 0.0
        return max(
            products / self.vectors_per_cycle,
            alone,
            loads / (min(self.vectors_per_cycle, WIDE_LOADS) if wide else self.vectors_per_cycle),
            (products + vectors + 3) / 6,
            latency,
        )


def registers_of(machine: Machine, primitive: Primitive) -> Registers:
    """The register file of a machine, from its memory ``registers`` and the primitive's rate."""
    try:
        memory = machine.memory(REGISTERS)
    except KeyError:
        raise refuse("plan-machine", f"{machine.name} has no memory named {REGISTERS}") from None
    lanes, own = memory.granule // 4, own_of(primitive)
    dim = "co" if "co" in primitive.multiples else "c"
    cycles: Any = parse_expression(primitive.peak).evaluate({dim: lanes})
    rate = 1.0 / (float(cycles) * own.dot)
    count = (memory.bytes or 0) // memory.granule
    tiles = tuple(
        TileCycles(int(vectors), int(points), step, call)
        for vectors, points, step, call in sorted(own.fit)
    )
    return Registers(lanes, count, rate, own.temporaries, tiles)

"""Products whose weights lie as [co, ci]: dot products along the reduction, and what they cost."""

from __future__ import annotations

from math import ceil

from tilewright.planning.domain import Stage
from tilewright.planning.layout import Layout
from tilewright.targets.cpu.planning.registers import Registers

GROUP = 4
"""Output channels whose sums are kept in registers beside one another."""

SUM_CYCLES = 4.0
"""Cycles to add up the lanes of one dot product, a square of them at a time."""


def along_reduction(stage: Stage) -> bool:
    """Return True if a product's weights lie in rows along the reduction, where lanes then run."""
    weight = next((operand for operand in stage.inputs if operand.role == "weight"), None)
    if weight is None or not weight.access or "ci" not in stage.reduction:
        return False
    inner = Layout.parse(weight.layout, len(weight.shape)).factors[-1]
    return not inner.modulus and set(weight.access[inner.axis].dims) == {"ci"}


def group_of(points: int, lanes: int) -> int:
    """Output channels of a group: one point alone needs more of them to hide latencies."""
    return min(lanes, 2 * GROUP if points == 1 else GROUP)


def most_points(registers: Registers) -> int:
    """Points of a tile: their sums, their inputs, and one vector of weights fit the registers."""
    return max(1, (registers.count - 1) // (GROUP + 1))


def dot_cycles(registers: Registers, points: int, channels: int, depth: int) -> float:
    """Cycles of one tile of ``points`` by ``channels``, each a dot product of ``depth``."""
    group = group_of(points, registers.lanes)
    steps = ceil(depth / registers.lanes) * ceil(channels / group)
    sums = SUM_CYCLES * points * registers.lanes
    return 20.0 + steps * registers.nominal_step_cycles(points, group) + sums

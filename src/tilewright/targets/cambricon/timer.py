"""The planner's timer: cycles of one kernel's words under one schedule, no values computed."""

from __future__ import annotations

from collections import Counter
from math import inf

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS
from tilewright.machine import Machine
from tilewright.planning.domain import Kernel
from tilewright.planning.layout import Layout
from tilewright.planning.schedule import Schedule
from tilewright.targets.base import Timer
from tilewright.targets.cambricon.lowering.network import ALIGNMENT, CONSTANTS, Lowering
from tilewright.targets.cambricon.simulate.simulator import Simulator
from tilewright.tile.build import Placement
from tilewright.tile.lower import tile

CONSTANT_ROLES = ("weight", "bias")
"""Operands that lie with the weights: products lay theirs out by segment."""


def timer(machine: Machine) -> Timer:
    """Simulated cycles of a kernel that runs alone, its operands dense in main memory.

    The words are those that a package would hold. Infinite for a schedule that they cannot say
    (too few registers, for instance): another one is taken.
    """

    def cycles(kernel: Kernel, schedule: Schedule) -> float:
        placements, sizes, whole = _placed(kernel, machine)
        bases = {WEIGHTS: 0, ACTIVATIONS: sizes[WEIGHTS], CONSTANTS: sum(sizes.values())}
        lowering = Lowering(machine, bases, Counter())
        try:
            program = tile(kernel, schedule, machine, placements, check=False)
            lowering.kernel(program, kernel.nodes)
        except TilewrightError:
            return inf
        main = np.zeros(bases[CONSTANTS] + len(lowering.image), np.uint8)
        simulator = Simulator(lowering.words(), whole, main, values=False)
        simulator.run()
        return float(simulator.result().cycles)

    return cycles


def _placed(
    kernel: Kernel, machine: Machine
) -> tuple[dict[str, Placement], dict[str, int], Machine]:
    """A place for every operand, the bytes of each arena, and the machine.

    Held operands lie behind the memory that the kernel's machine has: the whole machine has more.
    """
    room: dict[str, int] = {}
    placements: dict[str, Placement] = {}
    sizes = {WEIGHTS: 0, ACTIVATIONS: 0}
    for operand in kernel.operands:
        # Only plain products take weights that the network computes, as they lie.
        plain = operand.computed and kernel.anchor.operation == "matmul"
        arena = WEIGHTS if operand.role in CONSTANT_ROLES and not plain else ACTIVATIONS
        layout = Layout.parse(operand.layout, len(operand.shape))
        size = -(-layout.size(operand.shape) * operand.element_bytes // ALIGNMENT) * ALIGNMENT
        if operand.held:
            start = room.setdefault(operand.held, machine.memory(operand.held).bytes or 0)
            placements[operand.name] = (operand.held, start, layout.strides(operand.shape))
            room[operand.held] += size
            continue
        placements[operand.name] = (arena, sizes[arena], layout.strides(operand.shape))
        sizes[arena] += size
    values = {f"memory.{name}.bytes": size for name, size in room.items()}
    return placements, sizes, machine.with_values(values) if values else machine

"""The target objects that the entry points name."""

from __future__ import annotations

from tilewright.machine import Machine
from tilewright.targets.generic.isa import InstructionSet
from tilewright.targets.generic.target import InstructionTarget
from tilewright.targets.generic.three_buffers import Configuration
from tilewright.targets.shidiannao.isa import instruction_set
from tilewright.targets.shidiannao.machine import ORIGINAL, machine


class ShiDianNaoTarget(InstructionTarget):
    """ShiDianNao in one of its sizes, simulated bit for bit and cycle by cycle."""

    def __init__(self, size: Configuration = ORIGINAL) -> None:
        self.name = size.name
        array = f"an array of {size.side} x {size.side}"
        self.description = f"ShiDianNao, {array}, 16-bit fixed point, simulated"
        self._machine = machine(size)

    def machine(self) -> Machine:
        """ACC-S in this size."""
        return self._machine

    def instruction_set(self, machine: Machine) -> InstructionSet:
        """Return the instructions with fixed opcodes."""
        return instruction_set(machine)

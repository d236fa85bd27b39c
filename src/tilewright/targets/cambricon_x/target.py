"""The target object that the entry point names."""

from __future__ import annotations

from tilewright.machine import Machine
from tilewright.targets.cambricon_x.isa import instruction_set
from tilewright.targets.cambricon_x.machine import MACHINE
from tilewright.targets.generic.isa import InstructionSet
from tilewright.targets.generic.target import InstructionTarget


class CambriconXTarget(InstructionTarget):
    """Dense Cambricon-X, simulated bit for bit and cycle by cycle."""

    name = "cambricon-x"
    description = "Cambricon-X (dense), 16-bit fixed point, simulated from instruction words"

    def machine(self) -> Machine:
        """Dense ACC-X as published."""
        return MACHINE

    def instruction_set(self, machine: Machine) -> InstructionSet:
        """The fixed opcodes."""
        return instruction_set(machine)

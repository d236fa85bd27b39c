"""The records of the CNN core's machines alone: its arithmetic, and windows loaded apart."""

from __future__ import annotations

from typing import ClassVar

from tilewright.machine.records import MachineRecord, OperandRecord
from tilewright.machine.rounding import Rounding


class DpuMachine(MachineRecord):
    """The facts about a CNN core as a machine."""

    family: ClassVar[str] = "dpu"

    rounding: Rounding = Rounding()
    """The operations that the core does not compute exactly with one rounding."""

    def rounding_rules(self) -> Rounding:
        """Return ``rounding``: the core's deviations from exact results rounded once."""
        return self.rounding


class DpuOperand(OperandRecord):
    """The facts about an operand that a CNN core's primitive reads."""

    family: ClassVar[str] = "dpu"

    apart: tuple[str, ...] = ()
    """Dims of a window along which each window is loaded by itself (channel augmentation)."""

    def windows_apart(self) -> tuple[str, ...]:
        """Return ``apart``: dims of a window along which each window is loaded by itself."""
        return self.apart

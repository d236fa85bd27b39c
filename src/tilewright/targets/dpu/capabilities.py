"""What the CNN core's machines have of their own: its arithmetic, and what stays."""

from __future__ import annotations

from typing import ClassVar

from tilewright.machine.records import MachineRecord, MemoryRecord, OperandRecord
from tilewright.machine.rounding import Rounding


class DpuMachine(MachineRecord):
    """A core."""

    family: ClassVar[str] = "dpu"

    rounding: Rounding = Rounding()
    """What it computes otherwise than exactly with one rounding."""

    def rounding_rules(self) -> Rounding:
        """``rounding``."""
        return self.rounding


class DpuMemory(MemoryRecord):
    """A group of banks."""

    family: ClassVar[str] = "dpu"

    shares: bool = False
    """Whether a tensor may stay in it for all kernels that read it; tiles are any boxes of it."""

    def keeps_inputs(self) -> bool:
        """``shares``."""
        return self.shares


class DpuOperand(OperandRecord):
    """What a primitive reads."""

    family: ClassVar[str] = "dpu"

    apart: tuple[str, ...] = ()
    """Dims of a window along which each window is loaded by itself (channel augmentation)."""

    def windows_apart(self) -> tuple[str, ...]:
        """``apart``."""
        return self.apart


__all__ = ["DpuMachine", "DpuMemory", "DpuOperand"]

"""What the CNN core's machines have of their own: its arithmetic, and what stays."""

from __future__ import annotations

from typing import ClassVar

from tilewright.machine.records import OperandRecord
from tilewright.machine.rounding import Rounding
from tilewright.planning.own import ExecutesRows, RowInstructions
from tilewright.targets.dpu.planning.row_dispatch import CoreInstructions


class DpuMachine(ExecutesRows):
    """A core."""

    family: ClassVar[str] = "dpu"

    rounding: Rounding = Rounding()
    """What it computes otherwise than exactly with one rounding."""

    def rounding_rules(self) -> Rounding:
        """``rounding``."""
        return self.rounding

    def row_instructions(self) -> RowInstructions:
        """The core's own, of rows of banks."""
        return CoreInstructions()


class DpuOperand(OperandRecord):
    """What a primitive reads."""

    family: ClassVar[str] = "dpu"

    apart: tuple[str, ...] = ()
    """Dims of a window along which each window is loaded by itself (channel augmentation)."""

    def windows_apart(self) -> tuple[str, ...]:
        """``apart``."""
        return self.apart


__all__ = ["DpuMachine", "DpuOperand"]

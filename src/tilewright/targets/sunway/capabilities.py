"""What SW26010's machines have of their own."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from tilewright.machine.model import MAX_VALUE
from tilewright.machine.records import MachineRecord, PrimitiveRecord


class SunwayMachine(MachineRecord):
    """Core groups."""

    family: ClassVar[str] = "sunway"

    spawn_cycles: int = Field(default=0, ge=0, le=MAX_VALUE)
    """Cycles to start the CPEs on a kernel and to wait for the last of them."""

    def start_cycles(self) -> int:
        """``spawn_cycles``."""
        return self.spawn_cycles

    def temporary_space(self) -> bool:
        """As swTVM has it (section 4.1)."""
        return True


class SunwayPrimitive(PrimitiveRecord):
    """A kernel of the CPEs."""

    family: ClassVar[str] = "sunway"

    turns: bool = False
    """Whether the CPEs multiply together, each in turn sending its tiles by register communication
    (gemm/turns.py)."""

    def in_turns(self) -> bool:
        """``turns``."""
        return self.turns


__all__ = ["SunwayMachine", "SunwayPrimitive"]

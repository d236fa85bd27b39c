"""What SW26010's machines have of their own."""

from __future__ import annotations

from typing import ClassVar

from tilewright.machine.records import PrimitiveRecord


class SunwayPrimitive(PrimitiveRecord):
    """A kernel of the CPEs."""

    family: ClassVar[str] = "sunway"

    turns: bool = False
    """Whether the CPEs multiply together, each in turn sending its tiles by register communication
    (gemm/turns.py)."""

    def in_turns(self) -> bool:
        """``turns``."""
        return self.turns


__all__ = ["SunwayPrimitive"]

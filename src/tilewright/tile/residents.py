"""Buffers of tensors that stay on the chip from one kernel to others (``Schedule.stays``)."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.errors import refuse
from tilewright.ir import UnitAttr, integer
from tilewright.planning.schedule import Resident
from tilewright.tile.operations import BufferOp


def stay(buffers: Sequence[BufferOp], resident: Resident, kernel: str) -> None:
    """Let the only buffer of an operand stay, at its address.

    Refuses (``schedule-invalid``) an operand that takes several buffers, or other elements.
    """
    if len(buffers) != 1 or buffers[0].converts or buffers[0].gathers is not None:
        reason = f"{resident.operand} takes more than one buffer, and cannot stay"
        raise refuse("schedule-invalid", reason, kernel)
    (buffer,) = buffers
    buffer.stays, buffer.address = UnitAttr(), integer(resident.address)

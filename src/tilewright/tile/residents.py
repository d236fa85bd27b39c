"""Buffers of tensors that stay on the chip from one kernel to others (``Schedule.stays``).

A program whose buffer stays, and that does not fill it, reads what an earlier program has left at
the buffer's address. A single program cannot show that; ``Residents`` follows all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tilewright.errors import Problem, refuse
from tilewright.ir import UnitAttr, integer
from tilewright.planning.schedule import Resident
from tilewright.tile.operations import BufferOp, ProgramOp
from tilewright.tile.queues import fills, users_of


def stay(buffers: Sequence[BufferOp], resident: Resident, kernel: str) -> None:
    """Let the only buffer of an operand stay, at its address.

    Refuses (``schedule-invalid``) an operand that takes several buffers, or other elements.
    """
    if len(buffers) != 1 or buffers[0].converts or buffers[0].gathers is not None:
        reason = f"{resident.operand} takes more than one buffer, and cannot stay"
        raise refuse("schedule-invalid", reason, kernel)
    (buffer,) = buffers
    buffer.stays, buffer.address = UnitAttr(), integer(resident.address)


Range = tuple[str, int, int]
"""A memory, the first byte of a buffer in it, and the byte after its last."""


@dataclass
class Residents:
    """The tensors that lie in buffers which stay, while programs run one after the other."""

    tensors: dict[Range, str] = field(default_factory=dict[Range, str])

    def problems(self, program: ProgramOp) -> Iterator[Problem]:
        """Run a placed program, and yield the tensors that it reads where nobody has left them."""
        buffers = [op for op in program.walk() if isinstance(op, BufferOp) and op.address]
        left = {(memory, start): tensor for (memory, start, _), tensor in self.tensors.items()}
        for buffer in buffers:
            memory, start, end = _range(buffer)
            name = buffer.tensor_op.symbol.data
            filled = any(fills(user, buffer) for user in users_of(buffer))
            if buffer.stays is not None and not filled and left.get((memory, start)) != name:
                reason = f"no kernel has left {name} at byte {start} of {memory}"
                yield Problem("tile-resident", reason, program.symbol.data)
        for buffer in buffers:
            memory, start, end = _range(buffer)
            for other in [key for key in self.tensors if key[0] == memory]:
                if other[1] < end and start < other[2]:
                    del self.tensors[other]
        for buffer in buffers:
            if buffer.stays is not None:
                self.tensors[_range(buffer)] = buffer.tensor_op.symbol.data

    def forget(self) -> None:
        """Forget all: the host has run."""
        self.tensors.clear()


def _range(buffer: BufferOp) -> Range:
    start = buffer.get("address")
    return buffer.memory, start, start + buffer.get("bytes") * buffer.places

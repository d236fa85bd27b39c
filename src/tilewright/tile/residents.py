"""Buffers of tensors that stay on the chip from one kernel to others (``Schedule.stays``).

A program whose buffer stays, and that does not fill it, reads what an earlier program has left at
the buffer's address, or a constant that was there before the first of them. A single program cannot
show that; ``Residents`` follows all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tilewright.errors import Problem, refuse
from tilewright.ir import UnitAttr, integer
from tilewright.ir.arenas import WEIGHTS
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

Origin = tuple[str, int]
"""The arena and the offset at which a tensor lies in main memory, or would."""


@dataclass
class Residents:
    """The tensors that lie in buffers which stay, while programs run one after the other."""

    tensors: dict[Range, Origin] = field(default_factory=dict["Range", "Origin"])
    """What lies there."""
    used: list[Range] = field(default_factory=list[Range])
    """Where buffers have been, so that no constant is there any more."""

    def problems(self, program: ProgramOp) -> Iterator[Problem]:
        """Run a placed program, and yield the tensors that it reads where nobody has left them."""
        buffers = [op for op in program.walk() if isinstance(op, BufferOp) and op.address]
        written: list[BufferOp] = []
        for buffer in buffers:
            if buffer.stays is None or any(fills(user, buffer) for user in users_of(buffer)):
                written.append(buffer)
            elif not self._has(buffer):
                name, (memory, start, _) = buffer.tensor_op.symbol.data, _range(buffer)
                reason = f"no kernel has left {name} at byte {start} of {memory}"
                yield Problem("tile-resident", reason, program.symbol.data)
        for buffer in written:
            self.used.append(_range(buffer))
            for other in [key for key in self.tensors if _meet(key, _range(buffer))]:
                del self.tensors[other]
        for buffer in written:
            if buffer.stays is not None:
                self.tensors[_range(buffer)] = _origin(buffer)

    def _has(self, buffer: BufferOp) -> bool:
        """Return True if the buffer's tensor lies there, or one that it is a part of."""
        memory, start, end = _range(buffer)
        arena, place = _origin(buffer)
        if arena == WEIGHTS and not any(_meet(_range(buffer), used) for used in self.used):
            return True
        return any(
            memory == other
            and first <= start
            and end <= last
            and arena == of
            and place - start == offset - first
            for (other, first, last), (of, offset) in self.tensors.items()
        )

    def forget(self) -> None:
        """Forget all: the host has run."""
        self.tensors.clear()


def _origin(buffer: BufferOp) -> Origin:
    """The tensor's place in main memory: views have other names for the same one."""
    tensor = buffer.tensor_op
    if tensor.arena is None:
        return tensor.symbol.data, 0
    return tensor.arena.data, tensor.get("offset")


def _meet(one: Range, other: Range) -> bool:
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]


def _range(buffer: BufferOp) -> Range:
    start = buffer.get("address")
    return buffer.memory, start, start + buffer.get("bytes") * buffer.places

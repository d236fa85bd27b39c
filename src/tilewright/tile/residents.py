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
    """The tensor that lies in each range."""
    used: list[Range] = field(default_factory=list[Range])
    """Ranges in which buffers have been, so that no constant is there any more."""
    constants: dict[Range, Origin] = field(default_factory=dict["Range", "Origin"])
    """The constants that programs have found: there since before the first of them."""

    def problems(self, program: ProgramOp) -> Iterator[Problem]:
        """Run a placed program, and yield the tensors that it reads but no kernel left there."""
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
        place, origin = _range(buffer), _origin(buffer)
        if any(_holds(other, of, place, origin) for other, of in self.tensors.items()):
            return True
        if origin[0] != WEIGHTS or any(_meet(place, used) for used in self.used):
            return False
        beside = {other: of for other, of in self.constants.items() if _meet(other, place)}
        if not all(_continues(other, of, place, origin) for other, of in beside.items()):
            return False
        self.constants[place] = origin
        return True

    def forget(self) -> None:
        """Forget all: the host has run."""
        self.tensors.clear()


def _origin(buffer: BufferOp) -> Origin:
    """The tensor's place in main memory: views have other names for the same one."""
    tensor = buffer.tensor_op
    if tensor.arena is None:
        return tensor.symbol.data, 0
    return tensor.arena.data, tensor.get("offset")


def _meet(left: Range, right: Range) -> bool:
    return left[0] == right[0] and left[1] < right[2] and right[1] < left[2]


def _continues(left: Range, origin: Origin, right: Range, other: Origin) -> bool:
    """Return True if two ranges of a memory are parts of one tensor, as far apart as there."""
    return origin[0] == other[0] and origin[1] - left[1] == other[1] - right[1]


def _holds(outer: Range, origin: Origin, inner: Range, other: Origin) -> bool:
    """Return True if one range of a memory lies in another, and so do their tensors."""
    inside = outer[0] == inner[0] and outer[1] <= inner[1] and inner[2] <= outer[2]
    return inside and _continues(outer, origin, inner, other)


def _range(buffer: BufferOp) -> Range:
    start = buffer.get("address")
    return buffer.memory, start, start + buffer.get("bytes") * buffer.places

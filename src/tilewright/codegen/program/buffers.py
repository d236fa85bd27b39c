"""Buffers of a kernel as they were planned: which bytes of a memory hold which tensor.

The manifest of a package keeps them, for reports and for the counters of traces: a program's words
say which bytes they touch, but not which are taken in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from tilewright.tile.dialect import ProgramOp


class KernelBuffer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A buffer of one kernel; each core of a machine with several has its own."""

    tensor: str
    """Name of the tensor whose tiles it holds, in the final graph."""
    role: str = ""
    """The operand's role in its primitive: ``input``, ``weight``, ``output``."""
    memory: str
    address: Annotated[int, Meta(ge=0)]
    """Address in that memory of its first byte."""
    bytes: Annotated[int, Meta(ge=0)]
    """Bytes of one slot; the next slot follows."""
    slots: Annotated[int, Meta(ge=1)] = 1
    stays: bool = False
    """True if the tensor stays there from one kernel to others."""

    @property
    def end(self) -> int:
        """The first byte after all slots."""
        return self.address + self.bytes * self.slots


def buffers_of(programs: Iterable[ProgramOp]) -> tuple[KernelBuffer, ...]:
    """The buffers of a kernel's programs that have addresses, each once, in program order."""
    from tilewright.tile.dialect import BufferOp

    found: dict[KernelBuffer, None] = {}
    for op in (op for program in programs for op in program.walk()):
        if isinstance(op, BufferOp) and op.address is not None and op.bytes is not None:
            buffer = KernelBuffer(
                tensor=op.tensor_op.symbol.data,
                role=op.role.data if op.role is not None else "",
                memory=op.memory,
                address=op.get("address"),
                bytes=op.get("bytes"),
                slots=op.places,
                stays=op.stays is not None,
            )
            found.setdefault(buffer)
    return tuple(found)


@dataclass(frozen=True)
class Occupant:
    """Bytes of a memory that a tensor has from one time to another."""

    memory: str
    tensor: str
    role: str
    address: int
    bytes: int
    start: float
    end: float
    kernels: tuple[str, ...]
    """The kernels that use it, in the order of the run."""
    slots: int = 1
    stays: bool = False


def occupants_of(
    kernels: Sequence[tuple[str, float, float]], buffers: Mapping[str, Sequence[KernelBuffer]]
) -> list[Occupant]:
    """The occupants of all memories over a run.

    ``kernels`` has symbol, start and end of every kernel, in order. A buffer takes its bytes from
    its kernel's start to its end; what stays does so from the first kernel that names it to the
    last.
    """
    found: list[Occupant] = []
    lives: dict[KernelBuffer, list[tuple[str, float, float]]] = {}
    for symbol, start, end in kernels:
        for buffer in buffers.get(symbol, ()):
            if not buffer.stays:
                found.append(_occupant(buffer, [(symbol, start, end)]))
                continue
            # One kernel writes it as its output, others read it as an input.
            key = replace(buffer, role="")
            lives.setdefault(key, []).append((symbol, start, end))
    found += [_occupant(buffer, uses) for buffer, uses in lives.items()]
    return sorted(found, key=lambda each: (each.memory, each.start, each.address, each.tensor))


def _occupant(buffer: KernelBuffer, uses: Sequence[tuple[str, float, float]]) -> Occupant:
    return Occupant(
        memory=buffer.memory,
        tensor=buffer.tensor,
        role=buffer.role,
        address=buffer.address,
        bytes=buffer.bytes * buffer.slots,
        start=min(start for _, start, _ in uses),
        end=max(end for _, _, end in uses),
        kernels=tuple(symbol for symbol, _, _ in uses),
        slots=buffer.slots,
        stays=buffer.stays,
    )


Levels = tuple[list[float], list[int]]
"""Times, ascending, and the bytes that are taken from each of them on."""


def taken_bytes(occupants: Iterable[Occupant]) -> dict[str, Levels]:
    """By memory, how many of its bytes are taken over time.

    Bytes that two occupants have at the same time count once: a kernel may begin while the one
    before ends.
    """
    ordered = sorted(occupants, key=lambda each: each.memory)
    return {memory: _levels(list(group)) for memory, group in groupby(ordered, lambda o: o.memory)}


def _levels(occupants: Sequence[Occupant]) -> Levels:
    events: dict[float, list[tuple[int, int, int]]] = {}
    for each in occupants:
        if each.end > each.start and each.bytes:
            ends = (each.address, each.address + each.bytes)
            events.setdefault(each.start, []).append((*ends, 1))
            events.setdefault(each.end, []).append((*ends, -1))
    live: dict[tuple[int, int], int] = {}
    times: list[float] = []
    levels: list[int] = []
    for time in sorted(events):
        for low, high, change in events[time]:
            live[low, high] = live.get((low, high), 0) + change
            if not live[low, high]:
                del live[low, high]
        level = _covered(live)
        if not levels or level != levels[-1]:
            times.append(time)
            levels.append(level)
    return times, levels


def _covered(intervals: Iterable[tuple[int, int]]) -> int:
    """The number of bytes that lie in any of the intervals."""
    covered, reached = 0, 0
    for low, high in sorted(intervals):
        covered += max(high - max(low, reached), 0)
        reached = max(reached, high)
    return covered

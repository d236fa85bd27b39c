"""Loop peeling (figure 4.10): the loads of the next round run beside the computes of this one.

    LOOP:                            load
      load                         LOOP:
      @barrier                       @barrier
      compute            ->          scalar statements
      @barrier                       load, into the other buffers, if there is a next round
      scalar statements              compute
      CB LOOP, $counter              CB LOOP, $counter

Every buffer that is loaded gets a second one behind all on-chip arrays. What the computes read of
registers that change meanwhile is kept in registers that nothing else uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.memory import align_up
from tilewright.targets.cambricon.hlal.items import (
    BarrierMark,
    Instruction,
    Item,
    LabelMark,
    LabelUse,
    OperandValue,
)
from tilewright.targets.cambricon.hlal.parallel.loops import Loop
from tilewright.targets.cambricon.hlal.parallel.registers import (
    Registers,
    constant_before,
    exposed,
    normal,
    renamed,
    writes,
)
from tilewright.targets.cambricon.isa import BY_MNEMONIC, Register

VECTOR = ("vsm", "vout", "v", "v0", "v1", "vin", "vin0", "vin1")
MATRIX = ("msm", "mout", "m", "min", "min0", "min1")
"""Operands that are addresses in a scratchpad."""


@dataclass(frozen=True)
class Buffer:
    """The destination of a load: the register with its address, memory, first byte, and bytes."""

    register: int
    memory: str
    address: int
    bytes: int


@dataclass(frozen=True)
class Room:
    """First free byte of each scratchpad, and its bytes; registers that nothing uses."""

    vsm: int
    vsm_bytes: int
    msm: int
    msm_bytes: int
    registers: tuple[int, ...]


@dataclass(frozen=True)
class Peeled:
    """The statements that take a loop's place, and the bytes of its second buffers."""

    items: list[Item]
    vsm: int
    msm: int


def peel(items: Sequence[Item], loop: Loop, around: int, room: Room, name: str) -> Peeled | str:
    """The peeled loop, or why it cannot be peeled.

    ``around`` is the end of the outermost loop around it; ``name`` is free for labels.
    """
    buffers = _buffers(items, loop, around)
    if isinstance(buffers, str):
        return buffers
    if reason := _entangled(items, loop, around, buffers):
        return reason
    load, update = writes(loop.load), writes(loop.update)
    kept = sorted(exposed(loop.compute) & (load | update))
    if len(kept) + 2 * len(buffers) > len(room.registers):
        return "no registers are free"
    copies = dict(zip(kept, room.registers, strict=False))
    free = room.registers[len(kept) :]
    places = {"vsm": room.vsm, "msm": room.msm}
    most = {"vsm": room.vsm_bytes, "msm": room.msm_bytes}
    head: list[Item] = []
    swap: list[Item] = []
    others: dict[int, int] = {}
    taken = {"vsm": 0, "msm": 0}
    make = _Maker(loop.branch)
    for index, buffer in enumerate(buffers):
        sum_, other = free[2 * index], free[2 * index + 1]
        second = places[buffer.memory]
        places[buffer.memory] = align_up(second + buffer.bytes)
        taken[buffer.memory] = places[buffer.memory] - getattr(room, buffer.memory)
        if second + buffer.bytes > most[buffer.memory]:
            return f"{buffer.memory.upper()} has no room for second buffers"
        others[buffer.register] = other
        head.append(make("SMOVE", Register(sum_), buffer.address + second))
        head.append(make("SMOVE", Register(other), second))
        swap.append(
            make("SSUB", Register(buffer.register), Register(sum_), Register(buffer.register))
        )
        swap.append(make("SSUB", Register(other), Register(sum_), Register(other)))
    label = items[loop.start]
    more, compute = f"{name}_load", f"{name}_compute"
    barrier = BarrierMark(loop.branch.places)
    peeled: list[Item] = [*head, *_relabelled(loop.load, f"{name}_first"), label, barrier]
    peeled += [make("SMOVE", Register(copy), Register(kept)) for kept, copy in copies.items()]
    peeled += loop.update
    peeled += [
        make("CB", loop.counter, LabelUse(more, loop.branch.places[0])),
        make("J", LabelUse(compute, loop.branch.places[0])),
        LabelMark(more, loop.branch.places),
        *renamed(loop.load, others),
        LabelMark(compute, loop.branch.places),
        *renamed(loop.compute, copies),
        *swap,
        loop.branch,
    ]
    if loop.waits:
        peeled.append(barrier)
    return Peeled(peeled, taken["vsm"], taken["msm"])


class _Maker:
    """Makes statements that stand at the loop's branch."""

    def __init__(self, branch: Instruction) -> None:
        self.places = branch.places

    def __call__(self, mnemonic: str, *operands: OperandValue) -> Instruction:
        return Instruction(mnemonic, (), operands, self.places, None)


def _relabelled(items: Sequence[Item], name: str) -> list[Item]:
    """A copy whose labels are its own."""
    own = {item.name: f"{name}_{item.name}" for item in items if isinstance(item, LabelMark)}
    result: list[Item] = []
    for item in items:
        if isinstance(item, LabelMark):
            item = LabelMark(own[item.name], item.places, item.unit)
        elif isinstance(item, Instruction):
            parts = tuple(
                LabelUse(own.get(part.name, part.name), part.at)
                if isinstance(part, LabelUse)
                else part
                for part in item.operands
            )
            item = Instruction(item.mnemonic, item.modifiers, parts, item.places, item.unit)
        result.append(item)
    return result


def _buffers(items: Sequence[Item], loop: Loop, around: int) -> list[Buffer] | str:
    """Return the buffers that the loads fill, each register once; or why that is not known."""
    changed = writes(loop.load) | writes(loop.compute) | writes(loop.update)
    buffers: dict[int, Buffer] = {}
    for index, item in enumerate(loop.load):
        if not isinstance(item, Instruction) or "LOAD" not in item.mnemonic:
            continue
        if item.mnemonic == "SLOAD" or any(name == "table" for name, _ in item.modifiers):
            return f"{item.mnemonic} fills no buffer"
        place, size = item.operands[0], item.operands[1]
        assert isinstance(place, Register) and isinstance(size, Register)
        memory = "vsm" if item.mnemonic == "VLOAD" else "msm"
        address = constant_before(items, loop.start, around, place.number)
        if place.number in changed or address is None:
            return f"the address in {place} is not one that an SMOVE set before the loop"
        count = _last_constant(loop.load[:index], size.number)
        if count is None and size.number not in changed:
            count = constant_before(items, loop.start, around, size.number)
        if count is None or place.number in buffers:
            return f"the elements that {item.mnemonic} loads to {place} are not known"
        wide = 4 if any(name == "wide" and value != 0 for name, value in item.modifiers) else 2
        buffers[place.number] = Buffer(place.number, memory, address, count * wide)
    return list(buffers.values()) or "it loads nothing"


def _last_constant(items: Sequence[Item], register: int) -> int | None:
    for item in reversed(items):
        if not isinstance(item, Instruction):
            return None
        if register in writes([item]):
            value = item.operands[1] if item.mnemonic == "SMOVE" else None
            return value if isinstance(value, int) else None
    return None


def _entangled(items: Sequence[Item], loop: Loop, around: int, buffers: list[Buffer]) -> str:
    """Why the parts of a loop cannot change places; "" if they can."""
    load, compute, update = (writes(part) for part in (loop.load, loop.compute, loop.update))
    back = exposed(loop.load) | exposed(loop.update) | {loop.counter.number}
    if compute & back:
        return f"its computes change {_names(compute & back)}, which its loads or counters read"
    if compute & update:
        return f"its computes and its last part both change {_names(compute & update)}"
    if exposed(loop.compute) & load & compute:
        return "its computes read and change a register that its loads set"
    for item in loop.compute:
        if not isinstance(item, Instruction):
            continue
        known = BY_MNEMONIC[item.mnemonic]
        for part, operand in zip(normal(item).operands, known.operands, strict=False):
            memory = {**dict.fromkeys(VECTOR, "vsm"), **dict.fromkeys(MATRIX, "msm")}.get(
                operand.name
            )
            if memory is None or not isinstance(part, Register) or known.unit == "scalar":
                continue
            inside = [buffer for buffer in buffers if buffer.memory == memory]
            if reason := _touches(items, loop, around, part.number, inside, set()):
                return reason
    return ""


def _touches(
    items: Sequence[Item], loop: Loop, around: int, register: int, buffers: list[Buffer],
    seen: set[int],
) -> str:  # fmt: skip
    """Why an address of a compute may be in a buffer other than by the load's own register."""
    if register in seen or any(register == buffer.register for buffer in buffers):
        return ""
    seen.add(register)
    sources = [
        item
        for item in loop.compute
        if isinstance(item, Instruction) and register in writes([item])
    ]
    if not sources:
        value = constant_before(items, loop.start, around, register)
        if value is None:
            return f"the address in $R{register} is not known"
        return _inside(value, buffers)
    for item in sources:
        if item.mnemonic not in ("SMOVE", "SADD", "SSUB"):
            continue  # a product or a comparison is an offset
        first = normal(item).operands[1]
        reason = ""
        if isinstance(first, int):
            reason = _inside(first, buffers)
        elif isinstance(first, Register) and first.number != register:
            reason = _touches(items, loop, around, first.number, buffers, seen)
        if reason:
            return reason
    return ""


def _inside(value: int, buffers: list[Buffer]) -> str:
    for buffer in buffers:
        if buffer.address <= value < buffer.address + buffer.bytes:
            return f"its computes take the address {value} of a loaded buffer from elsewhere"
    return ""


def _names(registers: Registers) -> str:
    return ", ".join(f"$R{number}" for number in sorted(registers))

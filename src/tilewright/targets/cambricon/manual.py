"""The instruction manual, made from the definitions that encode, decode and check."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tilewright.codegen.words.manual import bits_text, memory_list, page, table
from tilewright.machine import Machine
from tilewright.system.template import filled
from tilewright.targets.cambricon.formats import (
    IMMEDIATE_BITS,
    IMMEDIATE_FLAG,
    NUMBER,
    OPCODE_BITS,
    REGISTER_BITS,
    REGISTERS,
    WORD_BITS,
    Instruction,
    Operand,
)
from tilewright.targets.cambricon.instructions import INSTRUCTIONS
from tilewright.targets.cambricon.machine import REFILL, lanes_of, queue_of

NOTATION = {
    "register": "",
    "either": " or #number",
    "immediate": "",
    "target": ", #number or label",
}


def manual(machine: Machine) -> str:
    """A markdown page: every instruction with its word, meaning, unit, cycles and modifiers."""
    moves = "\n".join(
        f"- `{move.name}`: {move.source} to {move.target}, latency {move.latency} cycles, "
        f"{move.bytes_per_cycle:g} bytes per cycle"
        for move in machine.moves
    )
    introduction = filled(
        Path(__file__).with_suffix(".in"),
        description=machine.description,
        word_bits=WORD_BITS,
        registers=REGISTERS,
        lanes=lanes_of(machine),
        queue=queue_of(machine),
        refill=REFILL,
        memories=memory_list(machine),
        moves=moves,
    )
    sections = {
        one.mnemonic: ((f"{one.opcode:#04x}", one.unit, one.meaning), _section(one))
        for one in INSTRUCTIONS
    }
    return page(machine.name, introduction, ("opcode", "unit", "what it does"), sections)


def _section(instruction: Instruction) -> Iterator[str]:
    operands = ", ".join(_written(operand) for operand in instruction.operands)
    yield f"    {instruction.mnemonic} {operands}"
    yield f"{instruction.meaning}."
    yield f"Unit: {instruction.unit}. Cycles: {instruction.cycles}."
    yield table(["field", "bits", "meaning"], _fields(instruction))


def _fields(instruction: Instruction) -> Iterator[tuple[str, str, str]]:
    opcode = bits_text(WORD_BITS - OPCODE_BITS, OPCODE_BITS)
    yield "opcode", opcode, f"{instruction.opcode:#04x}"
    for operand in instruction.operands:
        if operand.has_register:
            written = ", written" if operand.written else ""
            place = bits_text(instruction.low(operand.name), REGISTER_BITS)
            yield f"`{operand.name}`", place, f"register: {operand.meaning}{written}"
    if instruction.numbered:
        operand = next(operand for operand in instruction.operands if operand.has_immediate)
        place = bits_text(instruction.low(NUMBER.name), IMMEDIATE_BITS)
        yield f"`{operand.name}`", place, f"number, signed: {operand.meaning}"
    if instruction.flagged:
        yield "immediate", str(IMMEDIATE_FLAG.low), "the number stands for the last operand"
    for modifier in sorted(instruction.modifiers, key=lambda modifier: -modifier.low):
        name = modifier.name if modifier.is_flag else f"{modifier.name}=N"
        signed = ", signed" if modifier.signed else ""
        place = bits_text(modifier.low, modifier.bits)
        yield f"`.{name}`", place, f"{modifier.meaning}{signed}"


def _written(operand: Operand) -> str:
    name = f"#{operand.name}" if operand.kind == "immediate" else f"${operand.name}"
    return name + NOTATION[operand.kind]

"""The instruction manual, made from the definitions that encode, decode and check."""

from __future__ import annotations

from tilewright.machine import Machine
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
    memories = "\n".join(
        f"- `{memory.name}`: {'main memory' if memory.bytes is None else f'{memory.bytes} bytes'}"
        for memory in machine.memories
    )
    lines = [
        f"# Instructions of {machine.name}",
        "",
        machine.description,
        "",
        f"Words have {WORD_BITS} bits and are stored little-endian. There are {REGISTERS} "
        f"registers of 32 bits, {lanes_of(machine)} lanes, and a memory queue that holds "
        f"{queue_of(machine)} instructions. A branch that was not foreseen (backwards and not "
        f"taken, forwards and taken, by a register) costs {REFILL} cycles more. In formulas `#` is "
        "the number of elements. Bits that no field names are zero.",
        "",
        memories,
        "",
        moves,
        "",
        "| instruction | opcode | unit | what it does |",
        "|---|---|---|---|",
        *(
            f"| [{instruction.mnemonic}](#{instruction.mnemonic.lower()}) | "
            f"{instruction.opcode:#04x} | {instruction.unit} | {instruction.meaning} |"
            for instruction in INSTRUCTIONS
        ),
        "",
    ]
    for instruction in INSTRUCTIONS:
        lines += _page(instruction)
    return "\n".join(lines).rstrip() + "\n"


def _page(instruction: Instruction) -> list[str]:
    operands = ", ".join(_written(operand) for operand in instruction.operands)
    lines = [
        f"## {instruction.mnemonic}",
        "",
        f"    {instruction.mnemonic} {operands}",
        "",
        f"{instruction.meaning}.",
        "",
        f"Unit: {instruction.unit}. Cycles: {instruction.cycles}.",
        "",
        "| field | bits | meaning |",
        "|---|---|---|",
        f"| opcode | {_bits(WORD_BITS - OPCODE_BITS, OPCODE_BITS)} | {instruction.opcode:#04x} |",
    ]
    for operand in instruction.operands:
        if operand.has_register:
            written = ", written" if operand.written else ""
            place = _bits(instruction.low(operand.name), REGISTER_BITS)
            lines.append(f"| `{operand.name}` | {place} | register: {operand.meaning}{written} |")
    if instruction.numbered:
        operand = next(operand for operand in instruction.operands if operand.has_immediate)
        place = _bits(instruction.low(NUMBER.name), IMMEDIATE_BITS)
        lines.append(f"| `{operand.name}` | {place} | number, signed: {operand.meaning} |")
    if instruction.flagged:
        lines.append(
            f"| immediate | {IMMEDIATE_FLAG.low} | the number stands for the last operand |"
        )
    for modifier in sorted(instruction.modifiers, key=lambda modifier: -modifier.low):
        name = modifier.name if modifier.is_flag else f"{modifier.name}=N"
        signed = ", signed" if modifier.signed else ""
        place = _bits(modifier.low, modifier.bits)
        lines.append(f"| `.{name}` | {place} | {modifier.meaning}{signed} |")
    return [*lines, ""]


def _written(operand: Operand) -> str:
    name = f"#{operand.name}" if operand.kind == "immediate" else f"${operand.name}"
    return name + NOTATION[operand.kind]


def _bits(low: int, bits: int) -> str:
    return f"{low + bits - 1}:{low}" if bits > 1 else f"{low}"

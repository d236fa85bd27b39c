"""The instruction set: the 43 instructions by name and opcode, and one word to and from its parts.

encode("SADD", (Register(1), Register(1), Immediate(-1)), {})  ->  0x5004...
decode(word).mnemonic, .operands, .modifiers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.codegen.words import Field, InstructionSet
from tilewright.errors import refuse
from tilewright.targets.cambricon.formats import (
    IMMEDIATE_FLAG,
    NUMBER,
    OPCODE_BITS,
    REGISTERS,
    WORD_BITS,
    Instruction,
    Operand,
)
from tilewright.targets.cambricon.instructions import INSTRUCTIONS

ACC_C = InstructionSet("ACC-C", Field("opcode", OPCODE_BITS), WORD_BITS - OPCODE_BITS, INSTRUCTIONS)
"""The set: words of one unit, the opcode in its highest bits."""

BY_MNEMONIC: Mapping[str, Instruction] = ACC_C.by_mnemonic
BY_OPCODE: Mapping[int, Instruction] = ACC_C.by_opcode

EXCLUSIVE = (("wide", "long"), ("wide0", "long0"), ("wide1", "long1"))
"""Modifiers of which an instruction takes at most one."""


@dataclass(frozen=True)
class Register:
    """A general register, ``$R0`` to ``$R63``."""

    number: int

    def __str__(self) -> str:
        return f"$R{self.number}"


@dataclass(frozen=True)
class Immediate:
    """A number of 32 bits, two's complement."""

    value: int

    def __str__(self) -> str:
        return f"#{self.value}"


@dataclass(frozen=True)
class Decoded:
    """A word taken apart; ``modifiers`` holds those that are not 0."""

    instruction: Instruction
    operands: tuple[Register | Immediate, ...]
    modifiers: Mapping[str, int]


def encode(
    mnemonic: str, operands: Sequence[Register | Immediate], modifiers: Mapping[str, int]
) -> int:
    """One word; raises TilewrightError (``isa-...``) for what the instruction cannot say."""
    instruction = BY_MNEMONIC.get(mnemonic)
    if instruction is None:
        raise refuse("isa-unknown", f"{mnemonic[:40]!r} is no instruction")
    if len(operands) != len(instruction.operands):
        wanted = ", ".join(operand.name for operand in instruction.operands)
        raise refuse(
            "isa-operands",
            f"{mnemonic} takes {len(instruction.operands)} operands, not {len(operands)}",
            help=f"{mnemonic} {wanted}",
        )
    fields: dict[str, int] = {}
    for operand, value in zip(instruction.operands, operands, strict=True):
        fields |= _operand(instruction, operand, value)
    for name, value in modifiers.items():
        _check_modifier(instruction, name, value)
    for pair in EXCLUSIVE:
        if all(modifiers.get(name) for name in pair):
            raise refuse("isa-modifier", f"{mnemonic} cannot be {' and '.join(pair)}")
    (word,) = instruction.format.units_of({**fields, **modifiers})
    return word | instruction.opcode << ACC_C.opcode_low


def _operand(
    instruction: Instruction, operand: Operand, value: Register | Immediate
) -> dict[str, int]:
    """The fields that say an operand."""
    if isinstance(value, Register):
        if not operand.has_register:
            raise refuse(
                "isa-operands", f"{operand.name} of {instruction.mnemonic} must be a number"
            )
        if not 0 <= value.number < REGISTERS:
            raise refuse("isa-register", f"there is no register {value}", help="$R0 to $R63")
        return {operand.name: value.number}
    if not operand.has_immediate:
        raise refuse("isa-operands", f"{operand.name} of {instruction.mnemonic} must be a register")
    if not NUMBER.holds(value.value):
        least, most = NUMBER.range
        raise refuse("isa-immediate", f"{value} does not fit: {least} to {most}")
    flag = {IMMEDIATE_FLAG.name: 1} if operand.has_register else {}
    return {NUMBER.name: value.value, **flag}


def _check_modifier(instruction: Instruction, name: str, value: int) -> None:
    modifier = instruction.by_name.get(name)
    if modifier is None:
        known = ", ".join(instruction.by_name) or "none"
        raise refuse(
            "isa-modifier", f"{instruction.mnemonic} has no modifier {name[:40]!r}", help=known
        )
    if not modifier.holds(value):
        least, most = modifier.range
        raise refuse("isa-modifier", f"{name}={value} does not fit: {least} to {most}")


def decode(word: int) -> Decoded:
    """The parts of a word; raises TilewrightError (``isa-word``) if it is no instruction."""
    instruction = BY_OPCODE.get(word >> ACC_C.opcode_low)
    if instruction is None:
        raise refuse("isa-word", f"{word:#018x} has no known opcode")
    fields = word & (1 << ACC_C.opcode_low) - 1
    values = instruction.format.values_of([fields])
    if fields & ~int(instruction.format.masks[0]) or hidden(instruction, values):
        raise refuse("isa-word", f"{word:#018x} is no valid {instruction.mnemonic}: stray bits")
    operands: list[Register | Immediate] = []
    for operand in instruction.operands:
        if operand.has_immediate and (not operand.has_register or values[IMMEDIATE_FLAG.name]):
            operands.append(Immediate(values[NUMBER.name]))
        else:
            operands.append(Register(values[operand.name]))
    modifiers = {
        flag.name: values[flag.name] for flag in instruction.modifiers if values[flag.name]
    }
    for pair in EXCLUSIVE:
        if all(name in modifiers for name in pair):
            raise refuse("isa-word", f"{instruction.mnemonic} cannot be {' and '.join(pair)}")
    return Decoded(instruction, tuple(operands), modifiers)


def hidden(instruction: Instruction, values: Mapping[str, Any]) -> Any:
    """Return True if a field that nothing reads is not 0: the immediate if a register is the
    last operand, or a register beside the immediate. ``values`` are numbers, or columns of them."""
    if not instruction.flagged:
        return False
    flag = values[IMMEDIATE_FLAG.name] != 0
    return (flag & (values[instruction.registers[-1]] != 0)) | (
        (flag == 0) & (values[NUMBER.name] != 0)
    )

"""The instruction set: the 43 instructions by name and opcode, and one word to and from its parts.

encode("SADD", (Register(1), Register(1), Immediate(-1)), {})  ->  0x5004...
decode(word).mnemonic, .operands, .modifiers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.errors import refuse
from tilewright.targets.cambricon.formats import (
    IMMEDIATE_BITS,
    IMMEDIATE_FLAG,
    OPCODE_BITS,
    REGISTER_BITS,
    REGISTERS,
    UNITS,
    WORD_BITS,
    Instruction,
    Modifier,
    Operand,
)
from tilewright.targets.cambricon.instructions import INSTRUCTIONS

BY_MNEMONIC: Mapping[str, Instruction] = {
    instruction.mnemonic: instruction for instruction in INSTRUCTIONS
}
BY_OPCODE: Mapping[int, Instruction] = {
    instruction.opcode: instruction for instruction in INSTRUCTIONS
}

IMMEDIATE_RANGE = (-(1 << (IMMEDIATE_BITS - 1)), (1 << (IMMEDIATE_BITS - 1)) - 1)

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
    word = instruction.opcode << (WORD_BITS - OPCODE_BITS)
    for operand, value in zip(instruction.operands, operands, strict=True):
        word |= _operand(instruction, operand, value)
    for name, value in modifiers.items():
        word |= _modifier(instruction, name, value)
    for pair in EXCLUSIVE:
        if all(modifiers.get(name) for name in pair):
            raise refuse("isa-modifier", f"{mnemonic} cannot be {' and '.join(pair)}")
    return word


def _operand(instruction: Instruction, operand: Operand, value: Register | Immediate) -> int:
    if isinstance(value, Register):
        if not operand.has_register:
            raise refuse(
                "isa-operands", f"{operand.name} of {instruction.mnemonic} must be a number"
            )
        if not 0 <= value.number < REGISTERS:
            raise refuse("isa-register", f"there is no register {value}", help="$R0 to $R63")
        return value.number << instruction.places[operand.name]
    low = instruction.immediate_low
    if not operand.has_immediate or low is None:
        raise refuse("isa-operands", f"{operand.name} of {instruction.mnemonic} must be a register")
    least, most = IMMEDIATE_RANGE
    if not least <= value.value <= most:
        raise refuse("isa-immediate", f"{value} does not fit: {least} to {most}")
    field = (value.value & ((1 << IMMEDIATE_BITS) - 1)) << low
    return field | (1 << IMMEDIATE_FLAG.low if operand.has_register else 0)


def _modifier(instruction: Instruction, name: str, value: int) -> int:
    modifier = instruction.by_name.get(name)
    if modifier is None:
        known = ", ".join(instruction.by_name) or "none"
        raise refuse(
            "isa-modifier", f"{instruction.mnemonic} has no modifier {name[:40]!r}", help=known
        )
    least, most = modifier.range
    if not least <= value <= most:
        raise refuse("isa-modifier", f"{name}={value} does not fit: {least} to {most}")
    return (value & ((1 << modifier.bits) - 1)) << modifier.low


def decode(word: int) -> Decoded:
    """The parts of a word; raises TilewrightError (``isa-word``) if it is no instruction."""
    instruction = BY_OPCODE.get(word >> (WORD_BITS - OPCODE_BITS))
    if instruction is None:
        raise refuse("isa-word", f"{word:#018x} has no known opcode")
    flag = bool(instruction.flagged and word >> IMMEDIATE_FLAG.low & 1)
    operands: list[Register | Immediate] = []
    used = word & (((1 << OPCODE_BITS) - 1) << (WORD_BITS - OPCODE_BITS))
    for operand in instruction.operands:
        if operand.has_immediate and (flag or not operand.has_register):
            operands.append(Immediate(_immediate(instruction, word)))
            assert instruction.immediate_low is not None
            used |= word & (((1 << IMMEDIATE_BITS) - 1) << instruction.immediate_low)
        else:
            low = instruction.places[operand.name]
            operands.append(Register(word >> low & (REGISTERS - 1)))
            used |= word & ((REGISTERS - 1) << low)
    if flag:
        used |= 1 << IMMEDIATE_FLAG.low
    modifiers: dict[str, int] = {}
    for modifier in instruction.modifiers:
        raw = word >> modifier.low & ((1 << modifier.bits) - 1)
        used |= raw << modifier.low
        if raw:
            negative = modifier.signed and raw >> (modifier.bits - 1)
            modifiers[modifier.name] = raw - (1 << modifier.bits) if negative else raw
    if used != word:
        raise refuse("isa-word", f"{word:#018x} is no valid {instruction.mnemonic}: stray bits")
    for pair in EXCLUSIVE:
        if all(name in modifiers for name in pair):
            raise refuse("isa-word", f"{instruction.mnemonic} cannot be {' and '.join(pair)}")
    return Decoded(instruction, tuple(operands), modifiers)


def _immediate(instruction: Instruction, word: int) -> int:
    assert instruction.immediate_low is not None
    raw = word >> instruction.immediate_low & ((1 << IMMEDIATE_BITS) - 1)
    return raw - (1 << IMMEDIATE_BITS) if raw >> (IMMEDIATE_BITS - 1) else raw


__all__ = [
    "BY_MNEMONIC",
    "BY_OPCODE",
    "IMMEDIATE_RANGE",
    "INSTRUCTIONS",
    "REGISTERS",
    "REGISTER_BITS",
    "UNITS",
    "Decoded",
    "Immediate",
    "Instruction",
    "Modifier",
    "Operand",
    "Register",
    "decode",
    "encode",
]

"""The format of instructions: operands, modifiers, and their fields in the 64-bit word.

A word holds, most significant bits first, an opcode of 8 bits, one register number of 6 bits for
each operand that can be a register, an immediate of 32 bits if an operand can be one, and padding.
That much is published. The low bits of the padding hold our modifiers; with all of them zero an
instruction is the published one. Bits that nothing names are zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from tilewright.codegen import words
from tilewright.codegen.words import Field, Format

WORD_BITS = 64
OPCODE_BITS = 8
REGISTER_BITS = 6
IMMEDIATE_BITS = 32
REGISTERS = 1 << REGISTER_BITS

Unit = Literal["scalar", "vector", "matrix", "vector_dma", "matrix_dma"]
"""Unit that executes an instruction; the memory queue leads to all but ``scalar``."""

UNITS: tuple[Unit, ...] = ("scalar", "vector", "matrix", "vector_dma", "matrix_dma")


@dataclass(frozen=True)
class Operand:
    """One operand of an instruction, in the order of its text.

    ``kind``: a ``register``; ``either`` a register or an immediate; an ``immediate``; a ``target``
    of a branch: a register, an immediate or a label, in words relative to the branch itself.
    """

    name: str
    kind: Literal["register", "either", "immediate", "target"]
    meaning: str
    written: bool = False
    """True if the instruction writes this register (all others it reads)."""

    @property
    def has_register(self) -> bool:
        """True if the word has a register field for the operand."""
        return self.kind != "immediate"

    @property
    def has_immediate(self) -> bool:
        """True if the operand may be the word's immediate."""
        return self.kind != "register"


@dataclass(frozen=True)
class Modifier(Field):
    """One field of the padding, 0 unless the text names it (``.acc``, ``.shift=7``)."""

    low: int = 0
    """The field's lowest bit in the word."""

    @property
    def is_flag(self) -> bool:
        """True if the modifier is one bit, which the text names without a value."""
        return self.bits == 1


def modifier(name: str, low: int, bits: int, meaning: str, *, signed: bool = False) -> Modifier:
    """A modifier of ``bits`` bits from bit ``low`` on."""
    return Modifier(name, bits, meaning, signed, low=low)


NUMBER = Field("number", IMMEDIATE_BITS, "the immediate", signed=True)
IMMEDIATE_FLAG = modifier("immediate", 0, 1, "the last operand is the immediate")
"""Not written in text: it follows from the operand."""


@dataclass(frozen=True)
class Instruction(words.Instruction):
    """One instruction: its name, its encoding and its meaning.

    ``meaning`` is what it does, as formulas for the manual; ``#`` is the number of elements.
    """

    unit: Unit
    operands: tuple[Operand, ...]
    modifiers: tuple[Modifier, ...]
    cycles: str
    """Time in its unit, for the manual."""

    @property
    def registers(self) -> tuple[str, ...]:
        """The operands that have a register field, in the order of the word."""
        return tuple(operand.name for operand in self.operands if operand.has_register)

    def low(self, name: str) -> int:
        """Lowest bit of a field."""
        return self.format.places[name][1]

    @cached_property
    def numbered(self) -> bool:
        """True if the instruction word has an immediate field."""
        return NUMBER.name in self.format.by_name

    @cached_property
    def flagged(self) -> bool:
        """True if the word has a bit that tells an immediate operand from a register."""
        return IMMEDIATE_FLAG.name in self.format.by_name

    @cached_property
    def by_name(self) -> Mapping[str, Modifier]:
        """The modifiers by name."""
        return {modifier.name: modifier for modifier in self.modifiers}


def instruction(
    mnemonic: str,
    opcode: int,
    unit: Unit,
    operands: tuple[Operand, ...],
    meaning: str,
    modifiers: tuple[Modifier, ...],
    cycles: str,
) -> Instruction:
    """An instruction with its word: registers, then the immediate, then what modifies it."""
    fields: list[Field] = []
    places: dict[str, tuple[int, int]] = {}
    low = WORD_BITS - OPCODE_BITS

    def place(field: Field, at: int) -> None:
        fields.append(field)
        places[field.name] = 0, at

    for operand in operands:
        if operand.has_register:
            low -= REGISTER_BITS
            place(Field(operand.name, REGISTER_BITS, operand.meaning), low)
    if any(operand.has_immediate for operand in operands):
        place(NUMBER, low - IMMEDIATE_BITS)
    if any(operand.kind in ("either", "target") for operand in operands):
        place(IMMEDIATE_FLAG, IMMEDIATE_FLAG.low)
    for modifier in modifiers:
        place(modifier, modifier.low)
    form = Format(tuple(fields), places, 1, WORD_BITS)
    return Instruction(mnemonic, opcode, form, meaning, unit, operands, modifiers, cycles)

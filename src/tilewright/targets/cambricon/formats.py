"""What an instruction is: operands, modifiers, and where they lie in its 64-bit word.

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

WORD_BITS = 64
OPCODE_BITS = 8
REGISTER_BITS = 6
IMMEDIATE_BITS = 32
REGISTERS = 1 << REGISTER_BITS

Unit = Literal["scalar", "vector", "matrix", "vector_dma", "matrix_dma"]
"""What executes an instruction; all but ``scalar`` are reached through the memory queue."""

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
    """Whether the instruction writes this register (all others it reads)."""

    @property
    def has_register(self) -> bool:
        """Whether the word has a register field for it."""
        return self.kind != "immediate"

    @property
    def has_immediate(self) -> bool:
        """Whether it may take the word's immediate."""
        return self.kind != "register"


@dataclass(frozen=True)
class Modifier:
    """One field of the padding, 0 unless the text names it (``.acc``, ``.shift=7``)."""

    name: str
    low: int
    """Lowest bit in the word."""
    bits: int
    meaning: str
    signed: bool = False

    @property
    def range(self) -> tuple[int, int]:
        """Least and greatest value."""
        if self.signed:
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1

    @property
    def is_flag(self) -> bool:
        """Whether the text names it without a value."""
        return self.bits == 1


IMMEDIATE_FLAG = Modifier("immediate", 0, 1, "the last operand is the immediate")
"""Not written in text: it follows from the operand."""


@dataclass(frozen=True)
class Instruction:
    """One instruction: its name, its encoding and its meaning."""

    mnemonic: str
    opcode: int
    unit: Unit
    operands: tuple[Operand, ...]
    meaning: str
    """What it does, as formulas for the manual; ``#`` stands for the number of elements."""
    modifiers: tuple[Modifier, ...] = ()
    cycles: str = "1"
    """Time in its unit, for the manual."""

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Lowest bit of each operand's register field."""
        low = WORD_BITS - OPCODE_BITS
        places: dict[str, int] = {}
        for operand in self.operands:
            if operand.has_register:
                low -= REGISTER_BITS
                places[operand.name] = low
        return places

    @cached_property
    def immediate_low(self) -> int | None:
        """Lowest bit of the immediate, or None without one."""
        if not any(operand.has_immediate for operand in self.operands):
            return None
        return WORD_BITS - OPCODE_BITS - REGISTER_BITS * len(self.places) - IMMEDIATE_BITS

    @cached_property
    def flagged(self) -> bool:
        """Whether a bit says that an operand is the immediate and no register."""
        return any(operand.kind in ("either", "target") for operand in self.operands)

    @cached_property
    def by_name(self) -> Mapping[str, Modifier]:
        """The modifiers by name."""
        return {modifier.name: modifier for modifier in self.modifiers}

    @cached_property
    def mask(self) -> int:
        """The bits that mean something."""
        mask = ((1 << OPCODE_BITS) - 1) << (WORD_BITS - OPCODE_BITS)
        for low in self.places.values():
            mask |= (REGISTERS - 1) << low
        if self.immediate_low is not None:
            mask |= ((1 << IMMEDIATE_BITS) - 1) << self.immediate_low
        for modifier in (*self.modifiers, *((IMMEDIATE_FLAG,) if self.flagged else ())):
            field = ((1 << modifier.bits) - 1) << modifier.low
            if mask & field:
                raise ValueError(f"{self.mnemonic}: {modifier.name} overlaps another field")
            mask |= field
        return mask

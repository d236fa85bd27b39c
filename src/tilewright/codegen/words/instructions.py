"""Instructions and sets of them: name, encoding and meaning in one definition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from tilewright.codegen.words.fields import Field, Format


@dataclass(frozen=True)
class Instruction:
    """One instruction: its name, how it is encoded, and what it does.

    Targets derive from this class to say more: who executes it, what it touches, how long it takes.
    """

    mnemonic: str
    opcode: int
    format: Format
    """All fields but the opcode, which the set places."""
    meaning: str
    """The instruction's effect, for the manual: sentences, or formulas of the fields."""

    @property
    def units(self) -> int:
        """The length of the instruction, in units."""
        return self.format.units


AnyInstruction = TypeVar("AnyInstruction", bound=Instruction, covariant=True)
"""The type of a target's instructions."""


@dataclass(frozen=True)
class InstructionSet(Generic[AnyInstruction]):
    """Instructions whose first unit holds the opcode in one place.

    ``order`` is the byte order of units in files.
    """

    name: str
    opcode: Field
    opcode_low: int
    """The opcode's lowest bit in the first unit."""
    instructions: tuple[AnyInstruction, ...]
    order: str = "little"
    help: str = ""
    """Advice for the user where a value does not fit its field."""

    def __post_init__(self) -> None:
        if self.opcode_low + self.opcode.bits > self.unit_bits:
            raise ValueError(f"{self.name}: the opcode does not lie in the first unit")
        if len(self.by_opcode) != len(self.instructions):
            raise ValueError(f"{self.name}: two instructions have one opcode")
        if len(self.by_mnemonic) != len(self.instructions):
            raise ValueError(f"{self.name}: two instructions have one name")
        for instruction in self.instructions:
            if instruction.format.unit_bits != self.unit_bits:
                raise ValueError(f"{self.name}: units of several sizes")
            if not self.opcode.holds(instruction.opcode):
                raise ValueError(f"{instruction.mnemonic}: no such opcode")
            if int(instruction.format.masks[0]) & self.opcode.mask << self.opcode_low:
                raise ValueError(f"{instruction.mnemonic}: a field overlaps the opcode")

    @property
    def unit_bits(self) -> int:
        """Bits of a unit."""
        return self.instructions[0].format.unit_bits

    @cached_property
    def by_mnemonic(self) -> Mapping[str, AnyInstruction]:
        """The instructions by name."""
        return {instruction.mnemonic: instruction for instruction in self.instructions}

    @cached_property
    def by_opcode(self) -> Mapping[int, AnyInstruction]:
        """The instructions by opcode."""
        return {instruction.opcode: instruction for instruction in self.instructions}

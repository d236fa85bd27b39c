"""Decoded programs of derived instructions."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen import words
from tilewright.codegen.words import Units
from tilewright.targets.generic.isa import Instruction, InstructionSet


@dataclass(frozen=True)
class Program(words.Program[Instruction]):
    """A program whose instructions know their machine."""

    instructions: InstructionSet


def decode(instructions: InstructionSet, units: Units) -> Program:
    """The instructions of units; raises TilewrightError as ``codegen.words.decode`` does."""
    program = words.decode(instructions, units)
    return Program(instructions, program.units, program.starts, program.groups)

"""Programs of derived instructions: their parts, and decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.codegen import words
from tilewright.codegen.words import Column, Units
from tilewright.targets.generic.isa import Instruction, InstructionSet
from tilewright.tile.queues import Command


@dataclass
class Part:
    """Instructions of one kind in one kernel, and their keys in program order."""

    instruction: Instruction
    columns: dict[str, Any]
    keys: Column
    command: Command | None = None
    """The command of which they are the executions, if they are of one."""


@dataclass(frozen=True)
class Program(words.Program[Instruction]):
    """A program whose instructions know their machine."""

    instructions: InstructionSet


def decode(instructions: InstructionSet, units: Units) -> Program:
    """The instructions of units; raises TilewrightError as ``codegen.words.decode`` does."""
    program = words.decode(instructions, units)
    return Program(instructions, program.units, program.starts, program.groups)

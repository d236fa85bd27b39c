"""Targets whose packages hold instruction words, all of one length."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

from tilewright.codegen.program.files import ProgramParts, check_words, read_program, remarks_of
from tilewright.codegen.words import (
    Instruction,
    InstructionSet,
    assemble,
    disassemble,
    from_bytes,
    to_bytes,
)
from tilewright.codegen.words import manual as manual_of
from tilewright.machine import Machine
from tilewright.targets.base import Target


class WordTarget(Target):
    """A target with an assembler, a disassembler and listings."""

    image: ClassVar[str] = "image"
    """The name of its machine's own image in main memory (codegen/program/files.py)."""

    @abstractmethod
    def instruction_set(self, machine: Machine) -> InstructionSet[Instruction]:
        """The instructions of a machine."""

    def parts(self, directory: Path) -> ProgramParts:
        """The files of a package; refuses (``package-invalid``) what is damaged."""
        parts = read_program(directory, self.image)
        check_words(parts, self.word_bytes(parts.machine))
        return parts

    def word_bytes(self, machine: Machine) -> int:
        """Bytes of an instruction word."""
        instructions = self.instruction_set(machine)
        return instructions.instructions[0].units * instructions.unit_bits // 8

    def assemble(self, text: str, machine: Machine, name: str = "assembly") -> bytes:
        """Words of a source text."""
        instructions = self.instruction_set(machine)
        return to_bytes(instructions, assemble(instructions, text, name))

    def disassemble(self, data: bytes, machine: Machine) -> str:
        """The text of words."""
        instructions = self.instruction_set(machine)
        return disassemble(instructions, from_bytes(instructions, data))

    def listing(self, directory: Path) -> str:
        """The disassembly of a package's program, kernels and nodes as remarks."""
        parts = self.parts(directory)
        instructions, rows = self.instruction_set(parts.machine), remarks_of(parts.file.kernels)
        return disassemble(instructions, from_bytes(instructions, parts.data), rows)

    def manual(self, machine: Machine) -> str:
        """The instruction manual."""
        return manual_of(self.instruction_set(machine))

"""Words and columns: whole programs packed and unpacked at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import refuse
from tilewright.targets.generic.fields import Column, Lanes
from tilewright.targets.generic.isa import OPCODE_BITS, Instruction, InstructionSet


def encode(
    instructions: InstructionSet, instruction: Instruction, columns: Mapping[str, Any], count: int
) -> Lanes:
    """Words of ``count`` instructions of one kind; columns that are left out hold defaults."""
    return instruction.format.pack(columns, count, instructions.lanes, instruction.mnemonic)


@dataclass(frozen=True)
class Group:
    """All instructions of one kind in a program."""

    instruction: Instruction
    rows: Column
    """Their places in the program, ascending."""
    columns: dict[str, Column]

    def values(self, index: int) -> dict[str, int]:
        """The fields of one of them."""
        return {name: int(column[index]) for name, column in self.columns.items()}

    def waits(self, engine: str) -> Column:
        """How many commands of an engine each waits for."""
        column = self.columns.get(f"wait.{engine}")
        return np.zeros_like(self.rows) if column is None else column


@dataclass(frozen=True)
class Program:
    """A decoded program."""

    instructions: InstructionSet
    words: Lanes
    groups: tuple[Group, ...]

    @property
    def size(self) -> int:
        """Number of instructions."""
        return len(self.words)

    @cached_property
    def engine(self) -> NDArray[np.int16]:
        """Index of the engine of every instruction."""
        engine = np.zeros(self.size, np.int16)
        for group in self.groups:
            engine[group.rows] = group.instruction.engine
        return engine

    @cached_property
    def place(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Group, and index in the group, of every instruction."""
        which = np.zeros(self.size, np.int32)
        index = np.zeros(self.size, np.int32)
        for number, group in enumerate(self.groups):
            which[group.rows] = number
            index[group.rows] = np.arange(group.rows.size, dtype=np.int32)
        return which, index


def decode(instructions: InstructionSet, words: Lanes) -> Program:
    """The instructions of words.

    Raises TilewrightError (``isa-word``) for an unknown opcode, reserved bits that are set, or a
    selector out of range.
    """
    opcode = (words[:, 0] & np.uint64((1 << OPCODE_BITS) - 1)).astype(np.int64)
    known = np.isin(opcode, list(instructions.by_opcode))
    if not known.all():
        row = int(np.flatnonzero(~known)[0])
        raise refuse("isa-word", f"opcode {int(opcode[row])} is unknown", f"word {row}")
    groups: list[Group] = []
    for instruction in instructions.instructions:
        rows = np.flatnonzero(opcode == instruction.opcode)
        if not rows.size:
            continue
        chosen = words[rows]
        bad = instruction.format.invalid(chosen)
        if bad.any():
            row = int(rows[np.flatnonzero(bad)[0]])
            raise refuse("isa-word", f"no valid {instruction.mnemonic}", f"word {row}")
        groups.append(Group(instruction, rows.astype(np.int64), instruction.format.unpack(chosen)))
    return Program(instructions, words, tuple(groups))


def to_bytes(words: Lanes) -> bytes:
    """Words as they lie in a file: lanes in order, each little-endian."""
    return words.astype("<u8").tobytes()


def from_bytes(instructions: InstructionSet, data: bytes | memoryview) -> Lanes:
    """Words of a file; refuses a length that is no multiple of the word."""
    size = instructions.word_bytes
    if len(data) % size:
        raise refuse("isa-length", f"{len(data)} bytes are no whole number of {size}-byte words")
    return np.frombuffer(data, "<u8").reshape(-1, size // 8).astype(np.uint64)

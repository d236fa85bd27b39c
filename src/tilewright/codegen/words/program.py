"""Programs: statements to units, and units to columns, whole programs at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.words.fields import Column, Units
from tilewright.codegen.words.instructions import AnyInstruction, Instruction, InstructionSet
from tilewright.errors import TilewrightError, refuse


@dataclass(frozen=True)
class Statement:
    """One instruction to encode; fields that ``values`` leaves out take their default."""

    mnemonic: str
    values: Mapping[str, int]


@dataclass(frozen=True)
class Group(Generic[AnyInstruction]):
    """All instructions of one kind in a program."""

    instruction: AnyInstruction
    rows: Column
    """Numbers of the instructions in the program, ascending."""
    columns: dict[str, Column]

    def values(self, index: int) -> dict[str, int]:
        """The fields of one of them."""
        return {name: int(column[index]) for name, column in self.columns.items()}


@dataclass(frozen=True)
class Program(Generic[AnyInstruction]):
    """A program decoded from instruction words, grouped by instruction."""

    instructions: InstructionSet[AnyInstruction]
    units: Units
    """The program's units, in order: [units]."""
    starts: Column
    """Per instruction: the index of its first unit."""
    groups: tuple[Group[AnyInstruction], ...]

    @property
    def size(self) -> int:
        """The number of instructions in the program."""
        return len(self.starts)

    @cached_property
    def place(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Group, and index in the group, of every instruction."""
        which = np.zeros(self.size, np.int32)
        index = np.zeros(self.size, np.int32)
        for number, group in enumerate(self.groups):
            which[group.rows] = number
            index[group.rows] = np.arange(group.rows.size, dtype=np.int32)
        return which, index

    def mnemonic(self, row: int) -> str:
        """The name of an instruction."""
        return self.groups[int(self.place[0][row])].instruction.mnemonic

    def statements(self) -> list[Statement]:
        """The program instruction by instruction, every field given."""
        statements: list[Statement] = [Statement("", {})] * self.size
        for group in self.groups:
            columns = {name: column.tolist() for name, column in group.columns.items()}
            for index, row in enumerate(group.rows.tolist()):
                fields = {name: column[index] for name, column in columns.items()}
                statements[row] = Statement(group.instruction.mnemonic, fields)
        return statements


def encode(instructions: InstructionSet[Instruction], statements: Sequence[Statement]) -> Units:
    """Units of a program.

    Raises TilewrightError (``isa-field``) for a value that its field cannot hold, KeyError for what
    the set does not name.
    """
    rows: dict[str, list[int]] = {}
    lengths = np.zeros(len(statements), np.int64)
    for row, statement in enumerate(statements):
        rows.setdefault(statement.mnemonic, []).append(row)
        lengths[row] = instructions.by_mnemonic[statement.mnemonic].units
    starts = np.cumsum(lengths) - lengths
    units = np.zeros(int(lengths.sum()), np.uint64)
    for mnemonic, members in rows.items():
        instruction = instructions.by_mnemonic[mnemonic]
        names = {name for row in members for name in statements[row].values}
        columns = {
            name: np.array(
                [
                    statements[row].values.get(name, instruction.format.by_name[name].initial)
                    for row in members
                ],
                np.int64,
            )
            for name in sorted(names)
        }
        packed = encode_columns(instructions, instruction, columns, len(members))
        units[starts[members][:, None] + np.arange(instruction.units)] = packed
    return units


def encode_columns(
    instructions: InstructionSet[Instruction],
    instruction: Instruction,
    columns: Mapping[str, Any],
    count: int,
) -> Units:
    """Units [count, units] of instructions of one kind; fields without a column take their default.

    Raises TilewrightError (``isa-field``) for a value that its field cannot hold, KeyError for a
    column that is no field.
    """
    packed = instruction.format.pack(columns, count, instruction.mnemonic, instructions.help)
    packed[:, 0] |= np.uint64(instruction.opcode << instructions.opcode_low)
    return packed


def decode(instructions: InstructionSet[AnyInstruction], units: Units) -> Program[AnyInstruction]:
    """The instructions of units [units] or, where all have as many, [instructions, units].

    Raises TilewrightError (``isa-word``) for an unknown opcode, an instruction that the end cuts
    short, bits that no field names, or a selector out of range.
    """
    units = units.reshape(-1)
    mask, low = instructions.opcode.mask, instructions.opcode_low
    opcodes = (units >> np.uint64(low)) & np.uint64(mask)
    starts = _starts(instructions, opcodes, len(units))
    groups: list[Group[AnyInstruction]] = []
    chosen = opcodes[starts]
    for instruction in instructions.instructions:
        rows = np.flatnonzero(chosen == np.uint64(instruction.opcode)).astype(np.int64)
        if not rows.size:
            continue
        words = units[starts[rows][:, None] + np.arange(instruction.units)]
        words[:, 0] &= ~np.uint64(mask << low)
        bad = instruction.format.invalid(words)
        if bad.any():
            row = int(rows[np.argmax(bad)])
            raise refuse(
                "isa-word",
                f"no valid {instruction.mnemonic}: undefined bits are set, or a field has an "
                "undefined value",
                f"instruction {row}, unit {int(starts[row])}",
            )
        groups.append(Group(instruction, rows, instruction.format.unpack(words)))
    return Program(instructions, units, starts, tuple(groups))


def _starts(instructions: InstructionSet[Instruction], opcodes: Units, size: int) -> Column:
    """Return the first unit of each instruction, which is the end of the one before."""
    sizes = {instruction.units for instruction in instructions.instructions}
    if len(sizes) == 1 and not size % min(sizes):
        starts = np.arange(0, size, min(sizes), dtype=np.int64)
        known = np.isin(opcodes[starts], np.array([*instructions.by_opcode], np.uint64))
        if not known.all():
            raise _unknown(instructions, opcodes, int(np.argmin(known)), starts)
        return starts
    lengths = np.zeros(1 << instructions.opcode.bits, np.int64)
    for instruction in instructions.instructions:
        lengths[instruction.opcode] = instruction.units
    after = lengths[opcodes.astype(np.int64)].tolist()
    units: list[int] = []
    unit = 0
    while unit < size:
        if not after[unit]:
            raise _unknown(instructions, opcodes, len(units), [*units, unit])
        units.append(unit)
        unit += after[unit]
    if unit > size:
        raise refuse(
            "isa-word",
            f"the program ends {unit - size} units before this instruction does",
            f"instruction {len(units) - 1}, unit {units[-1]}",
        )
    return np.array(units, np.int64)


def _unknown(
    instructions: InstructionSet[Instruction],
    opcodes: Units,
    row: int,
    starts: Sequence[int] | Column,
) -> TilewrightError:
    unit = int(starts[row])
    return refuse(
        "isa-word",
        f"opcode {int(opcodes[unit])} is unknown to {instructions.name}",
        f"instruction {row}, unit {unit}",
    )


def to_bytes(instructions: InstructionSet[Instruction], units: Units) -> bytes:
    """Units as they lie in a file."""
    return units.astype(_type(instructions)).tobytes()


def from_bytes(instructions: InstructionSet[Instruction], data: bytes | memoryview) -> Units:
    """Units of a file; refuses (``isa-length``) a length that is no multiple of the unit."""
    kind = _type(instructions)
    if len(data) % kind.itemsize:
        raise refuse(
            "isa-length", f"{len(data)} bytes are no whole number of {kind.itemsize}-byte units"
        )
    return np.frombuffer(data, kind).astype(np.uint64)


def _type(instructions: InstructionSet[Instruction]) -> np.dtype[np.unsignedinteger]:
    sign = "<" if instructions.order == "little" else ">"
    return np.dtype(f"{sign}u{instructions.unit_bits // 8}")

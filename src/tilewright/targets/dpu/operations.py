"""A decoded program as operations: every instruction with the fields that its INITs have set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilewright.codegen.words import Group, Program, decode, from_bytes, instruction_text
from tilewright.errors import TilewrightError, refuse
from tilewright.targets.dpu.core import Core
from tilewright.targets.dpu.formats import CATEGORIES, CoreInstruction
from tilewright.targets.dpu.isa import REVISIONS

MOST_OPERANDS = 64
"""ELEWINITs that wait for their ELEW."""


@dataclass(frozen=True)
class Operation:
    """One instruction of a program, ready to be executed."""

    number: int
    """Number of the instruction in the program, from 0."""
    instruction: CoreInstruction
    fields: Mapping[str, int]
    """Values of the instruction's own fields, and of those of the INIT before it."""
    place: tuple[Group[CoreInstruction], int]
    """The group in the decoded program, and the number of the instruction in it."""
    operands: tuple[Mapping[str, int], ...] = ()
    """Fields of the ELEWINITs of an ELEW."""

    @property
    def text(self) -> str:
        """The instruction as the disassembler writes it."""
        return instruction_text(*self.place)

    @property
    def mnemonic(self) -> str:
        """The mnemonic of the operation's instruction."""
        return self.instruction.mnemonic

    @property
    def engine(self) -> int:
        """Index into CATEGORIES, and into the engines of the machine."""
        return CATEGORIES.index(self.instruction.category)

    @property
    def name(self) -> str:
        """The name of the operation in messages."""
        return f"instruction {self.number} ({self.text})"

    def refuse(self, reason: str, help: str = "") -> TilewrightError:
        """The error (``program-field``) for fields that it cannot have together."""
        return refuse("program-field", reason, self.name, help)


def read_program(core: Core, data: bytes) -> list[Operation]:
    """The operations of a file of words of the core's revision; raises TilewrightError."""
    instructions = REVISIONS[core.isa]
    return operations_of(decode(instructions, from_bytes(instructions, data)))


def operations_of(program: Program[CoreInstruction]) -> list[Operation]:
    """The operations of a decoded program.

    Raises TilewrightError: ``program-state`` for an instruction whose INIT is missing,
    ``program-token`` for one that does not wait for, or does not tell, its own class, and
    ``program-end`` where END does not stand at the end, once.
    """
    which, index = (column.tolist() for column in program.place)
    statements = program.statements()
    initial: dict[str, Mapping[str, int]] = {}
    waiting: list[Mapping[str, int]] = []
    operations: list[Operation] = []
    for row in range(program.size):
        group = program.groups[which[row]]
        instruction = group.instruction
        values: Mapping[str, int] = statements[row].values
        operation = Operation(row, instruction, values, (group, index[row]))
        bit = 1 << CATEGORIES.index(instruction.category)
        if not values["take"] & values["put"] & bit:
            raise refuse(
                "program-token",
                f"take and put must both name {instruction.category}",
                operation.name,
            )
        operands: tuple[Mapping[str, int], ...] = ()
        if instruction.mnemonic == "elewinit":
            if len(waiting) == MOST_OPERANDS:
                raise refuse(
                    "program-state", f"no ELEW uses {MOST_OPERANDS} ELEWINITs", operation.name
                )
            waiting.append(values)
        elif instruction.sets:
            initial[instruction.sets] = values
        elif instruction.mnemonic == "elew":
            if len(waiting) < values["num"]:
                reason = f"has {len(waiting)} ELEWINITs of {values['num']}"
                raise refuse("program-state", reason, operation.name)
            operands, waiting = tuple(waiting[: values["num"]]), waiting[values["num"] :]
        elif instruction.mnemonic in ("conv", "pool", "dwconv", "alu"):
            if instruction.mnemonic not in initial:
                raise refuse("program-state", "no INIT stands before it", operation.name)
            values = {**initial[instruction.mnemonic], **values}
        if (instruction.mnemonic == "end") != (row == program.size - 1):
            raise refuse("program-end", "END is the last instruction, and no other", operation.name)
        operations.append(replace(operation, fields=values, operands=operands))
    return operations

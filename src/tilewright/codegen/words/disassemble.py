"""The disassembler: units to text that the assembler reads back to the same units."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.words.fields import Units
from tilewright.codegen.words.instructions import Instruction, InstructionSet
from tilewright.codegen.words.program import Group, decode

Remarks = Sequence[tuple[int, str]]
"""Texts, each with the number of the instruction before which it stands."""


def disassemble(
    instructions: InstructionSet[Instruction], units: Units, remarks: Remarks = ()
) -> str:
    """The text of units. Fields that hold their default are left out.

    Raises TilewrightError (``isa-word``) for units that are no instructions.
    """
    program = decode(instructions, units)
    which, index = program.place
    pending = sorted(remarks, key=lambda remark: remark[0], reverse=True)
    lines: list[str] = []
    for row in range(program.size):
        while pending and pending[-1][0] <= row:
            lines.append("; " + " ".join(pending.pop()[1].split()))
        lines.append(instruction_text(program.groups[which[row]], int(index[row])))
    return "".join(f"{line}\n" for line in lines)


def instruction_text(group: Group[Instruction], index: int) -> str:
    """One instruction of a group."""
    parts = [
        f"{field.name}={field.text(value)}"
        for field in group.instruction.format.fields
        if (value := int(group.columns[field.name][index])) != field.initial
    ]
    return f"{group.instruction.mnemonic} {', '.join(parts)}".rstrip()

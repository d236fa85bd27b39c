"""The disassembler: units to text that the assembler reads back to the same units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.codegen.words.fields import Units
from tilewright.codegen.words.instructions import Instruction, InstructionSet
from tilewright.codegen.words.program import Group, Program, decode

Remarks = Sequence[tuple[int, str]]
"""Texts, each with the number of the instruction before which it stands."""


def disassemble(
    instructions: InstructionSet[Instruction], units: Units, remarks: Remarks = ()
) -> str:
    """The text of units. Fields that hold their default are left out.

    Raises TilewrightError (``isa-word``) for units that are no instructions.
    """
    program = decode(instructions, units)
    lines = _with_remarks(remarks, _texts(program))
    return "".join(f"{line}\n" for line in lines)


def listing(instructions: InstructionSet[Instruction], units: Units, remarks: Remarks = ()) -> str:
    """As ``disassemble``, with the byte address and the units of each instruction before it."""
    program = decode(instructions, units)
    size = instructions.unit_bits // 8
    longest = max((group.instruction.units for group in program.groups), default=0)
    width = longest * (2 * size + 1)

    def lines() -> Iterator[str]:
        starts = program.starts.tolist()
        rows = zip(starts, [*starts, len(units)][1:], _texts(program), strict=True)
        for start, end, text in rows:
            words = " ".join(f"{int(unit):0{2 * size}x}" for unit in units[start:end])
            yield f"{start * size:08x}  {words:<{width}} {text}"

    return "".join(f"{line}\n" for line in _with_remarks(remarks, lines()))


def instruction_text(group: Group[Instruction], index: int) -> str:
    """One instruction of a group."""
    parts = [
        f"{field.name}={field.text(value)}"
        for field in group.instruction.format.fields
        if (value := int(group.columns[field.name][index])) != field.initial
    ]
    return f"{group.instruction.mnemonic} {', '.join(parts)}".rstrip()


def _texts(program: Program[Instruction]) -> Iterator[str]:
    which, index = program.place
    for row in range(program.size):
        yield instruction_text(program.groups[which[row]], int(index[row]))


def _with_remarks(remarks: Remarks, lines: Iterator[str]) -> Iterator[str]:
    pending = sorted(remarks, key=lambda remark: remark[0], reverse=True)
    for row, line in enumerate(lines):
        while pending and pending[-1][0] <= row:
            yield "; " + " ".join(pending.pop()[1].split())
        yield line

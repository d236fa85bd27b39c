"""The disassembler: words to text that the assembler reads back to the same words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.targets.generic.encode import Group, decode
from tilewright.targets.generic.fields import Field, Lanes
from tilewright.targets.generic.isa import InstructionSet


def disassemble(
    instructions: InstructionSet, words: Lanes, remarks: Sequence[tuple[int, str]] = ()
) -> str:
    """The text of words; ``remarks`` stand before the instruction of their number.

    Fields that hold their default are left out. Raises TilewrightError for words that are no
    instructions.
    """
    return "".join(f"{line}\n" for line in listing(instructions, words, remarks))


def listing(
    instructions: InstructionSet, words: Lanes, remarks: Sequence[tuple[int, str]] = ()
) -> Iterator[str]:
    """The lines of ``disassemble``."""
    program = decode(instructions, words)
    which, index = program.place
    pending = sorted(remarks, key=lambda remark: remark[0], reverse=True)
    for row in range(program.size):
        while pending and pending[-1][0] <= row:
            yield "; " + " ".join(pending.pop()[1].split())
        yield instruction_text(program.groups[which[row]], int(index[row]))


def instruction_text(group: Group, index: int) -> str:
    """One instruction."""
    parts: list[str] = []
    for field in group.instruction.format.fields:
        if field.name == "opcode":
            continue
        value = int(group.columns[field.name][index])
        if value != field.default:
            parts.append(f"{field.name}={_text(field, value)}")
    return f"{group.instruction.mnemonic} {', '.join(parts)}".rstrip()


def _text(field: Field, value: int) -> str:
    if field.choices:
        return field.choices[value]
    if field.name.endswith("address") or field.name in ("extra.source", "extra.target"):
        return f"{value:#x}"
    return str(value)

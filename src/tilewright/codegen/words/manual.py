"""The instruction manual, made from the definitions: a markdown page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tilewright.codegen.words.fields import Field, Format
from tilewright.codegen.words.instructions import Instruction, InstructionSet
from tilewright.machine import Machine
from tilewright.system.template import filled


def manual(instructions: InstructionSet[Instruction], introduction: str = "") -> str:
    """Every instruction with its meaning, length and fields."""
    text = filled(
        Path(__file__).with_suffix(".in"),
        introduction=introduction,
        unit_bits=instructions.unit_bits,
        order=instructions.order,
        opcode=bits_text(instructions.opcode_low, instructions.opcode.bits),
    )
    sections = {
        one.mnemonic: (
            (f"{one.opcode:#x}", str(one.units)),
            (one.meaning, *([field_table(one.format)] if one.format.fields else ())),
        )
        for one in instructions.instructions
    }
    return page(instructions.name, text, ("opcode", "units"), sections)


def page(
    name: str,
    introduction: str,
    columns: Sequence[str],
    instructions: Mapping[str, tuple[Sequence[str], Iterable[str]]],
) -> str:
    """An introduction, a table of all instructions and a section for each.

    ``instructions`` have, by mnemonic, the cells of that table under ``columns``, and the
    paragraphs of the section.
    """
    rows = ([f"[{name}](#{name.lower()})", *cells] for name, (cells, _) in instructions.items())
    parts = [f"# Instructions of {name}", introduction.rstrip()]
    parts.append(table(["instruction", *columns], rows))
    for mnemonic, (_, paragraphs) in instructions.items():
        parts += [f"## {mnemonic}", *paragraphs]
    return "\n\n".join(parts) + "\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A markdown table with a row for each instruction or field."""
    lines = ["| " + " | ".join(row) + " |" for row in (columns, *rows)]
    return "\n".join([lines[0], "|---" * len(columns) + "|", *lines[1:]])


def field_table(form: Format) -> str:
    """A table of the fields: place, values, default, meaning."""
    rows = (
        [
            f"`{field.name}`",
            str(form.places[field.name][0]),
            bits_text(form.places[field.name][1], field.bits),
            field.allowed(),
            field.text(field.initial),
            _meaning(field),
        ]
        for field in form.fields
    )
    return table(["field", "unit", "bits", "values", "default", "meaning"], rows)


def memory_list(machine: Machine) -> str:
    """A list of the memories with their sizes."""
    return "\n".join(
        f"- `{memory.name}`: {'main memory' if memory.bytes is None else f'{memory.bytes} bytes'}"
        for memory in machine.memories
    )


def bits_text(low: int, bits: int) -> str:
    """A place in a word, highest bit first."""
    return f"{low + bits - 1}:{low}" if bits > 1 else f"{low}"


def _meaning(field: Field) -> str:
    parts = [field.meaning] if field.meaning else []
    if field.signed:
        parts.append("signed")
    if field.scale != 1:
        parts.append(f"stored divided by {field.scale}")
    if field.bias:
        parts.append(f"stored minus {field.bias}")
    return "; ".join(parts)

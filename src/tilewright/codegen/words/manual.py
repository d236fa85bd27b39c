"""The instruction manual, made from the definitions."""

from __future__ import annotations

from tilewright.codegen.words.fields import Field, Format
from tilewright.codegen.words.instructions import Instruction, InstructionSet


def manual(instructions: InstructionSet[Instruction], introduction: str = "") -> str:
    """A markdown page: every instruction with its meaning, length and fields."""
    opcode = instructions.opcode
    lines = [
        f"# Instructions of {instructions.name}",
        "",
        *([introduction, ""] if introduction else []),
        f"Instructions are rows of units of {instructions.unit_bits} bits, "
        f"{instructions.order}-endian in files; the opcode lies in bits "
        f"{_bits(opcode, instructions.opcode_low)} of the "
        "first. Bits that no field names are zero.",
        "",
        "Assembly has one instruction a line, `mnemonic field=value, ...`; fields that are left "
        "out hold their default. Names of a set are joined by `+`. `;` starts a remark.",
        "",
        "| instruction | opcode | units |",
        "|---|---|---|",
        *(
            f"| [{instruction.mnemonic}](#{instruction.mnemonic}) | "
            f"{instruction.opcode:#x} | {instruction.units} |"
            for instruction in instructions.instructions
        ),
        "",
    ]
    for instruction in instructions.instructions:
        lines += _page(instruction)
    return "\n".join(lines).rstrip() + "\n"


def _page(instruction: Instruction) -> list[str]:
    return [
        f"## {instruction.mnemonic}",
        "",
        instruction.meaning,
        "",
        *(field_table(instruction.format) if instruction.format.fields else []),
    ]


def field_table(form: Format) -> list[str]:
    """Lines of a table of the fields: place, values, default, meaning."""
    lines = [
        "| field | unit | bits | values | default | meaning |",
        "|---|---|---|---|---|---|",
    ]
    for field in form.fields:
        unit, low = form.places[field.name]
        lines.append(
            f"| `{field.name}` | {unit} | {_bits(field, low)} | {field.allowed()} | "
            f"{field.text(field.initial)} | {_meaning(field)} |"
        )
    return [*lines, ""]


def _bits(field: Field, low: int) -> str:
    return f"{low + field.bits - 1}:{low}" if field.bits > 1 else f"{low}"


def _meaning(field: Field) -> str:
    parts = [field.meaning] if field.meaning else []
    if field.signed:
        parts.append("signed")
    if field.scale != 1:
        parts.append(f"stored divided by {field.scale}")
    if field.bias:
        parts.append(f"stored minus {field.bias}")
    return "; ".join(parts)

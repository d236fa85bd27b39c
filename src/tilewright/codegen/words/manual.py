"""The instruction manual, made from the definitions."""

from __future__ import annotations

from tilewright.codegen.words.fields import Field
from tilewright.codegen.words.instructions import Instruction, InstructionSet


def manual(instructions: InstructionSet, introduction: str = "") -> str:
    """A markdown page: every instruction with its meaning, length and fields."""
    opcode = instructions.opcode
    lines = [
        f"# Instructions of {instructions.name}",
        "",
        *([introduction, ""] if introduction else []),
        f"Instructions are rows of units of {instructions.unit_bits} bits, "
        f"{instructions.order}-endian in files; the opcode lies in bits {_bits(opcode)} of the "
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
    lines = [f"## {instruction.mnemonic}", "", instruction.meaning, ""]
    if instruction.format.fields:
        lines += [
            "| field | unit | bits | values | default | meaning |",
            "|---|---|---|---|---|---|",
        ]
    for field in instruction.format.fields:
        lines.append(
            f"| `{field.name}` | {field.unit} | {_bits(field)} | {field.allowed()} | "
            f"{field.text(field.initial)} | {_meaning(field)} |"
        )
    return [*lines, ""] if instruction.format.fields else lines


def _bits(field: Field) -> str:
    high = field.low + field.bits - 1
    return f"{high}:{field.low}" if field.bits > 1 else f"{field.low}"


def _meaning(field: Field) -> str:
    parts = [field.meaning] if field.meaning else []
    if field.signed:
        parts.append("signed")
    if field.scale != 1:
        parts.append(f"stored divided by {field.scale}")
    if field.bias:
        parts.append(f"stored minus {field.bias}")
    return "; ".join(parts)

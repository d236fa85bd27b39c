"""The assembler: text to words."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, cast

import numpy as np
from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput

from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.targets.generic.encode import encode
from tilewright.targets.generic.fields import Field, Lanes
from tilewright.targets.generic.isa import Instruction, InstructionSet

MAX_TEXT = 1 << 26
"""Characters of a source text."""

MAX_PROBLEMS = 20
"""Problems that one refusal lists."""

MAX_DIGITS = 24


@cache
def _parser() -> Lark:
    grammar = files("tilewright.targets.generic").joinpath("assembly.lark").read_text()
    return Lark(grammar, start="program", parser="lalr", propagate_positions=True)


def assemble(instructions: InstructionSet, text: str, name: str = "assembly") -> Lanes:
    """Words of a source text; raises TilewrightError with the lines and columns of problems."""
    if len(text) > MAX_TEXT:
        raise refuse("asm-size", f"{len(text)} characters are more than {MAX_TEXT}", name)
    try:
        tree: Tree[Any] = _parser().parse(text)
    except UnexpectedInput as error:
        raise _syntax(error, text, name) from None
    problems: list[Problem] = []
    rows: dict[str, list[tuple[int, dict[str, int]]]] = {}
    lines = [node for node in tree.children if isinstance(node, Tree)]
    for row, line in enumerate(lines):
        mnemonic = cast(Token, line.children[0])
        instruction = instructions.by_mnemonic.get(str(mnemonic))
        if instruction is None:
            known = ", ".join(instructions.by_mnemonic)
            problems.append(_problem(name, mnemonic, "is no instruction", known))
        else:
            values = _fields(name, instruction, line, problems)
            rows.setdefault(instruction.mnemonic, []).append((row, values))
        if len(problems) >= MAX_PROBLEMS:
            break
    if problems:
        raise TilewrightError(problems)
    words = np.zeros((len(lines), instructions.lanes), np.uint64)
    for mnemonic, entries in rows.items():
        instruction = instructions.by_mnemonic[mnemonic]
        columns = {
            field.name: np.array([v.get(field.name, field.default) for _, v in entries], np.int64)
            for field in instruction.format.fields
        }
        words[[row for row, _ in entries]] = encode(
            instructions, instruction, columns, len(entries)
        )
    return words


def _fields(
    name: str, instruction: Instruction, line: Tree[Any], problems: list[Problem]
) -> dict[str, int]:
    """The values of one line's fields; what is wrong goes to ``problems``."""
    values: dict[str, int] = {}
    for node in line.children[1:]:
        if not isinstance(node, Tree):
            continue
        key, token = cast("list[Token]", node.children)
        field = instruction.format.by_name.get(str(key))
        if field is None or field.name == "opcode":
            known = ", ".join(f.name for f in instruction.format.fields if f.name != "opcode")
            problems.append(_problem(name, key, f"is no field of {instruction.mnemonic}", known))
        elif field.name in values:
            problems.append(_problem(name, key, "is given twice"))
        else:
            value = _value(field, token)
            if value is None:
                low, high = field.range
                wanted = ", ".join(field.choices) if field.choices else f"{low} to {high}"
                problems.append(_problem(name, token, f"is no value of {key}", wanted))
            else:
                values[field.name] = value
    return values


def _value(field: Field, token: Token) -> int | None:
    text = str(token)
    if field.choices:
        return field.choices.index(text) if text in field.choices else None
    if token.type != "NUMBER" or len(text) > MAX_DIGITS:
        return None
    value = int(text, 0) if "x" in text.lower() else int(text)
    low, high = field.range
    return value if low <= value <= high else None


def _problem(name: str, token: Token, reason: str, help: str = "") -> Problem:
    where = f"{name}:{token.line}:{token.column}"
    return Problem("asm-invalid", f"{str(token)[:80]!r} {reason}", where, help)


def _syntax(error: UnexpectedInput, text: str, name: str) -> TilewrightError:
    line, column = error.line, error.column
    at_end = getattr(getattr(error, "token", None), "type", "") == "$END"
    if isinstance(error, UnexpectedEOF) or at_end or line < 1:
        lines = text.split("\n")
        line, column = len(lines), len(lines[-1]) + 1
    if isinstance(error, UnexpectedCharacters):
        shown = repr(text[error.pos_in_stream or 0 :][:20])
    else:
        token = getattr(error, "token", None)
        shown = repr(str(token)[:20]) if token is not None and str(token).strip() else "the end"
    return refuse(
        "asm-syntax",
        f"{shown} is not expected here",
        f"{name}:{line}:{column}",
        "a line is: mnemonic field=value, field=value, ...",
    )

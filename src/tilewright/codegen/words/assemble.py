"""The assembler: text to units."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, cast

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput

from tilewright.codegen.words.fields import Field, Units
from tilewright.codegen.words.instructions import Instruction, InstructionSet
from tilewright.codegen.words.program import Statement, encode
from tilewright.errors import Problem, TilewrightError, refuse

MAX_TEXT = 1 << 26
"""Characters of a source text."""

MAX_PROBLEMS = 20
"""Problems that one refusal lists."""

MAX_DIGITS = 24


@cache
def _parser() -> Lark:
    grammar = files("tilewright.codegen.words").joinpath("assembly.lark").read_text()
    return Lark(grammar, start="program", parser="lalr", propagate_positions=True)


def assemble(instructions: InstructionSet[Instruction], text: str, name: str = "assembly") -> Units:
    """Units of a source text; raises TilewrightError with the lines and columns of problems."""
    return encode(instructions, parse(instructions, text, name))


def parse(
    instructions: InstructionSet[Instruction], text: str, name: str = "assembly"
) -> list[Statement]:
    """The statements of a source text; raises TilewrightError (``asm-...``)."""
    if len(text) > MAX_TEXT:
        raise refuse("asm-size", f"{len(text)} characters are more than {MAX_TEXT}", name)
    try:
        tree: Tree[Any] = _parser().parse(text)
    except UnexpectedInput as error:
        raise _syntax(error, text, name) from None
    problems: list[Problem] = []
    statements: list[Statement] = []
    for line in tree.children:
        if not isinstance(line, Tree):
            continue
        mnemonic = cast(Token, line.children[0])
        instruction = instructions.by_mnemonic.get(str(mnemonic))
        if instruction is None:
            known = ", ".join(instructions.by_mnemonic)
            problems.append(_problem(name, mnemonic, "is no instruction", known))
        else:
            values = _fields(name, instruction, line, problems)
            statements.append(Statement(instruction.mnemonic, values))
        if len(problems) >= MAX_PROBLEMS:
            break
    if problems:
        raise TilewrightError(problems)
    return statements


def _fields(
    name: str, instruction: Instruction, line: Tree[Any], problems: list[Problem]
) -> dict[str, int]:
    """The values of one line's fields; what is wrong goes to ``problems``."""
    values: dict[str, int] = {}
    for node in line.children[1:]:
        if not isinstance(node, Tree):
            continue
        key, value_node = cast("tuple[Token, Token | Tree[Token]]", node.children)
        field = instruction.format.by_name.get(str(key))
        if field is None:
            known = ", ".join(instruction.format.by_name) or "it has none"
            reason = f"is no field of {instruction.mnemonic}"
            problems.append(_problem(name, key, reason, known))
        elif field.name in values:
            problems.append(_problem(name, key, "is given twice"))
        else:
            value = _value(field, value_node)
            if value is None:
                token = (
                    value_node
                    if isinstance(value_node, Token)
                    else cast(Token, value_node.children[0])
                )
                problems.append(_problem(name, token, f"is no value of {key}", field.allowed()))
            else:
                values[field.name] = value
    return values


def _value(field: Field, node: Token | Tree[Token]) -> int | None:
    if isinstance(node, Tree):
        return field.value_of([str(token) for token in node.children])
    text = str(node)
    if len(text) > MAX_DIGITS or field.choices or field.flags:
        return None
    value = int(text, 0) if "x" in text.lower() else int(text)
    return value if field.holds(value) else None


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

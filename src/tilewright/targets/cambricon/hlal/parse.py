"""HLAL text to its syntax tree; syntax errors by line and column, several at once."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from itertools import chain
from typing import TypeAlias

from lark import Lark, Token, Tree, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, VisitError
from lark.visitors import Transformer_NonRecursive

from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.targets.cambricon.hlal import syntax
from tilewright.targets.cambricon.hlal.syntax import Expression, Node, Operand, Parameter, Place
from tilewright.targets.cambricon.statements import MAX_PROBLEMS

MAX_TEXT = 1 << 24
"""Characters of a source text."""

MAX_NESTING = 200
"""Levels of the syntax tree; a condition in another one is three levels deeper."""

_Tree: TypeAlias = "Tree[Token]"


@cache
def _parser() -> Lark:
    grammar = files("tilewright.targets.cambricon.hlal").joinpath("hlal.lark").read_text()
    return Lark(grammar, parser="lalr", propagate_positions=True, maybe_placeholders=True)


def parse(text: str, name: str = "program") -> tuple[Node, ...]:
    """The statements of a text; raises TilewrightError (``hlal-syntax``, ``hlal-size``).

    A line that does not parse is left out and the rest is tried again, so that one refusal lists
    several lines; a broken line that opens or closes a block ends the list.
    """
    if len(text) > MAX_TEXT:
        raise refuse("hlal-size", f"{len(text)} characters are more than {MAX_TEXT}", name)
    lines = text.split("\n")
    problems: list[Problem] = []
    while True:
        try:
            tree: _Tree = _parser().parse("\n".join(lines))
        except UnexpectedInput as error:
            problem, line = _syntax(error, lines, name)
            problems.append(problem)
            broken = lines[line - 1]
            structure = any(word in broken for word in _STRUCTURE)
            if structure or not broken.strip() or len(problems) >= MAX_PROBLEMS:
                raise TilewrightError(problems) from None
            lines[line - 1] = ""
            continue
        if problems:
            raise TilewrightError(problems)
        return _built(tree, name)


_STRUCTURE = ("def_block", "Macro", "mend", "{", "}", "(", ")", "@if", "@else", "@end")


def _syntax(error: UnexpectedInput, lines: list[str], name: str) -> tuple[Problem, int]:
    line, column = error.line, error.column
    token = getattr(error, "token", None)
    at_end = getattr(token, "type", "") == "$END"
    if isinstance(error, UnexpectedEOF) or at_end or line < 1:
        line, column = len(lines), len(lines[-1]) + 1
    if isinstance(error, UnexpectedCharacters):
        shown = repr(lines[line - 1][column - 1 :][:20])
    else:
        text = "" if token is None or at_end else str(token)
        ends = "the end of the text" if at_end else "the end of the line"
        shown = repr(text[:40]) if text.strip() else ends
    return Problem(
        "hlal-syntax",
        f"{shown} is not expected here",
        f"{name}:{line}:{column}",
        "a statement is: mnemonic operand, operand, ... or @name argument, argument, ...",
    ), line


def _built(tree: _Tree, name: str) -> tuple[Node, ...]:
    """The statements of a text as nodes of the syntax tree."""
    depth, level = 0, [tree]
    while level:
        depth += 1
        level = [child for node in level for child in node.children if isinstance(child, Tree)]
    if depth > MAX_NESTING:
        raise refuse("hlal-size", f"statements lie more than {MAX_NESTING} levels deep", name)
    try:
        return _Builder(name).transform(tree)
    except VisitError as error:
        raise error.orig_exc from None


@v_args(inline=True)
class _Builder(Transformer_NonRecursive[Token, tuple[Node, ...]]):
    """Turns lark's trees into the syntax tree, from the leaves on; a method a rule."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file

    def at(self, token: Token) -> Place:
        return Place(self.file, token.line or 0, token.column or 0, str(token)[:80])

    def start(self, body: tuple[Node, ...]) -> tuple[Node, ...]:
        return body

    def body(self, *lines: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(chain.from_iterable(lines))

    def line(self, *nodes: Node) -> tuple[Node, ...]:
        return nodes

    def section(self, name: Token) -> Node:
        return syntax.Section(name[1:], self.at(name))

    def label(self, name: Token) -> Node:
        return syntax.Label(str(name), self.at(name))

    def data(self, kind: Token, name: Token, *items: Operand) -> Node:
        return syntax.Data(kind[1:], str(name), items, self.at(name))

    def scalar(self, kind: Token, name: Token, value: Operand | None = None) -> Node:
        return syntax.Scalar(kind[1:], str(name), value, self.at(name))

    def array(self, kind: Token, element: Token, name: Token, size: Expression) -> Node:
        return syntax.Array(str(kind), str(element), str(name), size, self.at(name))

    def registers(self, *names: Token) -> Node:
        registers = tuple(syntax.RegisterName(name[1:], self.at(name)) for name in names)
        return syntax.Registers(registers, registers[0].at)

    def let(self, _: Token, name: Token, value: Expression) -> Node:
        return syntax.Let(str(name), value, self.at(name))

    def table(self, _: Token, name: Token, function: Token, *numbers: Expression) -> Node:
        return syntax.Table(str(name), str(function), numbers, self.at(name))

    def condition(
        self,
        word: Token,
        value: Expression,
        then: tuple[Node, ...],
        otherwise: tuple[Node, ...] | None,
    ) -> Node:
        return syntax.Condition(value, then, otherwise or (), self.at(word))

    def assertion(self, word: Token, value: Expression, reason: Token) -> Node:
        return syntax.Assertion(value, reason[1:-1], self.at(word))

    def barrier(self, word: Token) -> Node:
        return syntax.Barrier(self.at(word))

    def invoke(self, name: Token, *arguments: Operand) -> Node:
        return syntax.Invoke(name[1:], arguments, self.at(name))

    def modifier(self, name: Token, value: Expression | None) -> tuple[str, Expression | None]:
        return str(name), value

    def atomic(self, name: Token, *parts: Operand | tuple[str, Expression | None]) -> Node:
        modifiers = tuple(part for part in parts if isinstance(part, tuple))
        operands = tuple(part for part in parts if not isinstance(part, tuple))
        return syntax.Atomic(str(name), modifiers, operands, self.at(name))

    def macro(self, kind: Token, name: Token, *more: Token | tuple[Node, ...]) -> Node:
        names = tuple(str(part) for part in more if isinstance(part, Token))
        body = next(part for part in more if isinstance(part, tuple))
        return syntax.Macro(kind[1:].partition("-")[0], str(name), names, body, self.at(name))

    def block(self, name: Token, *more: Parameter | tuple[Node, ...] | None) -> Node:
        parameters = tuple(part for part in more if isinstance(part, Parameter))
        body = next(part for part in more if isinstance(part, tuple))
        return syntax.Block(name[1:], parameters, body, self.at(name))

    def data_parameter(self, kind: Token, name: Token) -> Parameter:
        return Parameter(kind[1:], str(name))

    def macro_parameter(self, name: Token) -> Parameter:
        return Parameter("macro", name[1:])

    def number_parameter(self, name: Token) -> Parameter:
        return Parameter("number", str(name))

    def register_parameter(self, name: Token) -> Parameter:
        return Parameter("register", name[1:])

    def operand(self, part: Token | Expression) -> Operand:
        return syntax.RegisterName(part[1:], self.at(part)) if isinstance(part, Token) else part

    def binary(self, left: Expression, operator: Token, right: Expression) -> Expression:
        return syntax.Operation(str(operator), (left, right), left.at)

    def negative(self, minus: Token, value: Expression) -> Expression:
        return syntax.Operation("-", (value,), self.at(minus))

    def function(self, name: Token, *arguments: Expression) -> Expression:
        return syntax.Operation(str(name), arguments, self.at(name), function=True)

    def reference(self, name: Token, field: Token | None) -> Expression:
        return syntax.Reference(str(name), None if field is None else str(field), self.at(name))

    def number(self, text: Token) -> Expression:
        at = self.at(text)
        if len(text) > 24:
            raise refuse("hlal-value", f"{text[:40]!r} has too many digits", str(at))
        if text[:2] in ("0x", "0X"):
            return syntax.Number(int(text, 16), at)
        return syntax.Number(float(text) if "." in text else int(text), at)

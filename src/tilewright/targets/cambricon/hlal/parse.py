"""HLAL text to its syntax tree; syntax errors by line and column, several at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias, TypeVar, cast

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput

from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.targets.cambricon.hlal import syntax
from tilewright.targets.cambricon.hlal.syntax import Expression, Node, Operand, Place
from tilewright.targets.cambricon.statements import MAX_PROBLEMS

MAX_TEXT = 1 << 24
"""Characters of a source text."""

MAX_NESTING = 100
"""Depth of parentheses, conditions and blocks within one another."""

_Tree: TypeAlias = "Tree[Token]"
_T = TypeVar("_T")


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
        return _Builder(name).body(tree)


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


class _Builder:
    """Turns lark's trees into the syntax tree; a method a rule."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.depth = 0

    def place(self, node: _Tree | Token) -> Place:
        if isinstance(node, Token):
            return Place(self.file, node.line or 0, node.column or 0, str(node)[:80])
        return self.place(_first(node))

    def body(self, tree: _Tree) -> tuple[Node, ...]:
        if tree.data == "start":
            tree = cast(_Tree, tree.children[0])
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise refuse("hlal-size", f"blocks lie more than {MAX_NESTING} deep", self.file)
        nodes: list[Node] = []
        for line in tree.children:
            for child in cast(_Tree, line).children:
                node = cast(_Tree, child)
                build = cast("Callable[[_Tree], Node]", getattr(self, f"_{node.data}"))
                nodes.append(build(node))
        self.depth -= 1
        return tuple(nodes)

    def _section(self, tree: _Tree) -> Node:
        (name,) = _tokens(tree)
        return syntax.Section(str(name)[1:], self.place(name))

    def _label(self, tree: _Tree) -> Node:
        (name,) = _tokens(tree)
        return syntax.Label(str(name), self.place(name))

    def _data(self, tree: _Tree) -> Node:
        kind, name = _tokens(tree)
        return syntax.Data(str(kind)[1:], str(name), self.operands(tree), self.place(name))

    def _scalar(self, tree: _Tree) -> Node:
        kind, name = _tokens(tree)
        value = next(iter(self.operands(tree)), None)
        return syntax.Scalar(str(kind)[1:], str(name), value, self.place(name))

    def _array(self, tree: _Tree) -> Node:
        kind, element, name = _tokens(tree)
        size = self.expression(tree.children[3])
        return syntax.Array(str(kind), str(element), str(name), size, self.place(name))

    def _registers(self, tree: _Tree) -> Node:
        names = tuple(syntax.RegisterName(str(t)[1:], self.place(t)) for t in _tokens(tree))
        return syntax.Registers(names, names[0].at)

    def _let(self, tree: _Tree) -> Node:
        _, name = _tokens(tree)
        return syntax.Let(str(name), self.expression(tree.children[2]), self.place(name))

    def _table(self, tree: _Tree) -> Node:
        _, name, function, *_ = _tokens(tree)
        numbers = tuple(self.expression(child) for child in tree.children[3:])
        return syntax.Table(str(name), str(function), numbers, self.place(name))

    def _condition(self, tree: _Tree) -> Node:
        word, value, then, otherwise = cast("list[Any]", tree.children)
        return syntax.Condition(
            self.expression(value),
            self.body(then),
            self.body(otherwise) if otherwise is not None else (),
            self.place(word),
        )

    def _assertion(self, tree: _Tree) -> Node:
        word, value, reason = tree.children
        text = str(reason)[1:-1]
        return syntax.Assertion(self.expression(value), text, self.place(cast(Token, word)))

    def _barrier(self, tree: _Tree) -> Node:
        return syntax.Barrier(self.place(tree))

    def _invoke(self, tree: _Tree) -> Node:
        (name,) = _tokens(tree)
        return syntax.Invoke(str(name)[1:], self.operands(tree), self.place(name))

    def _atomic(self, tree: _Tree) -> Node:
        (name,) = _tokens(tree)
        modifiers: list[tuple[str, Expression | None]] = []
        for node in _subtrees(tree, "modifier"):
            key, *value = node.children
            expression = value[0] if value else None
            modifiers.append(
                (str(key), None if expression is None else self.expression(expression))
            )
        operands = self.operands(tree)
        return syntax.Atomic(str(name), tuple(modifiers), operands, self.place(name))

    def _macro(self, tree: _Tree) -> Node:
        kind, name, *parameters = _tokens(tree)
        body = self.body(next(_subtrees(tree, "body")))
        short = str(kind)[1:].partition("-")[0]
        names = tuple(str(parameter) for parameter in parameters)
        return syntax.Macro(short, str(name), names, body, self.place(name))

    def _block(self, tree: _Tree) -> Node:
        (name,) = _tokens(tree)
        parameters: list[syntax.Parameter] = []
        for node in tree.children:
            if not isinstance(node, Tree) or not node.data.endswith("_parameter"):
                continue
            tokens = _tokens(node)
            kind = str(tokens[0])[1:] if len(tokens) == 2 else node.data.removesuffix("_parameter")
            parameters.append(syntax.Parameter(kind, str(tokens[-1]).lstrip("$@")))
        body = self.body(next(_subtrees(tree, "body")))
        return syntax.Block(str(name)[1:], tuple(parameters), body, self.place(name))

    def operands(self, tree: _Tree) -> tuple[Operand, ...]:
        return tuple(self.operand(node) for node in _subtrees(tree, "operand"))

    def operand(self, tree: _Tree) -> Operand:
        (child,) = tree.children
        if isinstance(child, Token) and child.type == "REGISTER":
            return syntax.RegisterName(str(child)[1:], self.place(child))
        value = self.expression(child)
        return syntax.Immediate(value, value.at)

    def expression(self, node: Any) -> Expression:
        tree = cast(_Tree, node)
        at = self.place(tree)
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise refuse("hlal-size", f"expressions lie more than {MAX_NESTING} deep", str(at))
        try:
            return self._expression(tree, at)
        finally:
            self.depth -= 1

    def _expression(self, tree: _Tree, at: Place) -> Expression:
        children = tree.children
        match tree.data:
            case "number":
                return syntax.Number(_number(str(children[0]), at), at)
            case "reference":
                name, field = (*children, None)[:2]
                return syntax.Reference(str(name), None if field is None else str(field), at)
            case "negative":
                return syntax.Operation("-", (self.expression(children[1]),), at)
            case "function":
                name, *arguments = children
                operands = tuple(self.expression(child) for child in arguments)
                return syntax.Operation(str(name), operands, at, function=True)
            case _:
                left, operator, right = children
                operands = (self.expression(left), self.expression(right))
                return syntax.Operation(str(operator), operands, at)


def _number(text: str, at: Place) -> int | float:
    if len(text) > 24:
        raise refuse("hlal-value", f"{text[:40]!r} has too many digits", str(at))
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    return float(text) if "." in text else int(text)


def _tokens(tree: _Tree) -> list[Token]:
    return [child for child in tree.children if isinstance(child, Token)]


def _subtrees(tree: _Tree, name: str) -> Any:
    return (c for c in tree.children if isinstance(c, Tree) and c.data == name)


def _first(tree: _Tree) -> Token:
    for child in tree.children:
        if isinstance(child, Token):
            return child
        if child.children:
            return _first(child)
    return Token("_", "")

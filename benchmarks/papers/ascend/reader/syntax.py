"""The syntax of CCE C as kernels use it: functions of loops, calls and comments.

Expressions become values (program.py) that keep their text, with white space as emit.py sets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from lark import Lark, Token, Tree, UnexpectedInput, UnexpectedToken

from tilewright.codegen.nest.value import Expr, Value, variable
from tilewright.errors import refuse
from tilewright.targets.ascend.program import UNKNOWN

GRAMMAR = r"""
file: kernel+
kernel: COMMENT* ["extern" "\"C\""] signature ";" signature block
signature: "__global__" "__aicore__" "void" NAME "(" [parameter ("," parameter)*] ")"
parameter: "__gm__" TYPE "*" NAME | "int64_t" NAME -> size
block: "{" statement* "}"
?statement: COMMENT -> comment
    | "for" "(" "int64_t" NAME "=" "0" ";" NAME "<" value ";" NAME "++" ")" block -> loop
    | "const" "int64_t" NAME "=" value ";" -> constant
    | "int64_t" NAME "=" "0" ";" -> counter
    | NAME "=" value ";" -> count
    | NAME "(" [value ("," value)*] ")" ";" -> call
    | "(" "void" ")" NAME ";" -> unused

?value: compared | compared "?" value ":" value -> choice
?compared: sum | sum ("==" | "<" | ">" | ">=" | "<=") sum -> comparison
?sum: product | sum "+" product -> add | sum "-" product -> subtract
?product: unary | product "*" unary -> multiply | product "/" unary -> divide
    | product "%" unary -> modulo
?unary: atom | "-" unary -> negative | cast unary -> converted
?atom: NUMBER -> number | NAME -> name | "(" value ")" -> inside
    | NAME "[" value "]" -> element | EXTREME "(" value "," value ")" -> extreme
    | "(" "(" "uint64_t" "[" "]" ")" "{" value ("," value)* "}" ")" -> list
cast: "(" [QUALIFIER] TYPE ["*"] ")"

TYPE.2: /(half|float|u?int(8|16|32)_t|int64_t|uintptr_t|event_t)\b/
QUALIFIER.2: /__(gm|cbuf|ca|cb|cc|ubuf)__/
EXTREME.2: /(MIN|MAX)(?=\()/
NUMBER: /0x[0-9a-fA-F]+(ULL)?|[0-9]+(\.[0-9]*)?(e[-+]?[0-9]+)?(f|ULL)?/
NAME: /[A-Za-z_][A-Za-z0-9_]*/
COMMENT.3: /\/\*(.|\n)*?\*\//
DIRECTIVE.3: /#[^\n]*/
%ignore DIRECTIVE
%ignore /\s+/
"""

PYTHON = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "//",
    "modulo": "%",
}
"""Operators of non-negative integers, in which C's and Python's divisions agree."""

MOST_TEXT = 1 << 22
"""Characters of a file."""

MOST_OPERATIONS = 400
"""Numbers, names and operations of an expression."""

MOST_DEPTH = 64
"""Blocks, and parentheses, within each other."""


@dataclass(frozen=True)
class Source:
    """A text, for slices of it and for where a refusal is."""

    text: str

    def slice(self, tree: Tree[Token]) -> str:
        """The text of a node, with single spaces."""
        return " ".join(self.text[tree.meta.start_pos : tree.meta.end_pos].split())


@cache
def _parser(start: str) -> Lark:
    return Lark(GRAMMAR, start=start, parser="lalr", propagate_positions=True)


def parsed(text: str, start: str = "file") -> Tree[Token]:
    """The tree of a text; refuses (``cce-syntax``) other texts, with the line."""
    if len(text) > MOST_TEXT:
        raise refuse("cce-syntax", f"{len(text)} characters; a kernel has {MOST_TEXT} at most")
    depth = deepest = 0
    for character in text:
        depth += (character in "({") - (character in ")}")
        deepest = max(deepest, depth)
    if deepest > MOST_DEPTH:
        raise refuse("cce-syntax", f"brackets lie {deepest} deep; {MOST_DEPTH} are the most")
    try:
        return _parser(start).parse(text)
    except UnexpectedInput as error:
        rest = text[error.pos_in_stream or 0 :].split("\n", 1)[0][:60]
        reason = f"no kernel goes on with {rest!r}"
        if isinstance(error, UnexpectedToken) and error.token.type == "$END":
            reason = "the text ends early"
        raise refuse(
            "cce-syntax",
            reason,
            f"line {error.line}, column {error.column}",
            "loops from 0, calls of instructions and comments, as emitted kernels have",
        ) from None


def is_integer(number: str) -> bool:
    """Return True if a number is a plain integer: no float, and no word of bits (``0x1ULL``)."""
    return number.isdigit() or (number.startswith("0x") and not number.endswith("ULL"))


def value_of(source: Source, tree: Tree[Token]) -> Value:
    """An integer, or an expression of loop variables; refuses (``cce-value``) all else."""
    if sum(1 for _ in tree.iter_subtrees()) > MOST_OPERATIONS:
        raise refuse("cce-value", "an expression too long to read", f"line {tree.meta.line}")
    if tree.data == "number" and is_integer(str(tree.children[0])):
        return int(str(tree.children[0]), 0)
    text = source.slice(tree)
    return Expr(text, _python(source, tree), 1)


def _python(source: Source, tree: Tree[Token]) -> str:
    """An expression in Python, every operation in parentheses."""
    parts = [child for child in tree.children if isinstance(child, Tree)]
    if tree.data in PYTHON:
        left, right = (_python(source, part) for part in parts)
        return f"({left} {PYTHON[tree.data]} {right})"
    if tree.data == "choice":
        condition, chosen, other = (_python(source, part) for part in parts)
        return f"({chosen} if {condition} else {other})"
    if tree.data == "comparison":
        left, right = parts
        between = source.text[left.meta.end_pos : right.meta.start_pos].strip()
        return f"({_python(source, left)} {between} {_python(source, right)})"
    if tree.data == "inside":
        return _python(source, parts[0])
    if tree.data == "negative":
        return f"(-{_python(source, parts[0])})"
    if tree.data == "extreme":
        left, right = (_python(source, part) for part in parts)
        return f"{str(tree.children[0]).lower()}({left}, {right})"
    if tree.data == "element":
        return UNKNOWN
    if tree.data == "name":
        return variable(str(tree.children[0])).python
    number = str(tree.children[0]) if tree.data == "number" else ""
    if is_integer(number):
        return str(int(number, 0))
    raise refuse(
        "cce-value", f"{source.slice(tree)[:60]!r} is no integer", f"line {tree.meta.line}"
    )


def names_of(tree: Tree[Token]) -> set[str]:
    """The names in an expression."""
    return {str(node.children[0]) for node in tree.find_data("name")}


def trees(children: Sequence[Tree[Token] | Token | None]) -> list[Tree[Token]]:
    """Return the children of a node that are nodes."""
    return [child for child in children if isinstance(child, Tree)]

"""Reading and printing the parts that the tile operations' text is made of.

An operation states its syntax as ``TEXT``, words with spaces between:

- ``to`` is a keyword, ``[joined]`` an optional one, which stands for a UnitAttr of that name;
- ``$name`` is a property as a string, ``#name`` as an integer, ``=name`` as any plain value,
  ``{name}`` as a dictionary of pairs, ``*name`` as a list;
- ``%name`` is an operand, ``:`` the type of the result;
- ``[with $name]`` is a keyword with one of these, left out where there is no such property or
  operand, or where the list (``*name``) is empty;
- ``...a,b`` is what the operation prints and reads itself, properties ``a`` and ``b``.

Other properties and attributes follow as a dictionary, then the body.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tilewright.ir import (
    ArrayAttr,
    Attribute,
    Block,
    PlainParser,
    Printer,
    PythonValue,
    SSAValue,
    StringAttr,
    UnitAttr,
    from_attribute,
    integer,
    to_attribute,
)

if TYPE_CHECKING:
    from tilewright.tile.operations.base import TextOperation

Op = TypeVar("Op", bound="TextOperation")
_MAXIMUM_DEPTH = 16


def plain_text(value: PythonValue) -> str:
    """A plain value as text that ``parse_plain`` reads: ``[1, 2.5, "a", true]``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        text = repr(value)
        mantissa, exponent, power = text.partition("e")
        return mantissa + ("" if "." in mantissa else ".0") + exponent + power
    if isinstance(value, str):
        return quoted(value)
    return "[" + ", ".join(plain_text(item) for item in value) + "]"


def quoted(text: str) -> str:
    """Return text as a quoted string literal."""
    pieces: list[str] = []
    for character in text:
        if character in ('"', "\\"):
            pieces.append("\\" + character)
        elif character.isprintable():
            pieces.append(character)
        else:
            pieces.extend(f"\\{byte:02X}" for byte in character.encode())
    return '"' + "".join(pieces) + '"'


def parse_plain(parser: PlainParser, depth: int = 0) -> PythonValue:
    """Read what ``plain_text`` writes."""
    text = parser.parse_optional_str_literal()
    if text is not None:
        return text
    if parser.parse_optional_punctuation("["):
        if depth == _MAXIMUM_DEPTH:
            parser.raise_error("a value is nested too deeply")
        items: list[PythonValue] = []
        if parser.parse_optional_punctuation("]"):
            return tuple(items)
        items.append(parse_plain(parser, depth + 1))
        while parser.parse_optional_punctuation(","):
            items.append(parse_plain(parser, depth + 1))
        parser.parse_punctuation("]")
        return tuple(items)
    word = parser.parse_optional_keyword_in(("true", "false", "inf", "nan"))
    if word is not None:
        return word == "true" if word in ("true", "false") else float(word)
    if parser.parse_optional_punctuation("-"):
        if parser.parse_optional_keyword("inf"):
            return -math.inf
        return -parser.parse_number(allow_boolean=False)
    return parser.parse_number(allow_boolean=False)


def parse_value(parser: PlainParser) -> SSAValue:
    """Read a value that an earlier operation defines."""
    operand = parser.parse_unresolved_operand()
    values = parser.ssa_values.get(operand.operand_name)
    if values is None or operand.index >= len(values):
        parser.raise_error(f"%{operand.operand_name} is not defined here", operand.span)
    return values[operand.index]


def parse_integer(parser: PlainParser) -> int:
    """Read an integer that is no boolean."""
    return parser.parse_integer(allow_boolean=False)


def pairs_text(pairs: Attribute) -> str:
    """``[name, value]`` pairs as ``{strides = [1, 1], group = 2}``."""
    items = cast("tuple[tuple[str, PythonValue], ...]", from_attribute(pairs))
    return "{" + ", ".join(f"{name} = {plain_text(value)}" for name, value in items) + "}"


def parse_pairs(parser: PlainParser) -> Attribute:
    """Read what ``pairs_text`` writes."""

    def pair() -> PythonValue:
        name = parser.parse_identifier("a name is expected here")
        parser.parse_punctuation("=")
        return (name, parse_plain(parser))

    return to_attribute(parser.parse_comma_separated_list(parser.Delimiter.BRACES, pair))


@dataclass
class Found:
    """The parts of an operation that have been read."""

    properties: dict[str, Attribute] = field(default_factory=dict[str, Attribute])
    operands: list[SSAValue | Sequence[SSAValue]] = field(
        default_factory=list[SSAValue | Sequence[SSAValue]]
    )
    results: list[Attribute] = field(default_factory=list[Attribute])


_PART = re.compile(r"\[(\w+) ?(\S*?)\]|(\w+)|(\S+)")

_READ: Mapping[str, Callable[[PlainParser], Attribute]] = {
    "$": lambda parser: StringAttr(parser.parse_str_literal()),
    "#": lambda parser: integer(parse_integer(parser)),
    "=": lambda parser: to_attribute(parse_plain(parser)),
    "*": lambda parser: to_attribute(parse_plain(parser)),
    "{": parse_pairs,
    "?": lambda parser: UnitAttr(),
}


@cache
def _parts(text: str) -> tuple[tuple[bool, str, str, str], ...]:
    """The parts of a syntax: optional or not, the keyword, the kind and the name of the item."""
    parts: list[tuple[bool, str, str, str]] = []
    for optional, item, keyword, alone in _PART.findall(text):
        item = item or (f"?{optional}" if optional else alone)
        parts.append((bool(optional), optional or keyword, item[:1], item[1:].rstrip("}")))
    return tuple(parts)


def print_operation(printer: Printer, op: TextOperation) -> None:
    """Print what stands after the name of an operation."""
    rest = dict(op.properties)
    for optional, keyword, kind, name in _parts(op.TEXT):
        value: Any = getattr(op, name) if kind == "%" else rest.pop(name, None)
        if optional and (value is None or (kind == "*" and value == ArrayAttr([]))):
            continue
        printer.print_string(f" {keyword}" if keyword else "")
        if kind == "%":
            printer.print_string(" ")
            printer.print_operand(value)
        elif kind == ":":
            printer.print_string(" : ")
            printer.print_attribute(op.results[0].type)
        elif kind == ".":
            op.print_own(printer)
            for prop in name.strip(".").split(","):
                rest.pop(prop, None)
        elif kind == "{":
            printer.print_string(f" {pairs_text(value)}")
        elif kind and kind != "?":
            printer.print_string(f" {plain_text(from_attribute(value))}")
    rest |= op.attributes
    if rest:
        # Before a body the keyword tells the dictionary from the body.
        printer.print_string(" attributes " if op.regions else " ")
        printer.print_attr_dict(rest)
    for region in op.regions:
        printer.print_string(" ")
        printer.print_region(region, print_entry_block_args=False, print_empty_block=False)


def parse_operation(parser: PlainParser, kind: type[Op]) -> Op:
    """Read what ``print_operation`` printed."""
    found = Found()
    for optional, keyword, form, name in _parts(kind.TEXT):
        present = True
        if optional:
            present = parser.parse_optional_keyword(keyword) is not None
        elif keyword:
            parser.parse_keyword(keyword)
        if form == "%":
            values = [parse_value(parser)] if present else []
            found.operands.append(values if optional else values[0])
        elif form == ":":
            parser.parse_punctuation(":")
            found.results.append(parser.parse_type())
        elif form == ".":
            kind.parse_own(parser, found)
        elif form and present:
            found.properties[name] = _READ[form](parser)
        elif form == "*":
            found.properties[name] = ArrayAttr([])
    definition = kind.get_irdl_definition()
    others: dict[str, Attribute] = {}
    rest: Mapping[str, Attribute] = {}
    if not definition.regions or parser.parse_optional_keyword("attributes"):
        rest = parser.parse_optional_attr_dict()
    for name, value in rest.items():
        if name in found.properties:
            parser.raise_error(f"{name} is given twice")
        (found.properties if name in definition.properties else others)[name] = value
    regions = [parser.parse_region() for _ in definition.regions]
    for region in regions:
        if not region.blocks:
            region.add_block(Block())
    return kind.build(
        operands=found.operands,
        result_types=found.results,
        properties=found.properties,
        attributes=others,
        regions=regions,
    )

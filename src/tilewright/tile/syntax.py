"""Reading and printing the parts that the tile operations' text is made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from tilewright.ir import (
    Attribute,
    Block,
    IRDLOperation,
    PlainParser,
    Printer,
    PythonValue,
    Region,
    SSAValue,
    from_attribute,
    to_attribute,
)
from tilewright.tile.attributes import WindowAttr

if TYPE_CHECKING:
    from tilewright.tile.operations import BufferOp, ProgramOp, StageOp

HEADER = ("levels", "slots", "shared", "exchanged", "rooms")
"""The optional properties of a program that its text has, in this order."""

Op = TypeVar("Op", bound=IRDLOperation)
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


def print_rest(printer: Printer, op: IRDLOperation, printed: Iterable[str] = ()) -> None:
    """Print the properties and attributes that are not among ``printed``, as a dictionary.

    Before a body the keyword ``attributes`` tells the dictionary from the body.
    """
    shown = set(printed)
    rest = {name: value for name, value in op.properties.items() if name not in shown}
    rest.update(op.attributes)
    if rest:
        printer.print_string(" attributes " if op.regions else " ")
        printer.print_attr_dict(rest)


def parse_rest(
    parser: PlainParser,
    kind: type[IRDLOperation],
    properties: Mapping[str, Attribute | None],
    keyword: bool,
) -> tuple[dict[str, Attribute], dict[str, Attribute]]:
    """Read what ``print_rest`` printed; returns all properties and the other attributes."""
    known = kind.get_irdl_definition().properties
    stated = {name: value for name, value in properties.items() if value is not None}
    others: dict[str, Attribute] = {}
    rest: Mapping[str, Attribute] = {}
    if not keyword or parser.parse_optional_keyword("attributes"):
        rest = parser.parse_optional_attr_dict()
    for name, value in rest.items():
        if name in stated:
            parser.raise_error(f"{name} is given twice")
        (stated if name in known else others)[name] = value
    return stated, others


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


def optional_plain(parser: PlainParser, keyword: str) -> Attribute | None:
    """Read ``keyword value``, if the keyword comes next."""
    if parser.parse_optional_keyword(keyword) is None:
        return None
    return to_attribute(parse_plain(parser))


def print_optional(printer: Printer, op: IRDLOperation, *names: str) -> None:
    """Print ``name value`` for those of the properties that are there."""
    for name in names:
        attribute = op.properties.get(name)
        if attribute is not None:
            printer.print_string(f" {name} {plain_text(from_attribute(attribute))}")


def print_body(printer: Printer, region: Region) -> None:
    """Print a region of one block."""
    printer.print_string(" ")
    printer.print_region(region, print_entry_block_args=False, print_empty_block=False)


def finish(
    parser: PlainParser,
    kind: type[Op],
    properties: Mapping[str, Attribute | None],
    operands: Sequence[SSAValue | Sequence[SSAValue]] = (),
    results: Sequence[Attribute] = (),
    *,
    region: bool = False,
) -> Op:
    """Read the rest of an operation's text (dictionary, then body) and make the operation."""
    stated, others = parse_rest(parser, kind, properties, keyword=region)
    regions: list[Region] = []
    if region:
        body = parser.parse_region()
        if not body.blocks:
            body.add_block(Block())
        regions.append(body)
    return kind.build(
        operands=operands,
        result_types=results,
        properties=stated,
        attributes=others,
        regions=regions,
    )


def print_program(printer: Printer, op: ProgramOp) -> None:
    """Print what stands after ``tile.program``."""
    reduction = op.reduction_dims
    parallel = [f"{dim} {n}" for dim, n in op.extents.items() if dim not in reduction]
    reduced = [f"{dim} {n}" for dim, n in op.extents.items() if dim in reduction]
    text = ", ".join(parallel) + (" | " + ", ".join(reduced) if reduced else "")
    printer.print_string(f" {quoted(op.symbol.data)} on {quoted(op.machine.data)} [{text.strip()}]")
    print_optional(printer, op, *HEADER)
    if op.nodes.data:
        print_optional(printer, op, "nodes")
    print_rest(printer, op, ("symbol", "machine", "dims", "reduction", *HEADER, "nodes"))
    print_body(printer, op.body)


def parse_dims(parser: PlainParser) -> tuple[Attribute, Attribute]:
    """Read ``[n 1, co 64 | ci 64]``; returns the dims and the names of the reduction dims."""
    dims: list[PythonValue] = []
    reduction: list[PythonValue] = []
    reduced = False
    parser.parse_punctuation("[")
    if not parser.parse_optional_punctuation("]"):
        while True:
            if not reduced and parser.parse_optional_punctuation("|"):
                reduced = True
            name = parser.parse_identifier("the name of a dim is expected here")
            dims.append((name, parse_integer(parser)))
            if reduced:
                reduction.append(name)
            if not reduced and parser.parse_optional_punctuation("|"):
                reduced = True
            elif not parser.parse_optional_punctuation(","):
                break
        parser.parse_punctuation("]")
    return to_attribute(dims), to_attribute(reduction)


def print_buffer(printer: Printer, op: BufferOp) -> None:
    """Print what stands after ``tile.buffer``."""
    printer.print_string(f" {quoted(op.symbol.data)} of ")
    printer.print_operand(op.outer)
    printer.print_string(f" {op.window}")
    if op.gathers is not None:
        fill = f" fill {op.padding}" if op.fill is not None else ""
        printer.print_string(f" gathers {op.gathers}{fill} as ")
        printer.print_attribute(op.result.type.of)
    elif op.converts:
        printer.print_string(" as ")
        printer.print_attribute(op.result.type.of)
    printer.print_string(f" in {quoted(op.memory)} slots {op.slot_count}")
    if op.accumulates is not None:
        printer.print_string(" accumulates")
    if op.circular_axis is not None:
        printer.print_string(f" circular {op.circular_axis}")
    for flag in ("stays", "at_store"):
        printer.print_string(f" {flag}" if flag in op.properties else "")
    extra = ("role", "shape", "address", "bytes")
    print_optional(printer, op, *extra)
    flags = ("accumulates", "circular", "stays", "at_store", "gathers", "fill")
    print_rest(printer, op, ("symbol", "window", "slots", *flags, *extra))


def print_stage(printer: Printer, op: StageOp) -> None:
    """Print what stands after ``tile.stage``."""
    windows = op.windows.data
    printer.print_string(f" {quoted(op.operation.data)}(")
    for number, (value, window) in enumerate(zip(op.inputs, windows, strict=False)):
        printer.print_string(", " if number else "")
        printer.print_operand(value)
        printer.print_string(f" {window}")
    printer.print_string(f") to {windows[-1]}")
    parameters = op.properties.get("parameters")
    if parameters is not None:
        printer.print_string(f" with {pairs_text(parameters)}")
    print_optional(printer, op, "node")
    printer.print_string(" : ")
    printer.print_attribute(op.result.type)
    print_rest(printer, op, ("operation", "windows", "parameters", "node"))


def parse_stage_inputs(parser: PlainParser) -> tuple[list[SSAValue], list[WindowAttr]]:
    """Read ``(%x [n, ci], %w [co, ci])``."""

    def pair() -> tuple[SSAValue, WindowAttr]:
        return parse_value(parser), WindowAttr(WindowAttr.parse_axes(parser))

    pairs = parser.parse_comma_separated_list(parser.Delimiter.PAREN, pair)
    return [value for value, _ in pairs], [window for _, window in pairs]

"""The scopes of names during assembly, and the evaluation of constant expressions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tilewright.errors import TilewrightError, refuse
from tilewright.targets.cambricon.hlal import syntax
from tilewright.targets.cambricon.hlal.segments import SegmentedArray
from tilewright.targets.cambricon.hlal.syntax import Expression, Place
from tilewright.targets.cambricon.isa import Register

MOST = 1 << 48
"""Magnitude that no intermediate value may exceed."""


@dataclass(frozen=True)
class Address:
    """A place in main memory, in bytes from the start of the data; relocated when loaded."""

    offset: int


@dataclass(frozen=True)
class OnChipArray:
    """A VOA or MOA: its first byte in the scratchpad, its elements, and their bytes."""

    kind: str
    address: int
    size: int
    element_bytes: int

    def field(self, name: str) -> int | None:
        """``address``, ``size`` (elements), ``bytes`` or ``element_bytes``."""
        values = {
            "address": self.address,
            "size": self.size,
            "bytes": self.size * self.element_bytes,
            "element_bytes": self.element_bytes,
        }
        return values.get(name)


@dataclass(frozen=True)
class ScalarWord:
    """A scalar of a data section: its place in main memory and its first value, if it has one."""

    name: str
    address: int
    value: int | None
    writable: bool


Value: TypeAlias = (
    "int | float | Address | SegmentedArray | OnChipArray | ScalarWord | Register | LocalMacro"
)
Constant: TypeAlias = "int | float | Address"


@dataclass
class Scope:
    """Names of one block, macro or program; a lookup that fails here goes to ``outer``."""

    names: dict[str, Value] = field(default_factory=dict[str, Value])
    outer: Scope | None = None

    def find(self, name: str) -> Value | None:
        """Return the value of a name in the innermost scope that has it; None if none has."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None


@dataclass(frozen=True)
class LocalMacro:
    """A macro that a block defines for itself; it knows the names of the block."""

    macro: syntax.Macro
    scope: Scope


def problem(at: Place, reason: str, help: str = "", code: str = "hlal-value") -> TilewrightError:
    """A refusal that quotes the text it is about."""
    return refuse(code, f"{at.text!r} {reason}" if at.text else reason, str(at), help)


def evaluate(expression: Expression, scope: Scope) -> Constant:
    """The value of an expression; raises TilewrightError (``hlal-name``, ``hlal-value``)."""
    if isinstance(expression, syntax.Number):
        value: Constant = expression.value
    elif isinstance(expression, syntax.Reference):
        value = _reference(expression, scope)
    else:
        operands = [evaluate(operand, scope) for operand in expression.operands]
        value = _apply(expression, operands)
    number = value.offset if isinstance(value, Address) else value
    if abs(number) > MOST:
        raise problem(expression.at, "has a value that is too large")
    return value


def whole(expression: Expression, scope: Scope) -> int:
    """The value of an expression that must be an integer and no address."""
    value = evaluate(expression, scope)
    if not isinstance(value, int):
        kind = "an address" if isinstance(value, Address) else f"{value}"
        raise problem(expression.at, f"is {kind}, and an integer is needed")
    return value


def _reference(reference: syntax.Reference, scope: Scope) -> Constant:
    entry = scope.find(reference.name)
    if entry is None:
        raise problem(reference.at, "is not defined", code="hlal-name")
    name = reference.field
    if name is not None:
        if not isinstance(entry, SegmentedArray | OnChipArray):
            raise problem(reference.at, f"has no fields, so no {name!r}", code="hlal-name")
        value = entry.field(name)
        if value is None:
            raise problem(reference.at, f"has no field {name!r}", _fields(entry), code="hlal-name")
        address = name == "address" and isinstance(entry, SegmentedArray)
        return Address(value) if address else value
    if isinstance(entry, SegmentedArray | ScalarWord):
        return Address(entry.address)
    if isinstance(entry, OnChipArray):
        return entry.address
    if isinstance(entry, Register | LocalMacro):
        kind = "a register" if isinstance(entry, Register) else "a macro"
        raise problem(reference.at, f"is {kind}, and a constant is needed")
    return entry


def _fields(array: SegmentedArray | OnChipArray) -> str:
    if isinstance(array, OnChipArray):
        return "address, size, bytes, element_bytes"
    axes = ", ".join(axis.name for axis in array.axes)
    return (
        "size_x, seg_size_x, seg_n_x, seg_r_x, seg_last_x, seg_step_x, step_x for x of "
        f"{axes}; address, elements, bytes, seg_elements, seg_bytes, element_bytes, fraction, "
        "contiguous, natural"
    )


def _apply(operation: syntax.Operation, operands: list[Constant]) -> Constant:
    name = operation.name
    addresses = sum(isinstance(operand, Address) for operand in operands)
    if addresses and not operation.function and len(operands) == 2:
        left, right = operands
        if name == "+" and addresses == 1:
            base, rest = (left, right) if isinstance(left, Address) else (right, left)
            if isinstance(base, Address) and isinstance(rest, int):
                return Address(base.offset + rest)
        if name == "-" and isinstance(left, Address):
            if isinstance(right, Address):
                return left.offset - right.offset
            if isinstance(right, int):
                return Address(left.offset - right)
    if addresses:
        raise problem(operation.at, f"is an address, to which {name!r} cannot be applied")
    numbers = [operand for operand in operands if not isinstance(operand, Address)]
    table = FUNCTIONS if operation.function else OPERATORS
    known = table.get((name, len(numbers)))
    if known is None:
        names = ", ".join(f"{key}({'x, ' * (n - 1)}x)" for key, n in FUNCTIONS)
        text = f"{name!r} of {len(numbers)} operands is not defined"
        raise refuse("hlal-name", text, str(operation.at), f"functions: {names}")
    try:
        return known(*numbers)
    except (ZeroDivisionError, ValueError, OverflowError) as error:
        raise problem(operation.at, f"begins an expression without a value: {error}") from None


def _divide(a: int | float, b: int | float) -> int | float:
    return a // b if isinstance(a, int) and isinstance(b, int) else a / b


def _log2(a: int | float) -> int:
    if a < 1:
        raise ValueError("log2 of a number below 1")
    return int(a).bit_length() - 1


def _fixed(value: int | float, bits: int | float) -> int:
    return math.floor(value * 2.0 ** min(max(bits, -62), 62) + 0.5)


def _negative(a: int | float) -> int | float:
    return -a


def _truth(test: Callable[[Any, Any], bool]) -> Callable[..., int]:
    def decided(a: Any, b: Any) -> int:
        return int(test(a, b))

    return decided


def _ceil_div(a: int | float, b: int | float) -> int | float:
    return -(-a // b)


OPERATORS: Mapping[tuple[str, int], Callable[..., int | float]] = {
    ("+", 2): operator.add,
    ("-", 2): operator.sub,
    ("*", 2): operator.mul,
    ("/", 2): _divide,
    ("%", 2): operator.mod,
    ("-", 1): _negative,
    ("<", 2): _truth(operator.lt),
    (">", 2): _truth(operator.gt),
    ("<=", 2): _truth(operator.le),
    (">=", 2): _truth(operator.ge),
    ("==", 2): _truth(operator.eq),
    ("!=", 2): _truth(operator.ne),
}
"""Operators by symbol and number of operands. ``/`` of integers rounds down, and ``%`` has the sign
of the divisor."""

FUNCTIONS: Mapping[tuple[str, int], Callable[..., int | float]] = {
    ("min", 2): min,
    ("max", 2): max,
    ("ceil_div", 2): _ceil_div,
    ("log2", 1): _log2,
    ("fixed", 2): _fixed,
}
"""``log2`` rounds down; ``fixed(x, bits)`` is x with that many fraction bits, rounded."""

"""The data sections: declarations checked, and a place in main memory for each."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from tilewright.ir.types import Array
from tilewright.memory import align_up
from tilewright.numerics import fixed
from tilewright.numerics.tables import FUNCTIONS, table
from tilewright.targets.cambricon.hlal import syntax
from tilewright.targets.cambricon.hlal.segments import (
    FILTER_AXES,
    LETTERS,
    TENSOR_AXES,
    Axis,
    SegmentedArray,
)
from tilewright.targets.cambricon.hlal.syntax import Place
from tilewright.targets.cambricon.hlal.values import (
    Address,
    ScalarWord,
    Scope,
    evaluate,
    problem,
    whole,
)

DEFAULT_FRACTION = 8
"""Fraction bits where a declaration names none."""

MAX_BYTES = 1 << 30
"""Main memory that one program's data may take; addresses are registers of 32 signed bits."""

MAX_FRACTION = 46
"""Magnitude of fraction bits."""

_AXES = {"tensor": TENSOR_AXES, "filter": FILTER_AXES}
_SHORT: dict[str, dict[int, tuple[int, ...]]] = {
    "tensor": {1: (3,), 2: (0, 3), 3: (1, 2, 3), 4: (0, 1, 2, 3)},
    "filter": {1: (3,), 2: (0, 3), 3: (0, 2, 3), 4: (0, 1, 2, 3)},
}
"""Axes whose extents a declaration of 1 to 4 extents gives, by their number; the others are 1."""


@dataclass
class DataSegment:
    """The arrays and scalars of a program, in the order of their addresses."""

    scope: Scope
    """The names of the arrays and scalars."""
    arrays: list[SegmentedArray] = field(default_factory=list[SegmentedArray])
    scalars: list[ScalarWord] = field(default_factory=list[ScalarWord])
    tables: dict[tuple[str, tuple[float, ...]], DataTable] = field(
        default_factory=dict[tuple[str, tuple[float, ...]], "DataTable"]
    )
    bytes: int = 0

    def add(self, node: syntax.Data | syntax.Scalar, section: str) -> None:
        """Declare one array or scalar; raises ``hlal-data``, ``hlal-value``, ``hlal-size``."""
        if node.name in self.scope.names:
            raise problem(node.at, "is declared twice", code="hlal-name")
        writable = section == "static_rw"
        if isinstance(node, syntax.Data):
            array = replace(declare(node, self.scope, writable), address=self.bytes)
            size, value = array.bytes, array
            self.arrays.append(array)
        else:
            number = None if node.value is None else scalar_value(node, self.scope)
            size, value = 4, ScalarWord(node.name, self.bytes, number, writable)
            self.scalars.append(value)
        self.scope.names[node.name] = value
        self._take(size, node.at)

    def table(self, node: syntax.Table, numbers: list[int | float | Address]) -> Address:
        """The address of a table of a function; one for all that ask for the same."""
        plain = tuple(number for number in numbers if not isinstance(number, Address))
        key = (node.function, plain)
        if key not in self.tables:
            try:
                if len(plain) < len(numbers):
                    raise KeyError
                if node.function == "lrn":
                    entries = power_table(*plain)
                else:
                    first, second, *rest = plain
                    entries = table(node.function, int(first), int(second), tuple(rest))
            except (KeyError, ValueError, TypeError, OverflowError):
                raise problem(
                    node.at, f"is no table: {node.function!r} of {len(numbers)} numbers",
                    f"lrn, beta; or one of {', '.join(FUNCTIONS)}, with the binary points of "
                    "operand and result and the function's attributes",
                ) from None  # fmt: skip
            self.tables[key] = DataTable(self.bytes, entries)
            self._take(2 * len(entries), node.at)
        return Address(self.tables[key].address)

    def _take(self, size: int, at: Place) -> None:
        self.bytes += align_up(size)
        if self.bytes > MAX_BYTES:
            raise problem(at, f"ends past {MAX_BYTES} bytes of main memory", code="hlal-size")


@dataclass(frozen=True)
class DataTable:
    """A table in main memory: its first byte and its 16-bit entries."""

    address: int
    entries: Array


def power_table(beta: float) -> Array:
    """Return LRN's table for ``VDV.table``: 257 mantissas, 64 factors, 64 shifts, of 16 bits."""
    if not 0 <= beta <= 8:
        raise ValueError
    return np.concatenate(fixed.lrn_tables(float(beta))).astype(np.uint16).view(np.int16)


def declare(node: syntax.Data, scope: Scope, writable: bool) -> SegmentedArray:
    """The array of a declaration, not yet placed; raises ``hlal-data``, ``hlal-value``."""
    order, element_bytes, fraction = (0, 1, 2, 3), 2, DEFAULT_FRACTION
    numbers: list[tuple[int, Place]] = []
    for item in node.items:
        if isinstance(item, syntax.RegisterName):
            raise problem(item.at, "is a register, and data need constants", code="hlal-data")
        word = item.name if isinstance(item, syntax.Reference) else ""
        if (layout := _layout(node.kind, word)) is not None:
            order = layout
        elif word in ("fix16", "fix32"):
            element_bytes = int(word[3:]) // 8
        elif re.fullmatch(r"Q\d{1,2}", word):
            fraction = int(word[1:])
        elif isinstance(item, syntax.Operation) and item.name == "Q":
            fraction = whole(item.operands[0], scope)
        else:
            numbers.append((whole(item, scope), item.at))
    return SegmentedArray(
        node.name, node.kind, _axes(node, numbers), order, element_bytes,
        _checked_fraction(fraction, node.at), writable,
    )  # fmt: skip


def scalar_value(node: syntax.Scalar, scope: Scope) -> int:
    """The value of ``@fix16`` or ``@fix32``: an integer, or a decimal with 8 fraction bits."""
    assert node.value is not None
    if isinstance(node.value, syntax.RegisterName):
        raise problem(node.value.at, "is a register, and a constant is needed")
    value = evaluate(node.value, scope)
    if isinstance(value, Address):
        raise problem(node.value.at, "is an address, and a number is needed")
    number = round(value * 2**DEFAULT_FRACTION) if isinstance(value, float) else value
    bits = int(node.kind.removeprefix("fix"))
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise problem(node.value.at, f"does not fit {bits} bits")
    return number


def _layout(kind: str, word: str) -> tuple[int, ...] | None:
    letters = LETTERS[kind]
    if len(word) != 4 or set(word) != set(letters):
        return None
    return tuple(letters.index(letter) for letter in word)


def _axes(node: syntax.Data, numbers: list[tuple[int, Place]]) -> tuple[Axis, ...]:
    names = _AXES[node.kind]
    rank, odd = divmod(len(numbers), 2)
    if odd or rank not in _SHORT[node.kind]:
        raise problem(
            node.at, f"has {len(numbers)} sizes: sizes of 1 to 4 axes and as many segments are "
            "needed", f"@{node.kind} name, {', '.join(name.upper() for name in names)}, their "
            f"segments, {LETTERS[node.kind]}", "hlal-data",
        )  # fmt: skip
    axes = [Axis(name, 1, 1) for name in names]
    chosen = _SHORT[node.kind][rank]
    for index, (size, at), (segment, place) in zip(
        chosen, numbers[:rank], numbers[rank:], strict=True
    ):
        if size < 1 or size > MAX_BYTES:
            raise problem(at, f"is no size for {names[index]}", code="hlal-data")
        if not 1 <= segment <= size:
            raise problem(
                place, f"is no segment of {names[index]}, which has {size} elements",
                code="hlal-data",
            )  # fmt: skip
        axes[index] = Axis(names[index], size, segment)
    if prod(axis.count * axis.segment for axis in axes) > MAX_BYTES:
        raise problem(node.at, "has too many elements", code="hlal-size")
    return tuple(axes)


def _checked_fraction(fraction: int, at: Place) -> int:
    if abs(fraction) > MAX_FRACTION:
        raise problem(at, f"has {fraction} fraction bits", f"at most {MAX_FRACTION}", "hlal-data")
    return fraction

"""Comparisons, operations on bits and booleans, choice, and conversion between element types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tilewright.graph.operation import Attributes, Type
from tilewright.graph.operations.base import STATED, broadcast_shape, define, definition
from tilewright.graph.operations.pointwise import PointwiseOperation
from tilewright.ir import i1
from tilewright.ir.types import Array, FixedType, element_dtype, element_of
from tilewright.numerics import pointwise
from tilewright.numerics.codes import FLOAT_CODES, FORMATS


class PlainOperation(PointwiseOperation):
    """A map that fixed point does not have."""

    LOGICAL: ClassVar[bool] = True
    FIXED_POINT: ClassVar[bool] = False


class ComparisonOperation(PlainOperation):
    """A relation of two operands of one type, which broadcast; the result is boolean."""

    ARITY: ClassVar[tuple[int, int]] = (2, 2)

    def infer(self, types: Sequence[Type]) -> Type:
        """The broadcast shape, of booleans."""
        return self.result_of(super().infer(types).get_shape(), i1)


define(
    ComparisonOperation,
    {
        "equal": "The comparison x = y, element by element; NaN equals nothing.",
        "less": "The comparison x < y, element by element.",
        "less_equal": "The comparison x <= y, element by element.",
    },
)


class BitOperation(PlainOperation):
    """A map of the bits of integers, or of booleans."""

    ARITY: ClassVar[tuple[int, int]] = (2, 2)

    def infer(self, types: Sequence[Type]) -> Type:
        """Return the type of the operands' broadcast shape."""
        result = super().infer(types)
        if result.element_type != i1:
            self.need_integer(result)
        return result


define(
    BitOperation,
    {
        "bit_and": "The bits that x and y both have.",
        "bit_or": "The bits that x or y has.",
        "bit_xor": "The bits that one of x and y has.",
    },
)
define(
    BitOperation,
    {"bit_not": "The bits that x has not; of booleans, the negation."},
    ARITY=(1, 1),
)


@definition
class BitShiftOp(BitOperation):
    """x with its bits moved by y places: up if ``left``, else down."""

    name = "graph.bit_shift"
    DEFAULTS: ClassVar[Attributes] = {"left": False}

    def infer(self, types: Sequence[Type]) -> Type:
        """The broadcast shape, of integers."""
        result = super().infer(types)
        self.need_integer(result)
        return result


@definition
class SelectOp(PlainOperation):
    """x where the condition, the first operand, is true, else y; all three broadcast."""

    name = "graph.select"
    ARITY: ClassVar[tuple[int, int]] = (3, 3)

    def infer(self, types: Sequence[Type]) -> Type:
        """The broadcast shape, of the elements of x and y."""
        self.need(
            types[0].element_type == i1,
            f"the condition must be boolean, found {types[0].element_type}",
        )
        self.need(
            types[1].element_type == types[2].element_type
            and not isinstance(types[1].element_type, FixedType),
            f"chooses between {types[1].element_type} and {types[2].element_type}",
        )
        shape = broadcast_shape(self, [kind.get_shape() for kind in types])
        return self.result_of(shape, types[1].element_type)


@definition
class CastOp(PlainOperation):
    """x as elements of type ``to`` (``int64``, ``float16``).

    Floats become integers towards zero; out of range as ``numerics.pointwise.whole`` says. As
    booleans all but 0 are true. With ``saturate``, numbers beyond the largest of a float of 16 bits
    become that; without, infinite. Codes are made as ``numerics.pointwise.encoded`` says.
    """

    name = "graph.cast"
    DEFAULTS: ClassVar[Attributes] = {"to": STATED, "saturate": None}

    def infer(self, types: Sequence[Type]) -> Type:
        """Return the type of the operand's shape."""
        to = self.get("to", "")
        known = "saturate" not in self.properties or to in ("float16", "bfloat16", *FLOAT_CODES)
        self.need(known, f"saturates to floats of at most 16 bits, not to {to}")
        self.need(isinstance(to, str) and to in CAST_TYPES, f"no elements are called {to!r}")
        self.need(
            to != "float8_e8m0fnu", "rounds to no power of two, of which bit_cast makes codes"
        )
        return self.result_of(super().infer(types).get_shape(), element_of(np.dtype(to)))


@definition
class BitCastOp(PlainOperation):
    """The bits of x as elements of type ``to``, which has as many."""

    name = "graph.bit_cast"

    def evaluate(self, *arrays: Array) -> Array:
        """The bits are looked at, not the number."""
        return pointwise.evaluate(self.operation, arrays, attributes=self.values)

    DEFAULTS: ClassVar[Attributes] = {"to": STATED}

    def infer(self, types: Sequence[Type]) -> Type:
        """Return the type of the operand's shape."""
        to = self.get("to", "")
        self.need(isinstance(to, str) and to in CAST_TYPES, f"no elements are called {to!r}")
        shape, wanted = super().infer(types).get_shape(), np.dtype(to)
        source = element_dtype(types[0].element_type)
        sizes = {
            FORMATS[d.name].bits if d.name in FORMATS else 8 * d.itemsize for d in (source, wanted)
        }
        self.need(len(sizes) == 1, f"{source} and {to} are not of one size")
        return self.result_of(shape, element_of(wanted))


CAST_TYPES = (
    *("float32", "float64", "float16", "bfloat16", "bool", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64"),
    *FORMATS,
)
"""Element types between which casts are made."""

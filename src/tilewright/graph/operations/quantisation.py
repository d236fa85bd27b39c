"""Affine quantisation: integers of 8 or 16 bits that stand for (integer - zero point) * scale.

Importers and ``quantise`` passes write a quantised network as floats between ``quantise_linear``
and ``dequantise_linear``; compute-in-integers turns what lies between into the other operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from tilewright.graph.operation import Attributes, Type
from tilewright.graph.operations.base import STATED, broadcast_shape, definition
from tilewright.graph.operations.pointwise import PointwiseOperation
from tilewright.ir import (
    Attribute,
    bf16,
    f16,
    f32,
    i8,
    i16,
    i32,
)
from tilewright.ir.types import UNSIGNED, element_name

BYTES: Mapping[str, Attribute] = {"int8": i8, "uint8": UNSIGNED[8]}
"""Element types of 8 bits."""

QUANTISED: Mapping[str, Attribute] = {**BYTES, "int16": i16, "uint16": UNSIGNED[16]}
"""Element types that floats are quantised to."""

_INTEGERS: Attributes = {
    "zero": 0,
    "to": STATED,
    "minimum": None,
    "maximum": None,
}
"""The defaults of a quantised result: its zero point, its type, and limits within its type."""


class AffineOperation(PointwiseOperation):
    """A map from or to integers with a scale and a zero point; never widens its first operand."""

    def shape(self, types: Sequence[Type]) -> tuple[int, ...]:
        """The first operand's shape, to which the others must broadcast."""
        shape = broadcast_shape(self, [kind.get_shape() for kind in types])
        self.need(shape == types[0].get_shape(), "a scale or zero point widens the operand")
        return shape

    def need_element(self, kind: Type, known: Mapping[str, Attribute]) -> None:
        """Check an operand's element type."""
        element = kind.element_type
        self.need(
            element in known.values(), f"takes {' or '.join(known)}, found {element_text(element)}"
        )

    def result_element(self, known: Mapping[str, Attribute]) -> Attribute:
        """The type that ``to`` names."""
        to = self.get("to", "")
        self.need(isinstance(to, str) and to in known, f"gives {' or '.join(known)}, not {to!r}")
        return known[to]


def element_text(element: Attribute) -> str:
    """An element type as messages name it."""
    return str(element_name(element))


@definition
class QuantiseLinearOp(AffineOperation):
    """x / scale to the nearest integer, the even one of two, plus the zero point, saturated.

    Operands: float32 x, float32 scale, and a zero point of the result's type (8 or 16 bits); scale
    and zero point broadcast to x. Or x alone, also of 16 bits, with ``scale``, ``zero`` and
    ``to``, the type of the result, as attributes. NaN gives the least number.
    """

    name = "graph.quantise_linear"
    DEFAULTS: ClassVar[Attributes] = {"scale": None, "zero": None, "to": None}
    ARITY: ClassVar[tuple[int, int]] = (1, 3)

    def infer(self, types: Sequence[Type]) -> Type:
        """The shape of x, elements of the zero point's type."""
        shape = self.shape(types)
        if len(types) == 1:
            self.need_element(types[0], {"float32": f32, "float16": f16, "bfloat16": bf16})
            self.need(self.number("scale") > 0, "its scale must be above 0")
            _ = self.integer("zero", -(2**15), 2**16)
            return self.result_of(shape, self.result_element(QUANTISED))
        self.need(len(types) == 3 and not self.values, "scale and zero are operands or attributes")
        for kind in types[:2]:
            self.need_element(kind, {"float32": f32})
        self.need_element(types[2], QUANTISED)
        return self.result_of(shape, types[2].element_type)


@definition
class DequantiseLinearOp(AffineOperation):
    """(x - zero point) * scale in float32; the difference is taken in int32.

    Operands: x of 8, 16 or 32 bits, float32 scale, and a zero point of x's type; or x and scale,
    with ``zero`` as an attribute.
    """

    name = "graph.dequantise_linear"
    DEFAULTS: ClassVar[Attributes] = {"zero": None}
    ARITY: ClassVar[tuple[int, int]] = (2, 3)

    def infer(self, types: Sequence[Type]) -> Type:
        """The shape of x, float32."""
        shape = self.shape(types)
        self.need_element(types[0], {**QUANTISED, "int32": i32})
        self.need_element(types[1], {"float32": f32})
        stated = len(types) == 2
        self.need(stated == bool(self.values), "its zero point is an operand or an attribute")
        if stated:
            _ = self.integer("zero", -(2**15), 2**16)
        else:
            same = types[2].element_type == types[0].element_type
            self.need(same, "x and its zero point differ in type")
        return self.result_of(shape, f32)


@definition
class RequantiseLinearOp(AffineOperation):
    """int32 accumulators times a factor, to the nearest integer, plus ``zero``, saturated.

    Operands: int32 x and a float32 factor that broadcasts to x: the accumulators' scale divided by
    the result's. ``minimum`` and ``maximum`` narrow the result's range, as a fused activation does.
    """

    name = "graph.requantise_linear"
    DEFAULTS: ClassVar[Attributes] = _INTEGERS
    ARITY: ClassVar[tuple[int, int]] = (2, 2)

    def infer(self, types: Sequence[Type]) -> Type:
        """The shape of x, 8-bit elements."""
        shape = self.shape(types)
        self.need_element(types[0], {"int32": i32})
        self.need_element(types[1], {"float32": f32})
        _ = self.integer("zero", -(2**15), 2**16)
        return self.result_of(shape, self.result_element(BYTES))


class LinearPairOperation(AffineOperation):
    """A map of two operands of 8 bits, computed in float32 between them."""

    ARITY: ClassVar[tuple[int, int]] = (2, 2)

    def infer(self, types: Sequence[Type]) -> Type:
        """The broadcast shape, 8-bit elements."""
        for kind in types:
            self.need_element(kind, BYTES)
        for name in ("zero", "first_zero", "second_zero"):
            _ = self.integer(name, -(2**15), 2**16)
        for name in self.DEFAULTS:
            if name.endswith("factor"):
                _ = self.number(name)
        shape = broadcast_shape(self, [kind.get_shape() for kind in types])
        return self.result_of(shape, self.result_element(BYTES))


@definition
class AddLinearOp(LinearPairOperation):
    """(x - first_zero) * first_factor + (y - second_zero) * second_factor, rounded, plus zero.

    A factor is the operand's scale divided by the result's.
    """

    name = "graph.add_linear"
    DEFAULTS: ClassVar[Attributes] = {
        **_INTEGERS,
        "first_zero": 0,
        "second_zero": 0,
        "first_factor": 1.0,
        "second_factor": 1.0,
    }


@definition
class MulLinearOp(LinearPairOperation):
    """(x - first_zero) * (y - second_zero) * factor, rounded, plus zero."""

    name = "graph.mul_linear"
    DEFAULTS: ClassVar[Attributes] = {**_INTEGERS, "first_zero": 0, "second_zero": 0, "factor": 1.0}


@definition
class LookUpOp(AffineOperation):
    """Entry x of ``table``, 256 integers of type ``to``; the first is for x's least number.

    Any function of an 8-bit number to 8 bits: activations, and changes of scale.
    """

    name = "graph.look_up"
    DEFAULTS: ClassVar[Attributes] = {"table": STATED, "to": STATED}

    def infer(self, types: Sequence[Type]) -> Type:
        """The shape of x, 8-bit elements."""
        shape = self.shape(types)
        self.need_element(types[0], BYTES)
        element = self.result_element(BYTES)
        low, high = (-128, 127) if element == i8 else (0, 255)
        entries = self.integers("table", 256)
        self.need(
            low <= min(entries) and max(entries) <= high,
            f"the table holds numbers outside [{low}, {high}]",
        )
        return self.result_of(shape, element)

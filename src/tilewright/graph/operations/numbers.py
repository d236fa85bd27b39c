"""Operations that change how elements are represented or laid out, not what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tilewright.graph.operation import NARROW, Attributes, Operation, Type
from tilewright.graph.operations.base import definition
from tilewright.ir import Attribute, f32
from tilewright.ir.types import Array, FixedType, dtype_of
from tilewright.numerics import fixed
from tilewright.planning.domain import Stage


class RepresentationOperation(Operation):
    """Keeps the shape; the result's element type is given."""

    DEFAULTS: ClassVar[Attributes] = {}
    RESULT_CHOSEN: ClassVar[bool] = True

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims d0..dk of the result."""
        return self.mapped(operands, result)


class NarrowingOperation(RepresentationOperation):
    """A conversion to fixed point of 8 or 16 bits."""

    def verify_element(self, inferred: Attribute, element: Attribute) -> None:
        """Fixed point of 8 or 16 bits."""
        if not isinstance(element, FixedType) or element.bits.data not in NARROW:
            raise self.wrong(f"result has elements {element}, needs fixed point of 8 or 16 bits")


@definition
class RequantiseOp(NarrowingOperation):
    """Fixed point to 8 or 16 bits at the result's binary point: round half up, saturate."""

    name = "graph.requantise"

    def infer(self, types: Sequence[Type]) -> Type:
        """16-bit elements at the operand's binary point unless chosen otherwise."""
        element = types[0].element_type
        if not isinstance(element, FixedType):
            raise self.wrong(f"takes fixed point, found {element}")
        return self.result_of(types[0].get_shape(), FixedType.of(16, element.fraction.data))

    def evaluate(self, *arrays: Array) -> Array:
        """Compute the result exactly by numerics.fixed.requantise."""
        dtype = dtype_of(self.result)
        return fixed.requantise(arrays[0], self.fractions[0], self.result_fraction, dtype)


@definition
class QuantiseOp(NarrowingOperation):
    """Float to fixed point of 8 or 16 bits: round half to even, saturate."""

    name = "graph.quantise"

    def infer(self, types: Sequence[Type]) -> Type:
        """16-bit elements; the binary point is chosen."""
        self.need(types[0].element_type == f32, f"takes float32, found {types[0].element_type}")
        return self.result_of(types[0].get_shape(), FixedType.of(16, 0))

    def evaluate(self, *arrays: Array) -> Array:
        """Compute the result by numerics.fixed.quantise."""
        dtype = dtype_of(self.result)
        return fixed.quantise(arrays[0], self.result_fraction, dtype)


@definition
class DequantiseOp(RepresentationOperation):
    """A conversion from fixed point to float32."""

    name = "graph.dequantise"

    def infer(self, types: Sequence[Type]) -> Type:
        """float32 of the same shape."""
        element = types[0].element_type
        if not isinstance(element, FixedType):
            raise self.wrong(f"takes fixed point, found {element}")
        return self.result_of(types[0].get_shape(), f32)

    def evaluate(self, *arrays: Array) -> Array:
        """The nearest float32; exact for 16-bit elements."""
        return fixed.dequantise(arrays[0], self.fractions[0])


@definition
class ConvertLayoutOp(RepresentationOperation):
    """Convert the layout of a tensor to the one of the stated type."""

    name = "graph.convert_layout"

    def verify_element(self, inferred: Attribute, element: Attribute) -> None:
        """The element type stays as it is."""
        self.need(inferred == element, f"result has elements {element}, the operand has {inferred}")

    def evaluate(self, *arrays: Array) -> Array:
        """The identity on logical values."""
        return arrays[0]

"""Operations on one element of each of two operands, which broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tilewright.graph.operation import Attributes, Type
from tilewright.graph.operations.base import broadcast_shape, define, definition
from tilewright.graph.operations.pointwise import PointwiseOperation
from tilewright.ir import i1
from tilewright.ir.types import FixedType


class BinaryOperation(PointwiseOperation):
    """A map of two operands that broadcast."""

    ARITY: ClassVar[tuple[int, int]] = (2, 2)


class SumOperation(BinaryOperation):
    """In fixed point: 32-bit at the larger binary point, modulo 2**32."""

    def infer(self, types: Sequence[Type]) -> Type:
        """Return the type of the operands' broadcast shape."""
        self.need(types[0].element_type != i1, "is not defined on booleans")
        elements = [kind.element_type for kind in types]
        if not isinstance(elements[0], FixedType):
            return super().infer(types)
        fractions = [item.fraction.data for item in elements if isinstance(item, FixedType)]
        self.need(len(fractions) == 2, f"operands mix {elements[0]} and {elements[1]}")
        shape = broadcast_shape(self, [kind.get_shape() for kind in types])
        return self.result_of(shape, FixedType.of(32, self.result_point(fractions)))

    def result_point(self, fractions: Sequence[int]) -> int:
        """The result's binary point."""
        self.need(
            abs(fractions[0] - fractions[1]) <= 31,
            f"binary points {fractions[0]} and {fractions[1]} lie too far apart",
        )
        return max(fractions)


class GuardedSum(SumOperation):
    """A sum whose operands, in fixed point, may be cut to a few fraction bits beyond the coarsest.

    With ``guard`` bits g and binary points f, each operand is floor(x * 2**g / 2**(f - least f)),
    and the result has its point at g + least f.
    """

    DEFAULTS: ClassVar[Attributes] = {"guard": None}

    def result_point(self, fractions: Sequence[int]) -> int:
        """The larger of the operands' points, or the guard bits after the smaller."""
        point = super().result_point(fractions)
        if self.get("guard", -1) == -1:
            return point
        return min(fractions) + self.integer("guard", 0, 8)


@definition
class AddOp(GuardedSum):
    """The sum x + y, element by element."""

    name = "graph.add"


@definition
class SubOp(GuardedSum):
    """The difference x - y, element by element."""

    name = "graph.sub"


@definition
class MulOp(SumOperation):
    """x * y; in fixed point 32-bit at the sum of the binary points, modulo 2**32."""

    name = "graph.mul"

    def result_point(self, fractions: Sequence[int]) -> int:
        """The sum of the operands' binary points."""
        return sum(fractions)


define(
    BinaryOperation,
    {
        "max": "The larger of x and y, which have one type.",
        "min": "The smaller of x and y, which have one type.",
    },
)


class FloatBinaryOperation(BinaryOperation):
    """A map that fixed point does not have."""

    FIXED_POINT: ClassVar[bool] = False


define(
    FloatBinaryOperation,
    {
        "div": "x / y; integers round towards zero, as ONNX has it.",
        "pow": "x ** y; of integers the product of y factors, which wraps around; for a negative y "
        "it is 1 / x ** -y, rounded towards zero, and 0 for x = 0.",
    },
)


define(
    FloatBinaryOperation,
    {
        "mod": "The remainder of x / y: with the sign of y, or of x if ``truncated``; an integer's "
        "remainder by 0 is 0.",
    },
    DEFAULTS={"truncated": False},
)

"""Operations on one element at a time, of one operand (and a slope)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tilewright.graph.operation import Attributes, Operation, Type
from tilewright.graph.operations.base import broadcast_shape, define, definition
from tilewright.ir import i1
from tilewright.ir.types import Array, FixedType
from tilewright.numerics import pointwise
from tilewright.numerics.element_types import widened
from tilewright.numerics.operators import FUNCTIONS
from tilewright.planning.domain import Role, Stage


class PointwiseOperation(Operation):
    """A map; its meaning is ``numerics.pointwise`` under the operation's name."""

    LOGICAL: ClassVar[bool] = False
    """True if the operation is defined on booleans."""

    def infer(self, types: Sequence[Type]) -> Type:
        """The broadcast shape; elements of the first operand's type."""
        self.need(self.LOGICAL or types[0].element_type != i1, "is not defined on booleans")
        shape = broadcast_shape(self, [kind.get_shape() for kind in types])
        return self.result_of(shape, self.computed_element(types))

    def evaluate(self, *arrays: Array) -> Array:
        """As numerics.pointwise states, for float32, other plain elements, and fixed point.

        Floats of 16 bits are computed on in float32.
        """
        values = pointwise.evaluate(
            self.operation,
            widened(arrays),
            fractions=self.fractions,
            result_fraction=self.result_fraction,
            attributes=self.values,
            fixed=self.is_fixed,
        )
        return self.as_result(values)

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims d0..dk of the result; an axis that broadcasts is read at 0."""
        return self.mapped(operands, result)


class TableOperation(PointwiseOperation):
    """A function of one operand; on 16-bit fixed point, a table with linear interpolation.

    The fixed-point result is 16-bit too; its binary point is chosen.
    """

    RESULT_CHOSEN: ClassVar[bool] = True

    def infer(self, types: Sequence[Type]) -> Type:
        """Return the operand's type, which the result has."""
        for name, default in self.DEFAULTS.items():
            if isinstance(default, float):
                _ = self.number(name)
        if isinstance(types[0].element_type, FixedType):
            _ = self.fixed(types[0], (16,))
        else:
            self.need_float(types[0])
        return self.result_of(types[0].get_shape(), types[0].element_type)


@definition
class ReluOp(PointwiseOperation):
    """The rectified linear function max(x, 0)."""

    name = "graph.relu"


define(
    PointwiseOperation,
    {
        "neg": "The negation -x; fixed point saturates.",
        "abs": "The magnitude |x|; fixed point saturates.",
    },
)


@definition
class ClipOp(PointwiseOperation):
    """min(max(x, minimum), maximum); a bound that is absent does not bind.

    In fixed point the bounds are rounded to the binary point.
    """

    name = "graph.clip"
    DEFAULTS: ClassVar[Attributes] = {"minimum": None, "maximum": None}

    def infer(self, types: Sequence[Type]) -> Type:
        """Return the operand's type, which the result has."""
        for name in ("minimum", "maximum"):
            if name in self.properties:
                _ = self.number(name)
        return super().infer(types)


@definition
class LeakyReluOp(PointwiseOperation):
    """x, or alpha * x where x is negative; in fixed point alpha has 14 fraction bits.

    A ``factor`` (a, s) stands for alpha after sums of 32 bits: the result is exact, x * 2**s or
    x * a with s fraction bits more, saturated to 32 bits.
    """

    name = "graph.leaky_relu"
    DEFAULTS: ClassVar[Attributes] = {"alpha": 0.01, "factor": None}

    def infer(self, types: Sequence[Type]) -> Type:
        """Return the operand's type, which the result has."""
        alpha = self.number("alpha")
        fixed = isinstance(types[0].element_type, FixedType)
        self.need(not fixed or -2 <= alpha < 2, f"alpha must lie in [-2, 2), is {alpha}")
        if not fixed:
            self.need_float(types[0])
        result = super().infer(types)
        if "factor" not in self.properties:
            return result
        _, shift = self.integers("factor", 2, 0)
        element = result.element_type
        if not isinstance(element, FixedType) or element.bits.data != 32:
            raise self.wrong(f"a factor needs sums of fixed point, found {element}")
        return self.result_of(result.get_shape(), FixedType.of(32, element.fraction.data + shift))


@definition
class PReluOp(PointwiseOperation):
    """x, or slope * x where x is negative; the slope broadcasts to x.

    In fixed point the slope has 16 bits and any binary point from 1 on.
    """

    name = "graph.prelu"
    ARITY: ClassVar[tuple[int, int]] = (2, 2)
    ROLES: ClassVar[tuple[Role, ...]] = ("input", "weight")

    def infer(self, types: Sequence[Type]) -> Type:
        """The type of x."""
        shape = types[0].get_shape()
        self.need(
            broadcast_shape(self, [kind.get_shape() for kind in types]) == shape,
            f"slope {list(types[1].get_shape())} does not broadcast to {list(shape)}",
        )
        element = types[0].element_type
        if isinstance(element, FixedType):
            slope = self.fixed(types[1]).fraction.data
            self.need(1 <= slope <= 30, f"the slope's binary point must lie in [1, 30], is {slope}")
        else:
            element = self.computed_element(types)
        return self.result_of(shape, element)


class FloatOperation(PointwiseOperation):
    """A function of one float."""

    FIXED_POINT: ClassVar[bool] = False

    def infer(self, types: Sequence[Type]) -> Type:
        """Return the operand's type, which the result has."""
        result = super().infer(types)
        self.need_float(result)
        return result


for _name, _function in FUNCTIONS.items():
    define(
        TableOperation if "table" in _function.traits else FloatOperation,
        {_name: _function.c},
        DEFAULTS=_function.parameters,
    )

define(
    PointwiseOperation,
    {"sign": "1, 0 or -1: the sign of x; not defined on fixed point."},
    FIXED_POINT=False,
)

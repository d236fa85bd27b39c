"""Functions of one float that fixed point does not have: rounding and trigonometry."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.graph.operations.base import Type
from tilewright.graph.operations.pointwise import PointwiseOperation
from tilewright.ir import irdl_op_definition
from tilewright.ir.types import FixedType


class FloatOperation(PointwiseOperation):
    """A function of one float."""

    def infer(self, types: Sequence[Type]) -> Type:
        """The operand's type."""
        result = super().infer(types)
        self.need(not isinstance(result.element_type, FixedType), "is not defined on fixed point")
        self.need_float(result)
        return result


@irdl_op_definition
class FloorOp(FloatOperation):
    """The largest integer that is not above x."""

    name = "graph.floor"


@irdl_op_definition
class CeilOp(FloatOperation):
    """The smallest integer that is not below x."""

    name = "graph.ceil"


@irdl_op_definition
class RoundOp(FloatOperation):
    """The nearest integer, the even one of two."""

    name = "graph.round"


@irdl_op_definition
class SinOp(FloatOperation):
    """The sine of x radians."""

    name = "graph.sin"


@irdl_op_definition
class CosOp(FloatOperation):
    """The cosine of x radians."""

    name = "graph.cos"


@irdl_op_definition
class TanOp(FloatOperation):
    """The tangent of x radians."""

    name = "graph.tan"


@irdl_op_definition
class AsinOp(FloatOperation):
    """The angle in [-pi/2, pi/2] whose sine is x."""

    name = "graph.asin"


@irdl_op_definition
class AcosOp(FloatOperation):
    """The angle in [0, pi] whose cosine is x."""

    name = "graph.acos"


@irdl_op_definition
class AtanOp(FloatOperation):
    """The angle in (-pi/2, pi/2) whose tangent is x."""

    name = "graph.atan"


@irdl_op_definition
class SinhOp(FloatOperation):
    """The hyperbolic sine."""

    name = "graph.sinh"


@irdl_op_definition
class CoshOp(FloatOperation):
    """The hyperbolic cosine."""

    name = "graph.cosh"


@irdl_op_definition
class AsinhOp(FloatOperation):
    """The inverse of the hyperbolic sine."""

    name = "graph.asinh"


@irdl_op_definition
class AcoshOp(FloatOperation):
    """The inverse of the hyperbolic cosine, at least 0."""

    name = "graph.acosh"


@irdl_op_definition
class AtanhOp(FloatOperation):
    """The inverse of the hyperbolic tangent."""

    name = "graph.atanh"


@irdl_op_definition
class SignOp(PointwiseOperation):
    """1, 0 or -1: the sign of x; not defined on fixed point."""

    name = "graph.sign"

    def infer(self, types: Sequence[Type]) -> Type:
        """The operand's type."""
        result = super().infer(types)
        self.need(not isinstance(result.element_type, FixedType), "is not defined on fixed point")
        return result

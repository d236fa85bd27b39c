"""The operations of functions of one number, made of the definitions in numerics/operators.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, cast

from tilewright.graph.operations.base import Type, definition
from tilewright.graph.operations.pointwise import PointwiseOperation, TableOperation
from tilewright.numerics.operators import FUNCTIONS, Function


class FloatOperation(PointwiseOperation):
    """A function of one float."""

    FIXED_POINT: ClassVar[bool] = False

    def infer(self, types: Sequence[Type]) -> Type:
        """Return the operand's type, which the result has."""
        result = super().infer(types)
        self.need_float(result)
        return result


def _operation(name: str, function: Function) -> type[PointwiseOperation]:
    """The operation of a function; on fixed point, too, if that reads a table."""
    kind = TableOperation if "table" in function.traits else FloatOperation
    members = {
        "name": f"graph.{name}",
        "DEFAULTS": function.parameters,
        "__annotations__": {"DEFAULTS": ClassVar[Mapping[str, float]]},
        "__doc__": function.c,
    }
    title = name.title().replace("_", "")
    return definition(cast("type[PointwiseOperation]", type(f"{title}Op", (kind,), members)))


FUNCTION_OPERATIONS: Mapping[str, type[PointwiseOperation]] = {
    name: _operation(name, function) for name, function in FUNCTIONS.items()
}
"""Operation of each function by its name."""


@definition
class SignOp(PointwiseOperation):
    """1, 0 or -1: the sign of x; not defined on fixed point."""

    name = "graph.sign"
    FIXED_POINT: ClassVar[bool] = False

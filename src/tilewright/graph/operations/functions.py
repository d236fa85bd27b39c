"""The operations of functions of one number, made of the definitions in numerics/operators.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tilewright.graph.operations.base import Type, define
from tilewright.graph.operations.pointwise import PointwiseOperation, TableOperation
from tilewright.numerics.operators import FUNCTIONS


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

"""Products of bytes whose scales or zero points are computed: int32 products, scaled as floats.

What DynamicQuantizeLinear gives has both at run time. The product is written as what it means,
sum (x - zx) * (w - zw) in int32; multiply-bytes makes one of bytes of it.
"""

from __future__ import annotations

from math import prod

from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import constant, make
from tilewright.graph.passes.integers.reals import BYTES
from tilewright.ir import PythonValue, SSAValue
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import dtype_of, shape_of


def computed_scales(op: Operation, ctx: CompilerContext) -> SSAValue | None:
    """The float result of a product of dequantised bytes, by its int32 sums; None if its operands
    are no such, or have constant scales and zero points."""
    operands = [_Dequantised.of(value, op) for value in op.inputs[:2]]
    first, second = operands
    if first is None or second is None or not (first.is_computed(ctx) or second.is_computed(ctx)):
        return None
    if op.operation == "conv":
        if not (first.is_single and second.varies_along(0)):
            return None
        scale = second.scale
        if prod(shape_of(scale)) > 1:
            channels = shape_of(op.result)[1]
            scale = _emitted("reshape", [scale], op, shape=(1, channels, 1, 1))
        values = op.values
    else:
        if min(len(shape_of(value)) for value in op.inputs[:2]) < 2:
            return None
        first = first.turned() if op.get("transpose_a", False) else first
        second = second.turned() if op.get("transpose_b", False) else second
        if not (first.varies_along(-2) and second.varies_along(-1)):
            return None
        scale, values = second.scale, {}
    sums = _emitted(op.operation, [first.centred(), second.centred()], op, **values)
    factor = _emitted("mul", [first.scale, scale], op)
    value = _emitted("dequantise_linear", [sums, factor], op, zero=0)
    if len(op.inputs) < 3:
        return value
    bias = op.inputs[2]
    if op.operation == "conv":
        bias = _emitted("reshape", [bias], op, shape=(1, shape_of(bias)[0], 1, 1))
    return _emitted("add", [value, bias], op)


def _emitted(name: str, operands: list[SSAValue], op: Operation, **values: PythonValue) -> SSAValue:
    return make(name, operands, values, before=op, like=op).result


class _Dequantised:
    """The bytes, the scale and the zero point behind a float operand of a product."""

    def __init__(self, parts: list[SSAValue], product: Operation) -> None:
        self.value, self.scale, self.zero = parts
        self.product = product

    @staticmethod
    def of(value: SSAValue, product: Operation) -> _Dequantised | None:
        """None for a float that was not dequantised from bytes."""
        op = value.owner
        if not isinstance(op, Operation) or op.operation != "dequantise_linear":
            return None
        if len(op.inputs) != 3 or dtype_of(op.inputs[0]) not in BYTES:
            return None
        return _Dequantised(list(op.inputs), product)

    def is_computed(self, ctx: CompilerContext) -> bool:
        """Return True if the scale or the zero point is known only at run time."""
        return constant(self.scale, ctx) is None or constant(self.zero, ctx) is None

    @property
    def is_single(self) -> bool:
        """True if one scale and one zero point hold for all elements."""
        return prod(shape_of(self.scale)) == prod(shape_of(self.zero)) == 1

    def varies_along(self, axis: int) -> bool:
        """Return True if scales and zero points vary along one axis at most."""
        rank = len(shape_of(self.value))
        for part in (self.scale, self.zero):
            shape = (1,) * (rank - len(shape_of(part))) + shape_of(part)
            if prod(shape) != shape[axis]:
                return False
        return True

    def turned(self) -> _Dequantised:
        """With rows and columns exchanged."""
        rank = len(shape_of(self.value))
        order = (*range(rank - 2), rank - 1, rank - 2)
        parts: list[SSAValue] = []
        for part in (self.value, self.scale, self.zero):
            shape = shape_of(part)
            if prod(shape) > 1:
                wide = (1,) * (rank - len(shape)) + shape
                part = _emitted("reshape", [part], self.product, shape=wide)
                part = _emitted("transpose", [part], self.product, permutation=order)
            parts.append(part)
        return _Dequantised(parts, self.product)

    def centred(self) -> SSAValue:
        """The bytes less their zero points, in int32."""
        whole = [
            _emitted("cast", [part], self.product, to="int32") for part in (self.value, self.zero)
        ]
        return _emitted("sub", whole, self.product)

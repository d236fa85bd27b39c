"""Products of bytes whose scales or zero points are computed: int32 products, scaled as floats.

What DynamicQuantizeLinear gives has both at run time. The product is written as what it means,
sum (x - zx) * (w - zw) in int32; multiply-bytes makes one of bytes of it.
"""

from __future__ import annotations

from math import prod

from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import Rewriter, producer
from tilewright.graph.passes.integers.reals import BYTES
from tilewright.ir import SSAValue
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import dtype_of, shape_of


def computed_scales(op: Operation, ctx: CompilerContext) -> SSAValue | None:
    """The float result of a product of dequantised bytes, by its int32 sums; None if its operands
    are no such, or have constant scales and zero points."""
    at = Rewriter(ctx, op)
    first, second = (_Dequantised.of(value, at) for value in op.inputs[:2])
    if first is None or second is None or not (first.is_computed or second.is_computed):
        return None
    if op.operation == "conv":
        if not (first.is_single and second.varies_along(0)):
            return None
        scale = second.scale
        if prod(shape_of(scale)) > 1:
            channels = shape_of(op.result)[1]
            scale = at.make("reshape", scale, shape=(1, channels, 1, 1))
        values = op.values
    else:
        if min(len(shape_of(value)) for value in op.inputs[:2]) < 2:
            return None
        first = first.turned() if op.get("transpose_a", False) else first
        second = second.turned() if op.get("transpose_b", False) else second
        if not (first.varies_along(-2) and second.varies_along(-1)):
            return None
        scale, values = second.scale, {}
    sums = at.make(op.operation, first.centred(), second.centred(), **values)
    value = at.make("dequantise_linear", sums, at.make("mul", first.scale, scale), zero=0)
    return value if len(op.inputs) < 3 else with_bias(value, op, at)


def with_bias(value: SSAValue, op: Operation, at: Rewriter) -> SSAValue:
    """The bias of a product added to its result, which was computed without."""
    bias = op.inputs[2]
    if op.operation == "conv":
        bias = at.make("reshape", bias, shape=(1, shape_of(bias)[0], 1, 1))
    return at.make("add", value, bias)


class _Dequantised:
    """The bytes, the scale and the zero point of the integers that give a float operand of a
    product."""

    def __init__(self, parts: list[SSAValue], at: Rewriter) -> None:
        self.value, self.scale, self.zero = parts
        self.at = at

    @staticmethod
    def of(value: SSAValue, at: Rewriter) -> _Dequantised | None:
        """None for a float that was not dequantised from bytes."""
        op = producer(value, "dequantise_linear")
        if op is None or len(op.inputs) != 3 or dtype_of(op.inputs[0]) not in BYTES:
            return None
        return _Dequantised(list(op.inputs), at)

    @property
    def is_computed(self) -> bool:
        """True if the scale or the zero point is known only at run time."""
        return self.at.constant(self.scale) is None or self.at.constant(self.zero) is None

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
                part = self.at.make("reshape", part, shape=wide)
                part = self.at.make("transpose", part, permutation=order)
            parts.append(part)
        return _Dequantised(parts, self.at)

    def centred(self) -> SSAValue:
        """The bytes less their zero points, in int32."""
        whole = [self.at.make("cast", part, to="int32") for part in (self.value, self.zero)]
        return self.at.make("sub", *whole)

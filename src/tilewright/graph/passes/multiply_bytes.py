"""multiply-bytes: products of bytes less zero points become products of bytes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.graph.dialect import network_of
from tilewright.graph.operations import Operation
from tilewright.graph.operations.quantisation import BYTES
from tilewright.graph.passes.editing import (
    Rewriter,
    compiler,
    constant,
    merge_weights,
    only_user,
    operations_of,
    producer,
    sweep,
    users,
)
from tilewright.graph.passes.integers.sums import Bytes, ByteWeights, convolved, multiplied
from tilewright.ir import Attribute, Context, ModuleOp, ModulePass, SSAValue, f32, i32
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import Array, element_dtype, shape_of, tensor_type
from tilewright.numerics.operators import has

_IMAGE, _WEIGHT = np.dtype(np.uint8), np.dtype(np.int8)
"""The types that processors multiply: unsigned bytes by signed ones."""


@dataclass(frozen=True)
class MultiplyBytes(ModulePass):
    """Multiply bytes, not the int32 that they are once their zero points are subtracted.

    Before::

        %1 = graph.cast %x : (tensor<1x3x8x8xui8>) -> tensor<1x3x8x8xi32>
        %2 = graph.cast %zero : (tensor<ui8>) -> tensor<i32>
        %3 = graph.sub %1, %2
        %4 = graph.conv %3, %w {pads = [1, 1, 1, 1]} : (..., tensor<32x3x3x3xi32>) -> ...
        %5 = graph.add %4, %b : (..., tensor<1x32x1x1xi32>) -> ...
        %6 = graph.cast %5 : ... -> tensor<1x32x8x8xf32>
        %7 = graph.mul %6, %scale : (..., tensor<f32>) -> ...

    After::

        %1 = graph.pad %x, %zero {pads = [0, 0, 1, 1, 0, 0, 1, 1]} : ... -> tensor<1x3x10x10xui8>
        %2 = graph.cast %zero : (tensor<ui8>) -> tensor<i32>
        %3 = graph.mul %sums, %2 : (tensor<32xi32>, tensor<i32>) -> tensor<32xi32>
        %4 = graph.sub %bias, %3
        %5 = graph.conv %1, %w8, %4 : (..., tensor<32x3x3x3xi8>, tensor<32xi32>) -> ...
        %7 = graph.dequantise_linear %5, %scale {zero = 0}

    Importers write every integer product as what it means, whatever its spelling; this is the form
    that compute-in-integers gives networks whose scales are known, with zero points that may be
    computed. Sums are the same modulo 2**32.
    """

    name = "multiply-bytes"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        context = compiler(ctx)
        for step in operations_of(op):
            if not has(step.operation, "product") or _element(step.result) != i32:
                continue
            rewrite = _convolution if step.operation == "conv" else _product
            for last in dict.fromkeys((_with_bias(step), step)):
                at = Rewriter(context, last, step)
                sums = rewrite(step, at)
                if sums is not None:
                    at.replace(sums)
                    _scaled(sums, context)
                    break
        sweep(network_of(op))
        merge_weights(network_of(op))


def _element(value: SSAValue) -> Attribute:
    return tensor_type(value).element_type


def _with_bias(op: Operation) -> Operation:
    """The addition of a number for each output channel after a product, else the product."""
    step = only_user(op.result)
    if len(op.inputs) > 2 or not isinstance(step, Operation) or step.operation != "add":
        return op
    return step if _row_of(step, op) is not None else op


def _row_of(add: Operation, op: Operation) -> SSAValue | None:
    """Return the addend of a sum with a product, if it has one number for each output channel; else
    None."""
    shape_of_sum, axis = shape_of(op.result), 1 if op.operation == "conv" else -1
    others = [value for value in add.inputs if value is not op.result]
    if len(others) != 1 or shape_of(add.result) != shape_of_sum:
        return None
    shape = (1,) * (len(shape_of_sum) - len(shape_of(others[0]))) + shape_of(others[0])
    channels = shape_of_sum[axis]
    return others[0] if shape[axis] == channels == prod(shape) else None


def _convolution(op: Operation, at: Rewriter) -> SSAValue | None:
    """A convolution's sums of bytes; None if its operands are no bytes."""
    image, array = _centred(op.inputs[0], at.ctx), _integers(op.inputs[1], at.ctx)
    if image is None or array is None or not _single(image):
        return None
    weights = _weights(array)
    if weights is None:
        return None
    return convolved(op, _as_bytes(image, _IMAGE, at), weights, _bias(op, at), at)


def _bias(op: Operation, at: Rewriter) -> Array | SSAValue:
    """A product's own bias, or what the operation after it adds."""
    channels = shape_of(op.result)[1 if op.operation == "conv" else -1]
    row = op.inputs[2] if len(op.inputs) > 2 else None if at.op is op else _row_of(at.op, op)
    if row is None:
        return np.zeros(channels, np.int64)
    array = at.constant(row)
    if array is not None:
        return array.reshape(-1).astype(np.int64)
    if shape_of(row) == (channels,):
        return row
    return at.of(at.op).make("reshape", row, shape=(channels,))


def _weights(array: Array) -> ByteWeights | None:
    """Integers [co, ...] as int8 and zero points, one for all where that is enough; None where a
    channel's are more than 256 numbers apart."""
    rows = array.reshape(array.shape[0], -1)
    for low, high in ((rows.min(), rows.max()), (rows.min(axis=1), rows.max(axis=1))):
        if (low >= -128).all() and (high <= 127).all():
            return ByteWeights(array.astype(np.int8), np.zeros(len(rows), np.int32))
        if (high - low <= 255).all():
            zero = np.broadcast_to(np.asarray(-128 - low, np.int32), (len(rows),))
            moved = array + zero.reshape(-1, *[1] * (array.ndim - 1))
            return ByteWeights(moved.astype(np.int8), zero)
    return None


def _product(op: Operation, at: Rewriter) -> SSAValue | None:
    """A matrix product's sums of bytes; None if its operands are no bytes."""
    if op.get("transpose_a", False):
        return None
    turned = bool(op.get("transpose_b", False))
    left, array = _centred(op.inputs[0], at.ctx), _integers(op.inputs[1], at.ctx)
    if left is not None and array is not None and array.ndim == 2 and _single(left):
        weights = _weights(array if turned else np.ascontiguousarray(array.T))
        if weights is not None:
            return multiplied(_as_bytes(left, _IMAGE, at), weights, _bias(op, at), at)
    if turned or at.op is not op or len(op.inputs) > 2:
        return None
    first, second = (_matrix(value, at) for value in op.inputs)
    if first is None or second is None or not (_rows(first, -1) and _rows(second, -2)):
        return None
    x, w = _as_bytes(first, _IMAGE, at), _as_bytes(second, _WEIGHT, at)
    return _of_computed(x, w, shape_of(op.inputs[0])[-1], at)


def _of_computed(x: Bytes, w: Bytes, depth: int, at: Rewriter) -> SSAValue:
    """The product of two matrices of bytes, whose rows and columns have a zero point each.

    sum (x - p) (w - q) = sum x w - p sum w - q (sum x - p k), where the sums too are products, with
    ones.
    """

    def whole(zero: int | SSAValue) -> SSAValue:
        if isinstance(zero, int):
            return at.weight(np.array(zero, np.int32), ".zero")
        return at.make("cast", zero, to="int32")

    total = at.make("matmul", x.value, w.value)
    if x.zero != 0:
        array = at.constant(w.value)
        if array is None:
            columns = at.make("matmul", at.weight(np.ones((1, depth), _IMAGE), ".row"), w.value)
        else:
            columns = at.weight(array.sum(axis=-2, keepdims=True, dtype=np.int32), ".sums")
        total = at.make("sub", total, at.make("mul", whole(x.zero), columns))
    if w.zero != 0:
        rows = at.make("matmul", x.value, at.weight(np.ones((depth, 1), _WEIGHT), ".column"))
        if x.zero != 0:
            count = at.weight(np.array(depth, np.int32), ".count")
            rows = at.make("sub", rows, at.make("mul", whole(x.zero), count))
        total = at.make("sub", total, at.make("mul", whole(w.zero), rows))
    return total


def _centred(value: SSAValue, ctx: CompilerContext) -> Bytes | None:
    """The bytes, of either kind, that int32 are the differences of from their zero points."""
    op, zero = producer(value, "sub"), None
    if op is not None:
        value, zero = op.inputs
        if shape_of(value) != shape_of(op.result):
            return None
    source = _uncast(value)
    if source is None or zero is None:
        return Bytes(source, 0) if source is not None else None
    array = constant(zero, ctx)
    if array is not None and array.size == 1:
        limits = np.iinfo(element_dtype(_element(source)))
        number = int(array.reshape(()))
        return Bytes(source, number) if limits.min <= number <= limits.max else None
    operand = _uncast(zero)
    return (
        Bytes(source, operand)
        if operand is not None and _element(operand) == _element(source)
        else None
    )


def _uncast(value: SSAValue) -> SSAValue | None:
    """The bytes that int32 were cast from."""
    op = producer(value, "cast")
    return op.inputs[0] if op is not None and _element(op.inputs[0]) in BYTES.values() else None


def _integers(value: SSAValue, ctx: CompilerContext) -> Array | None:
    """Return the int32 array of a constant; None for values that are not constant."""
    array = constant(value, ctx)
    if array is None:
        centred = _centred(value, ctx)
        stored = constant(centred.value, ctx) if centred is not None else None
        if centred is not None and stored is not None and isinstance(centred.zero, int):
            array = stored.astype(np.int32) - np.int32(centred.zero)
    return array if array is not None and array.size else None


def _matrix(value: SSAValue, at: Rewriter) -> Bytes | None:
    """An operand as bytes, constant ones with one zero point."""
    array = _integers(value, at.ctx)
    if array is None:
        return _centred(value, at.ctx)
    weights = _weights(array.reshape(1, -1))
    if weights is None:
        return None
    symbol = at.weight(weights.array.reshape(array.shape), at.node)
    return Bytes(symbol, int(weights.zero[0]))


def _single(x: Bytes) -> bool:
    """Return True if there is one zero point."""
    return isinstance(x.zero, int) or prod(shape_of(x.zero)) == 1


def _rows(x: Bytes, axis: int) -> bool:
    """Return True if zero points do not vary along an axis."""
    return isinstance(x.zero, int) or (shape_of(x.zero)[axis:] or (1,))[0] == 1


def _as_bytes(x: Bytes, to: np.dtype[np.generic], at: Rewriter) -> Bytes:
    """Bytes of the other kind, moved by 128, which flips their highest bit; a single zero point
    that is computed has no axes."""
    at = at.of(at.op)

    def moved(value: SSAValue) -> SSAValue:
        dtype, bit = element_dtype(_element(value)), np.array(128, np.uint8)
        if dtype == to:
            return value
        array = at.constant(value)
        if array is not None:
            return at.weight((array ^ bit.view(dtype)).view(to), "moved")
        flipped = at.make("bit_xor", value, at.weight(bit.view(dtype), "bit"))
        return at.make("bit_cast", flipped, to=to.name)

    if isinstance(x.zero, int):
        distance = int(np.iinfo(to.name).min) - int(np.iinfo(element_dtype(_element(x.value))).min)
        return Bytes(moved(x.value), x.zero + distance)
    zero = moved(x.zero)
    if shape_of(zero) and prod(shape_of(zero)) == 1:
        zero = at.make("reshape", zero, shape=())
    return Bytes(moved(x.value), zero)


def _scaled(sums: SSAValue, ctx: CompilerContext) -> None:
    """Sums that become floats, and are scaled, do so in one operation."""
    for step in users(sums):
        if not isinstance(step, Operation) or step.operation != "cast":
            continue
        if _element(step.result) != f32:
            continue
        scale, last = None, only_user(step.result)
        if isinstance(last, Operation) and last.operation == "mul":
            others = [value for value in last.inputs if value is not step.result]
            if len(others) == 1 and shape_of(last.result) == shape_of(sums):
                scale = others[0]
        if scale is None or not isinstance(last, Operation):
            scale, last = Rewriter(ctx, step).weight(np.ones((), np.float32), "one"), step
        at = Rewriter(ctx, last)
        at.replace(at.make("dequantise_linear", sums, scale, zero=0))

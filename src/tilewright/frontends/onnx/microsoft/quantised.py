"""Operators on quantised tensors (QLinearAdd, QGemm, ...): float operators between conversions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.frontends.moves import cut
from tilewright.frontends.onnx.lowering import Lowering, Map, Rule, Value
from tilewright.frontends.onnx.operators import (
    elementwise,
    normalisation,
    pooling,
    quantisation,
    reductions,
)
from tilewright.frontends.onnx.operators.quantisation import dequantised, operand, quantised, result
from tilewright.frontends.onnx.operators.recurrent import Product, lstm
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of


def pair(operation: str) -> Rule:
    """A map of two quantised tensors."""
    return lambda at: result(at, at.emit(operation, operand(at, 0), operand(at, 3)), 6)


def unary(rule: Map) -> Rule:
    """A float operator of one quantised tensor."""

    def quantised_rule(at: Lowering) -> Value:
        return result(at, _channels_first(at, operand(at, 0), lambda x: rule(at.like([x]))), 3)

    return quantised_rule


def _channels_first(at: Lowering, x: SSAValue, build: Callable[[SSAValue], SSAValue]) -> SSAValue:
    """A result of ``x`` with its channels second, where they are last in both."""
    if not at.integer("channels_last"):
        return build(x)
    rank = len(shape_of(x))
    value = build(at.transpose(x, (0, rank - 1, *range(1, rank - 1))))
    return at.transpose(value, (0, *range(2, rank), 1))


def channels_last_max_pool(at: Lowering) -> Value:
    """The largest of each window of images whose channels are last."""
    rank = len(at.shape(0))
    x = at.transpose(at.tensor(0), (0, rank - 1, *range(1, rank - 1)))
    value = pooling.max_pool(at.like([x]))
    assert isinstance(value, SSAValue)
    return at.transpose(value, (0, *range(2, rank), 1))


def softmax(at: Lowering) -> Value:
    """Softmax of the operator set that ``opset`` names."""
    inner = at.like([operand(at, 0)])
    inner.version = at.integer("opset", 13)
    return result(at, normalisation.softmax(inner), 3)


def concat(at: Lowering) -> Value:
    """Join quantised parts; each has a scale of its own, and they come after the result's scale."""
    count = len(at.operands) - 2
    if count % 3:
        raise at.refuse("its parts have no scale and zero point each")
    parts = [operand(at, index) for index in range(2, len(at.operands), 3)]
    axis = at.axis(at.integer("axis", 0), len(shape_of(parts[0])))
    value = parts[0] if len(parts) == 1 else at.emit("concat", *parts, axis=axis)
    return quantised(at, value, at.reshape(at.tensor(0), ()), at.reshape(at.tensor(1), ()))


def where(at: Lowering) -> Value:
    """The first tensor where the condition holds, else the second."""
    return result(at, at.emit("select", at.tensor(0), operand(at, 1), operand(at, 4)), 7)


def gemm(at: Lowering) -> Value:
    """alpha * a @ b + c, with c in int32; a float unless the result has a scale."""
    if len(at.shape(0)) != 2 or len(at.shape(3)) != 2:
        raise at.misfit("its matrices are not of rank 2")
    flags = {"transpose_a": bool(at.integer("transA")), "transpose_b": bool(at.integer("transB"))}
    alpha = at.number("alpha", 1.0)
    a, b = operand(at, 0), operand(at, 3, 0 if flags["transpose_b"] else 1)
    inputs = [a, b]
    if at.has(6):
        scales = [at.cast(at.tensor(index), np.float32) for index in (1, 4)]
        scale = at.emit(
            "mul", *(at.reshape(s, (max(1, *shape_of(s)),)) if shape_of(s) else s for s in scales)
        )
        inputs.append(dequantised(at, at.tensor(6), scale, None))
    value = at.emit("matmul", *inputs, **flags)
    if alpha != 1:
        value = at.apply("mul", value, alpha)
    return result(at, value, 7) if at.has(7) else value


def matmul_integer_to_float(at: Lowering) -> Value:
    """(a - zero) @ (b - zero) * scales + bias: operands a, b, scales, zero points, bias."""
    operands = [at.operands[i] if at.has(i) else None for i in range(7)]
    a, b, a_scale, b_scale, a_zero, b_zero, bias = operands
    del bias
    left = operand(at.like([a, a_scale, a_zero]), 0, -2)
    right = operand(at.like([b, b_scale, b_zero]), 0, -1)
    value = at.emit("matmul", left, right)
    return at.emit("add", value, at.tensor(6)) if at.has(6) else value


def dynamic_quantize_matmul(at: Lowering) -> Value:
    """a, quantised to uint8 by its own range, times quantised b.

    Operands: a, b, and of b the scale and the zero point, and a bias.
    """
    value = _ranged(at, at.tensor(0), at.tensor(1), at.tensor(2), at.operands[3:4])
    return at.emit("add", value, at.tensor(4)) if at.has(4) else value


def dynamic_quantize_lstm(at: Lowering) -> Sequence[Value]:
    """LSTM whose inputs and states are quantised to uint8 by their own ranges, step by step.

    Operands: those of LSTM, with W [directions, input, 4 * hidden] and R [directions, hidden,
    4 * hidden] quantised, then scale and zero point of W and of R, each [directions] or
    [directions, 4 * hidden].
    """
    if any(len(at.shape(index)) != 3 for index in (1, 2)):
        raise at.misfit("its weights are not of rank 3")
    turned = [at.transpose(at.tensor(index), (0, 2, 1)) for index in (1, 2)]
    operands = [at.operands[i] if i < len(at.operands) else None for i in range(8)]

    def products(inner: Lowering, index: int, number: int) -> Product:
        """The product with W or R: of all gates, as an LSTM's state has it."""
        places = [8, 9] if index == 1 else [10, 11]
        scale, zero = (_of_direction(at, at.tensor(place), number) for place in places)
        return lambda x, rows: _ranged(inner, x, inner.transpose(rows, (1, 0)), scale, [zero])

    return lstm(at.like([operands[0], *turned, *operands[3:]]), products)


def _of_direction(at: Lowering, value: SSAValue, number: int) -> SSAValue:
    """The scale or zero point of one direction: one number, or one for each column."""
    shape = shape_of(value)
    if shape[0] > 1:
        value = cut(at, value, {0: (number, number + 1, 1)})
    return at.reshape(value, shape[1:])


def _ranged(
    at: Lowering, x: SSAValue, weight: SSAValue, unit: SSAValue, zero_point: Sequence[Value | None]
) -> SSAValue:
    """x, quantised to uint8 by its own range, times a quantised matrix."""
    name = at.node.name
    axes = tuple(range(len(shape_of(x))))
    low, high = (
        at.emit(f"reduce_{kind}", x, axes=axes, keep_dims=False) for kind in ("min", "max")
    )
    zero = at.weight(np.zeros((), np.float32), f"{name}.zero")
    low, high = at.emit("min", low, zero), at.emit("max", high, zero)
    span = at.apply("div", at.emit("sub", high, low), 255.0)
    # A tensor of zeros has any scale.
    scale = at.emit("select", at.emit("equal", span, zero), at.apply("add", span, 1.0), span)
    origin = at.emit("round", at.emit("div", at.emit("sub", zero, low), scale))
    origin = at.cast(at.emit("clip", origin, minimum=0.0, maximum=255.0), np.uint8)
    integers = at.emit("quantise_linear", x, scale, origin)
    inner = at.like([integers, weight, origin, *(zero_point or [None])])
    total = quantisation.matmul_integer(inner)
    return dequantised(at, total, at.emit("mul", scale, at.cast(unit, np.float32)), None)


def convolution(at: Lowering) -> Value:
    """QLinearConv, whose images may have their channels last."""
    rest = at.operands[1:]
    return _channels_first(
        at, at.tensor(0), lambda x: quantisation.qlinear_conv(at.like([x, *rest]))
    )


sigmoid = unary(elementwise.unary("sigmoid"))
leaky_relu = unary(elementwise.unary("leaky_relu", alpha=0.01))
average_pool = unary(pooling.average_pool)
global_average_pool = unary(pooling.global_average_pool)
reduce_mean = unary(reductions.REDUCTIONS["ReduceMean"])

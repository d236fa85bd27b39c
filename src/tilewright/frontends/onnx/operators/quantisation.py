"""Quantisation as ONNX spells it: scales and zero points beside 8-, 16- and 32-bit integers.

Products of quantised operands are taken in int32, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tilewright.frontends.onnx.lowering import Lowering, Rule, Value
from tilewright.frontends.onnx.operators.convolution import convolve
from tilewright.frontends.onnx.windows import spatial_rank, window_of
from tilewright.ir import SSAValue
from tilewright.types import shape_of


def _spread(at: Lowering, index: int, rank: int, axis: int, extent: int) -> SSAValue | None:
    """A scale or zero point, shaped so that it broadcasts along ``axis``; None if absent."""
    if not at.has(index):
        return None
    shape = at.shape(index)
    if math.prod(shape) == 1:
        return at.reshape(at.tensor(index), ())
    if len(shape) != 1 or shape[0] != extent:
        raise at.refuse(
            f"its input {index} of shape {list(shape)} has not one number, or one for each index "
            f"of axis {axis}",
            code="onnx-shape",
        )
    return at.reshape(at.tensor(index), tuple(extent if i == axis else 1 for i in range(rank)))


def _placed(at: Lowering, index: int) -> SSAValue | None:
    shape = at.shape(0)
    if at.integer("block_size"):
        raise at.refuse("quantisation in blocks is not computed")
    axis = at.integer("axis", 1)
    if math.prod(at.shape(1)) > 1:
        axis = at.axis(axis, len(shape))
    return _spread(at, index, len(shape), axis, shape[axis] if 0 <= axis < len(shape) else 1)


def dequantize(at: Lowering) -> Value:
    """(x - zero point) * scale."""
    if at.dtype(0).kind not in "iu":
        raise at.refuse(f"{at.dtype(0)} is not dequantised", code="onnx-dtype")
    x, zero, scale = at.cast(at.tensor(0), np.int32), _placed(at, 2), _placed(at, 1)
    assert scale is not None
    if zero is not None:
        x = at.emit("sub", x, at.cast(zero, np.int32))
    result = at.emit("mul", at.cast(x, np.float32), at.cast(scale, np.float32))
    return at.cast(result, at.dtype(1))


def quantize(at: Lowering) -> Value:
    """x / scale to the nearest, the even one of two, plus the zero point, saturated."""
    to = at.dtype(2) if at.has(2) else np.dtype(np.uint8)
    if at.integer("output_dtype") not in (0, *_NUMBERS) or to.kind not in "iu":
        raise at.refuse("its result is not of 8 or 16 bits", code="onnx-dtype")
    if not at.has(2):
        to = _NUMBERS.get(at.integer("output_dtype"), to)
    scale, zero = _placed(at, 1), _placed(at, 2)
    assert scale is not None
    x = at.cast(at.tensor(0), np.float32)
    return _narrowed(at, at.emit("div", x, at.cast(scale, np.float32)), zero, to)


_NUMBERS = {
    2: np.dtype(np.uint8),
    3: np.dtype(np.int8),
    4: np.dtype(np.uint16),
    5: np.dtype(np.int16),
}


def _narrowed(
    at: Lowering, x: SSAValue, zero: SSAValue | None, to: np.dtype[np.generic]
) -> SSAValue:
    """Floats in units of the scale as integers of a type."""
    x = at.emit("round", x)
    if zero is not None:
        x = at.emit("add", x, at.cast(zero, np.float32))
    limits = np.iinfo(to.name)
    if limits.bits > 16:
        raise at.refuse(f"numbers are not quantised to {to}", code="onnx-dtype")
    x = at.emit("clip", x, minimum=float(limits.min), maximum=float(limits.max))
    return at.cast(x, to)


def _centred(at: Lowering, index: int, zero: int, axis: int) -> SSAValue:
    """An operand less its zero point, as int32."""
    x = at.cast(at.tensor(index), np.int32)
    shape = shape_of(x)
    axis %= max(len(shape), 1)
    found = _spread(at, zero, len(shape), axis, shape[axis] if shape else 1)
    return x if found is None else at.emit("sub", x, at.cast(found, np.int32))


def matmul_integer(at: Lowering) -> Value:
    """The product of two quantised matrices, in int32."""
    return at.emit("matmul", _centred(at, 0, 2, -2), _centred(at, 1, 3, -1))


def conv_integer(at: Lowering) -> Value:
    """The convolution of quantised images, in int32."""
    return _convolved(at, _centred(at, 0, 2, 1), _centred(at, 1, 3, 0), None)


def _convolved(at: Lowering, x: SSAValue, weights: SSAValue, bias: SSAValue | None) -> SSAValue:
    rank, shape = spatial_rank(at), shape_of(weights)
    kernel = at.integers("kernel_shape") or shape[2:]
    if len(shape) != rank + 2 or kernel != shape[2:]:
        raise at.refuse(f"weights of shape {list(shape)} do not fit", code="onnx-shape")
    window = window_of(at, kernel, pool=False)
    return convolve(at, x, weights, bias, window, at.integer("group", 1))


def _requantised(product: Callable[[Lowering], SSAValue], scales: tuple[int, ...]) -> Rule:
    """The rule of an operator whose product is scaled and quantised again.

    ``scales`` are the places of the operands' two scales, the result's, and its zero point.
    """

    def rule(at: Lowering) -> Value:
        total = product(at)
        rank = len(shape_of(total))
        axis = 1 if at.node.operator == "QLinearConv" else rank - 1
        extent = shape_of(total)[axis]
        first, second, result, zero = (_spread(at, index, rank, axis, extent) for index in scales)
        assert first is not None and second is not None and result is not None
        factor = at.emit(
            "div",
            at.emit("mul", at.cast(first, np.float32), at.cast(second, np.float32)),
            at.cast(result, np.float32),
        )
        units = at.emit("mul", at.cast(total, np.float32), factor)
        return _narrowed(at, units, zero, at.dtype(scales[3]))

    return rule


def _qlinear_matmul(at: Lowering) -> SSAValue:
    return at.emit("matmul", _centred(at, 0, 2, -2), _centred(at, 3, 5, -1))


def _qlinear_conv(at: Lowering) -> SSAValue:
    bias = at.tensor(8) if at.has(8) else None
    return _convolved(at, _centred(at, 0, 2, 1), _centred(at, 3, 5, 0), bias)


qlinear_matmul = _requantised(_qlinear_matmul, (1, 4, 6, 7))
qlinear_conv = _requantised(_qlinear_conv, (1, 4, 6, 7))

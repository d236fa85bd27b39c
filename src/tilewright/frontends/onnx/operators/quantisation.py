"""Quantisation as ONNX spells it: scales and zero points beside 8-, 16- and 32-bit integers.

Operators on quantised tensors become what they mean, the float operator between
``dequantise_linear`` and ``quantise_linear``, as exporters of the QDQ form write it;
compute-in-integers makes integer arithmetic of both alike. Products that give int32 are taken of
int32, which are bytes less their zero points; multiply-bytes makes products of bytes of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from tilewright.frontends.moves import broadcast, cut
from tilewright.frontends.onnx.lowering import Lowering, Value, dtype_of
from tilewright.frontends.onnx.narrow import NARROW
from tilewright.frontends.onnx.operators.convolution import conv
from tilewright.frontends.onnx.operators.elementwise import encoded
from tilewright.frontends.onnx.operators.matrix import matmul
from tilewright.frontends.onnx.tensors import DTYPES, type_name
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of
from tilewright.memory.alignment import ceil_div
from tilewright.numerics.codes import FORMATS, Format


def _spread(at: Lowering, index: int, sizes: Sequence[int], axis: int) -> SSAValue | None:
    """A scale or zero point, shaped so that it broadcasts along an axis of ``sizes``.

    None if absent.
    """
    if not at.has(index):
        return None
    shape = at.shape(index)
    if math.prod(shape) == 1:
        return at.reshape(at.tensor(index), ())
    axis %= max(len(sizes), 1)
    if shape != tuple(sizes[axis : axis + 1]):
        raise at.misfit(
            f"its input {index} of shape {list(shape)} has not one number, or one for each index "
            f"of axis {axis}"
        )
    wide = (extent if i == axis else 1 for i, extent in enumerate(sizes))
    return at.reshape(at.tensor(index), tuple(wide))


def _scale(at: Lowering, index: int, sizes: Sequence[int], axis: int) -> SSAValue:
    """A scale, which the operator cannot do without."""
    scale = _spread(at, index, sizes, axis)
    if scale is None:
        raise at.refuse(f"its input {index} is missing")
    return scale


def _placed(at: Lowering, index: int) -> SSAValue | None:
    """A scale or zero point of one number, of one for each index of an axis, or for each block."""
    shape = at.shape(0)
    axis = at.integer("axis", 1)
    if at.integer("block_size"):
        return _blocked(at, index, at.axis(axis, len(shape)))
    if at.has(index) and math.prod(at.shape(index)) > 1:
        axis = at.axis(axis, len(shape))
    return _spread(at, index, shape, axis)


def _blocked(at: Lowering, index: int, axis: int) -> SSAValue | None:
    """A scale or zero point that has a number for each block along ``axis``: one for each element.

    The last block may be shorter than the others.
    """
    if not at.has(index):
        return None
    shape, sizes, block = at.shape(0), at.shape(index), at.integer("block_size")
    if block < 1 or sizes != (*shape[:axis], ceil_div(shape[axis], block), *shape[axis + 1 :]):
        raise at.misfit(
            f"its input {index} of shape {list(sizes)} has not one number for each block of "
            f"{block} along axis {axis} of {list(shape)}"
        )
    before, count, after = sizes[:axis], sizes[axis], sizes[axis + 1 :]
    value = at.reshape(at.tensor(index), (*before, count, 1, *after))
    value = broadcast(at, value, (*before, count, block, *after))
    value = at.reshape(value, (*before, count * block, *after))
    return cut(at, value, {axis: (0, shape[axis], 1)})


def _zero(at: Lowering, dtype: np.dtype[np.generic]) -> SSAValue:
    return at.weight(np.zeros((), dtype), f"{at.node.name}.zero")


def dequantised(at: Lowering, x: SSAValue, scale: SSAValue, zero: SSAValue | None) -> SSAValue:
    """(x - zero point) * scale, float32."""
    dtype = dtype_of(x)
    if dtype == np.float32:
        # A float of at most 8 bits, whose zero point is 0 where it has one.
        x = x if zero is None else at.emit("sub", x, at.cast(zero, np.float32))
        return at.emit("mul", x, at.cast(scale, np.float32))
    if dtype.kind not in "iu" or dtype.itemsize > 4 or dtype == np.uint32:
        raise at.refuse(f"{dtype} is not dequantised", code="onnx-dtype")
    zero = _zero(at, dtype) if zero is None else zero
    if dtype_of(zero) != dtype:
        raise at.refuse(
            f"a zero point of {dtype_of(zero)} does not fit a tensor of {dtype}", code="onnx-dtype"
        )
    return at.emit("dequantise_linear", x, at.cast(scale, np.float32), zero)


def quantised(
    at: Lowering,
    x: SSAValue,
    scale: SSAValue,
    zero: SSAValue | None,
    to: np.dtype[np.generic] | None = None,
) -> SSAValue:
    """x / scale to the nearest, the even one of two, plus the zero point, saturated.

    ``to`` is the result's type where there is no zero point to have it.
    """
    if zero is None:
        zero = _zero(at, to or np.dtype(np.uint8))
    if dtype_of(zero).kind not in "iu" or dtype_of(zero).itemsize > 2:
        raise at.refuse(f"numbers are not quantised to {dtype_of(zero)}", code="onnx-dtype")
    x = at.cast(x, np.float32)
    return at.emit("quantise_linear", x, at.cast(scale, np.float32), zero)


def dequantize(at: Lowering) -> Value:
    """(x - zero point) * scale, of the type that is asked for, or else of the scale's."""
    to = _stated(at, "output_dtype", _FLOATS) or at.dtype(1)
    if at.dtype(0) in map(np.dtype, (np.float32, np.float64, np.float16)):
        raise at.refuse(f"{at.dtype(0)} is not dequantised", code="onnx-dtype")
    at = at.like([None if value is None else at.decoded(value) for value in at.operands])
    scale = _placed(at, 1)
    assert scale is not None
    return at.cast(dequantised(at, at.tensor(0), scale, _placed(at, 2)), to)


def quantize(at: Lowering) -> Value:
    """x / scale to the nearest, the even one of two, plus the zero point, saturated."""
    to = _stated(at, "output_dtype", _NUMBERS)
    if to is not None and at.has(2) and at.dtype(2) != to:
        raise at.refuse(
            f"its result is to be {to}, and its zero point is {at.dtype(2)}", code="onnx-dtype"
        )
    to = at.dtype(2) if at.has(2) else to
    at = at.like([None if value is None else at.decoded(value) for value in at.operands])
    scale, zero = _placed(at, 1), _placed(at, 2)
    assert scale is not None
    x, precision = at.tensor(0), _stated(at, "precision", _FLOATS)
    if precision is None and at.version >= 23 and not at.node.domain:
        precision = at.dtype(1)  # Said since that operator set; others divide in float32.
    if precision is not None and precision.itemsize < 4:
        # A quotient of two short floats, taken in float32 and rounded, is theirs.
        x, scale = (at.cast(at.cast(value, precision), np.float32) for value in (x, scale))
        x = at.cast(at.cast(at.emit("div", x, scale), precision), np.float32)
        scale = at.weight(np.ones((), np.float32), f"{at.node.name}.one")
    form = None if to is None else FORMATS.get(to.name)
    if to is None or form is None:
        return quantised(at, x, scale, zero, to)
    if form.fraction is None:
        return at.cast(_bounded(at, quantised(at, x, scale, zero, np.dtype(form.wide)), form), to)
    x = at.emit("div", at.cast(x, np.float32), at.cast(scale, np.float32))
    if zero is not None and form.bits < 8:  # Of 8 bits it is 0.
        x = at.emit("add", x, zero)
    return encoded(at, x, to, saturate=bool(at.integer("saturate", 1)))


def _bounded(at: Lowering, value: SSAValue, form: Format) -> SSAValue:
    """Integers of 8 bits within the range of fewer."""
    low = -form.sign if form.signed else 0
    for operation, bound in (("max", low), ("min", low + 2**form.bits - 1)):
        limit = at.weight(np.array(bound, dtype_of(value)), f"{at.node.name}.{operation}")
        value = at.emit(operation, value, limit)
    return value


_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
_NUMBERS = (
    *(TensorProto.UINT8, TensorProto.INT8, TensorProto.UINT16, TensorProto.INT16),
    *(kind for kind in NARROW if kind != TensorProto.FLOAT8E8M0),
)


def _stated(at: Lowering, name: str, known: Sequence[int]) -> np.dtype[np.generic] | None:
    """The element type that an attribute states; None for one that states none."""
    kind = at.integer(name)
    if kind not in (0, *known):
        listed = ", ".join(type_name(number) for number in known)
        raise at.refuse(f"its {name} {type_name(kind)} is none of {listed}", code="onnx-dtype")
    return DTYPES[kind] if kind else None


def operand(at: Lowering, index: int, axis: int = 0) -> SSAValue:
    """The tensor at ``index``, dequantised by the scale and the zero point that follow it.

    ``axis`` is the one along which they may vary.
    """
    scale, shape = _scale(at, index + 1, at.shape(index), axis), at.shape(index)
    return dequantised(at, at.tensor(index), scale, _spread(at, index + 2, shape, axis))


def result(at: Lowering, value: SSAValue, index: int, axis: int = 0) -> SSAValue:
    """A float quantised by the scale at ``index`` and the zero point that follows it."""
    scale = _scale(at, index, shape_of(value), axis)
    zero = _spread(at, index + 1, shape_of(value), axis)
    return quantised(at, value, scale, zero, at.dtype(0))


def _centred(at: Lowering, index: int, zero: int, axis: int) -> SSAValue:
    """An operand less its zero point, as int32."""
    x = at.cast(at.tensor(index), np.int32)
    point = _spread(at, zero, shape_of(x), axis)
    return x if point is None else at.emit("sub", x, at.cast(point, np.int32))


def matmul_integer(at: Lowering) -> SSAValue:
    """The product of two quantised matrices, in int32."""
    return _product(at, (0, 2), (1, 3))


def _product(at: Lowering, left: tuple[int, int], right: tuple[int, int]) -> SSAValue:
    """The product of two quantised matrices in int32; each: where it and its zero point are."""
    return matmul(at.like([_centred(at, *left, -2), _centred(at, *right, -1)]))


def conv_integer(at: Lowering) -> SSAValue:
    """The convolution of quantised images, in int32."""
    return conv(at.like([_centred(at, 0, 2, 1), _centred(at, 1, 3, 0)]))


def qlinear_matmul(at: Lowering) -> SSAValue:
    """The product of two quantised matrices, quantised."""
    if at.constant(3) is not None or min(len(at.shape(0)), len(at.shape(3))) < 2:
        value = matmul(at.like([operand(at, 0, -2), operand(at, 3, -1)]))
        return result(at, value, 6, -2)
    scales = [_scale(at, index + 1, at.shape(index), axis) for index, axis in ((0, -2), (3, -1))]
    factor = at.emit("mul", *(at.cast(scale, np.float32) for scale in scales))
    return result(at, dequantised(at, _product(at, (0, 2), (3, 5)), factor, None), 6, -2)


def qlinear_conv(at: Lowering) -> SSAValue:
    """The convolution of quantised images with an int32 bias, quantised."""
    bias = None
    if at.has(8):
        scales = [_scale(at, index, at.shape(8)[:1] or (1,), 0) for index in (1, 4)]
        factor = at.emit("mul", at.cast(scales[1], np.float32), at.cast(scales[0], np.float32))
        bias = dequantised(at, at.tensor(8), factor, None)
    return result(at, conv(at.like([operand(at, 0, 1), operand(at, 3, 0), bias])), 6, 1)

"""Convolutions and matrix products of numbers with scales: int32 sums, scaled back to 8 bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import Rewriter, constant
from tilewright.graph.passes.integers.reals import (
    BYTES,
    Ending,
    Real,
    activation_dtype,
    activations,
    plain_bytes,
    real_of,
)
from tilewright.graph.passes.integers.sums import Bytes, ByteWeights, convolved, multiplied
from tilewright.ir import SSAValue
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import Array, shape_of
from tilewright.machine.numbers import integers_of

EXACT_FLOAT = 2**24
"""Integers up to this are exact in float32, and so are their sums."""


_PART = 2.0**-8
"""The error of a float bias rounded to a unit of the sums that is allowed, in such units."""


@dataclass(frozen=True)
class Weights:
    """Constant weights [co, ...] with a scale for each channel."""

    integers: ByteWeights
    scale: Array
    """The scale of each output channel, float32 [co]."""


def weights_of(real: Real | None, axis: int, ctx: CompilerContext) -> Weights | None:
    """Constant weights whose scales vary along one axis at most, which is made the first."""
    array = constant(real.value, ctx) if real is not None else None
    if real is None or array is None or array.dtype not in BYTES:
        return None
    rank, axis = array.ndim, axis % array.ndim
    parts: list[Array] = []
    for part in (real.scale, real.zero):
        wide = part.reshape((1,) * (rank - part.ndim) + part.shape)
        if any(extent != 1 for other, extent in enumerate(wide.shape) if other != axis):
            return None
        parts.append(np.broadcast_to(wide.reshape(-1), (array.shape[axis],)))
    scale, zero = parts
    moved = np.moveaxis(array, axis, 0)
    if array.dtype == np.uint8:
        moved, zero = (moved.astype(np.int16) - 128).astype(np.int8), zero - 128
    if zero.any():
        each = zero.reshape(-1, *[1] * (rank - 1))
        centred = moved.astype(np.int32) - each
        if centred.min() >= -128 and centred.max() <= 127:
            moved, zero = centred.astype(np.int8), np.zeros_like(zero)
    return Weights(ByteWeights(np.ascontiguousarray(moved), zero), scale)


def _bias(value: SSAValue, scale: Array, ctx: CompilerContext) -> Array | None:
    """A constant bias as int64 in units of ``scale`` [co]; None if it is not constant, or too
    large, or not of whole units where the machine adds up floats after its sums."""
    real, array = real_of(value, ctx), constant(value, ctx)
    if real is not None and real.dtype == np.int32 and not real.zero.any():
        integers = constant(real.value, ctx)
        scales = real.scale.reshape(-1)
        if integers is None or integers.size not in (1, scale.size):
            return None
        if np.allclose(scales, scale, rtol=1e-5, atol=0.0):
            return np.broadcast_to(integers.reshape(-1).astype(np.int64), scale.shape)
        array = integers.reshape(-1).astype(np.float64) * scales
    if array is None or array.size not in (1, scale.size):
        return None
    with np.errstate(all="ignore"):
        exact = array.reshape(-1).astype(np.float64) / scale
        units = np.rint(exact)
    if not (np.abs(units) < 2**31).all():
        return None
    if integers_of(ctx.machine) is None and (np.abs(units - exact) > _PART).any():
        return None  # Float steps after the sums add it as it is.
    return np.broadcast_to(units.astype(np.int64), scale.shape)


def requantised(total: SSAValue, factor: Array, ending: Ending, at: Rewriter) -> SSAValue:
    """int32 sums as the result ends; ``factor`` broadcasts to them."""
    scale = at.weight(factor.astype(np.float32), ".factor")
    return at.make("requantise_linear", total, scale, **ending.attributes)


@dataclass(frozen=True)
class Sums:
    """A product in int32: its value, and what one unit of it is worth, along its channels."""

    value: SSAValue
    scale: Array
    """float32, shaped so that it broadcasts to the value."""
    biased: bool
    """True if the value includes the bias."""


def sums_of(op: Operation, at: Rewriter) -> Sums | None:
    """The int32 sums of a quantised matrix, or quantised images, with constant quantised weights;
    None if that is not what they are."""
    x, w = (plain_bytes(op.inputs[0], at.ctx), real_of(op.inputs[1], at.ctx))
    conv = op.operation == "conv"
    if x is None or w is None:
        return None
    if not conv and (len(shape_of(w.value)) != 2 or op.get("transpose_a", False)):
        return None
    weights = weights_of(w, 0 if conv or op.get("transpose_b", False) else 1, at.ctx)
    added = _joined(op, x, weights, at.ctx) if weights is not None else None
    if weights is None or added is None:
        return None
    bias, biased = added
    values, scale = Bytes(*activations(x, at)), x.factor * weights.scale
    if conv:
        total = convolved(op, values, weights.integers, bias, at)
        return Sums(total, scale.reshape(1, -1, 1, 1), biased)
    total = multiplied(values, weights.integers, bias, at)
    return Sums(total, scale.reshape(*(1,) * (len(shape_of(total)) - 1), -1), biased)


def _joined(
    op: Operation, x: Real, weights: Weights, ctx: CompilerContext
) -> tuple[Array, bool] | None:
    """The bias in units of the sums, and whether there was one that joins them."""
    scale = x.factor * weights.scale
    if not (np.isfinite(scale) & (scale > 0)).all():
        return None
    if len(op.inputs) < 3:
        return np.zeros(scale.shape, np.int64), True
    bias = _bias(op.inputs[2], scale, ctx)
    if bias is None:
        return np.zeros(scale.shape, np.int64), False
    return bias, True


def product(op: Operation, ending: Ending, at: Rewriter) -> SSAValue | None:
    """A convolution or matrix product that is quantised again."""
    requantised_sums = _ended(sums_of(op, at), ending, at)
    if requantised_sums is not None or op.operation == "conv":
        return requantised_sums
    return _computed(op, ending, at)


def _ended(sums: Sums | None, ending: Ending, at: Rewriter) -> SSAValue | None:
    if sums is None or not sums.biased:
        return None
    with np.errstate(all="ignore"):
        factor = (sums.scale / ending.scale).astype(np.float32)
    if not np.isfinite(factor).all():
        return None
    return requantised(sums.value, factor, ending, at)


def _computed(op: Operation, ending: Ending, at: Rewriter) -> SSAValue | None:
    """A product of two computed matrices: float32 holds its sums exactly while they are small."""
    if integers_of(at.machine) is not None:
        return _ended(computed_sums(op, at), ending, at)
    reals = [plain_bytes(value, at.ctx) for value in op.inputs]
    if len(reals) != 2 or ending.clipped or any(real is None for real in reals):
        return None
    first, second = (real for real in reals if real is not None)
    depth = shape_of(op.inputs[0])[-2 if op.get("transpose_a", False) else -1]
    if depth * _largest(first) * _largest(second) > EXACT_FLOAT:
        return None
    scale = np.float32(ending.scale / (first.factor * second.factor))
    if not np.isfinite(scale) or scale <= 0:
        return None
    unit_scale = at.weight(np.ones((), np.float32), ".one")
    operands: list[SSAValue] = []
    for real in (first, second):
        zero = at.weight(np.array(real.origin, real.dtype), ".zero")
        operands.append(at.make("dequantise_linear", real.value, unit_scale, zero))
    total = at.make("matmul", *operands, **op.values)
    unit = at.weight(np.array(scale), ".scale")
    zero = at.weight(np.array(ending.zero, ending.dtype), ".zero")
    return at.make("quantise_linear", total, unit, zero)


def computed_sums(op: Operation, at: Rewriter) -> Sums | None:
    """The int32 sums of two computed matrices whose zero points are 0, on machines of integers."""
    reals = [plain_bytes(value, at.ctx) for value in op.inputs]
    if integers_of(at.machine) is None or len(reals) != 2:
        return None
    known = [real for real in reals if real is not None]
    if [(real.dtype, real.origin) for real in known] != [(activation_dtype(at.ctx), 0)] * 2:
        return None
    total = at.make("matmul", *(real.value for real in known), **op.values)
    scale = np.full((1,) * len(shape_of(total)), known[0].factor * known[1].factor, np.float32)
    return Sums(total, scale, biased=True)


def _largest(real: Real) -> int:
    limits = np.iinfo(real.dtype)
    return max(int(limits.max) - real.origin, real.origin - int(limits.min))

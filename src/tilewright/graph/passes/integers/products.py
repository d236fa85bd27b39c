"""Convolutions and matrix products of numbers with scales: int32 sums, scaled back to 8 bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import add_weight, constant, make
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
    """A constant bias as int64 in units of ``scale`` [co]; None if it is none, or too large, or not
    of whole units where the machine adds up floats after its sums."""
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


def requantised(
    total: SSAValue, factor: Array, ending: Ending, ctx: CompilerContext, like: Operation
) -> SSAValue:
    """int32 sums as the result ends; ``factor`` broadcasts to them."""
    name = f"{like.node_name or like.operation}.factor"
    scale = add_weight(ctx, factor.astype(np.float32), ending.quantise, name)
    operands = [total, scale]
    narrowed = make(
        "requantise_linear", operands, ending.attributes, before=ending.quantise, like=like
    )
    return narrowed.result


@dataclass(frozen=True)
class Sums:
    """A product in int32: its value, and what one unit of it is worth, along its channels."""

    value: SSAValue
    scale: Array
    """float32, shaped so that it broadcasts to the value."""
    biased: bool
    """True if the value includes the bias."""


def convolution_sums(op: Operation, before: Operation, ctx: CompilerContext) -> Sums | None:
    """The int32 sums of a convolution of quantised images with constant quantised weights."""
    x = plain_bytes(op.inputs[0], ctx)
    weights = weights_of(real_of(op.inputs[1], ctx), 0, ctx)
    if x is None or weights is None:
        return None
    added = _joined(op, x, weights, ctx)
    if added is None:
        return None
    bias, biased = added
    image = Bytes(*activations(x, before, ctx))
    total = convolved(op, image, weights.integers, bias, before, ctx)
    return Sums(total, (x.factor * weights.scale).reshape(1, -1, 1, 1), biased)


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


def product_sums(op: Operation, before: Operation, ctx: CompilerContext) -> Sums | None:
    """The int32 sums of a quantised matrix times constant quantised weights."""
    x, w = plain_bytes(op.inputs[0], ctx), real_of(op.inputs[1], ctx)
    if x is None or w is None or len(shape_of(w.value)) != 2 or op.get("transpose_a", False):
        return None
    weights = weights_of(w, 0 if op.get("transpose_b", False) else 1, ctx)
    added = _joined(op, x, weights, ctx) if weights is not None else None
    if weights is None or added is None:
        return None
    bias, biased = added
    matrix = Bytes(*activations(x, before, ctx))
    total = multiplied(op, matrix, weights.integers, bias, before, ctx)
    lead = (1,) * (len(shape_of(total)) - 1)
    return Sums(total, (x.factor * weights.scale).reshape(*lead, -1), biased)


def convolution(op: Operation, ending: Ending, ctx: CompilerContext) -> SSAValue | None:
    """A convolution that is quantised again."""
    return _ended(convolution_sums(op, ending.quantise, ctx), op, ending, ctx)


def product(op: Operation, ending: Ending, ctx: CompilerContext) -> SSAValue | None:
    """A matrix product that is quantised again."""
    if not isinstance(op.inputs[1].owner, Operation):
        return None
    requantised_sums = _ended(product_sums(op, ending.quantise, ctx), op, ending, ctx)
    return requantised_sums if requantised_sums is not None else _computed(op, ending, ctx)


def _ended(
    sums: Sums | None, op: Operation, ending: Ending, ctx: CompilerContext
) -> SSAValue | None:
    if sums is None or not sums.biased:
        return None
    with np.errstate(all="ignore"):
        factor = (sums.scale / ending.scale).astype(np.float32)
    if not np.isfinite(factor).all():
        return None
    return requantised(sums.value, factor, ending, ctx, op)


def _computed(op: Operation, ending: Ending, ctx: CompilerContext) -> SSAValue | None:
    """A product of two computed matrices: float32 holds its sums exactly while they are small."""
    if integers_of(ctx.machine) is not None:
        return _ended(computed_sums(op, ending.quantise, ctx), op, ending, ctx)
    reals = [plain_bytes(value, ctx) for value in op.inputs]
    if len(reals) != 2 or ending.clipped or any(real is None for real in reals):
        return None
    first, second = (real for real in reals if real is not None)
    depth = shape_of(op.inputs[0])[-2 if op.get("transpose_a", False) else -1]
    if depth * _largest(first) * _largest(second) > EXACT_FLOAT:
        return None
    scale = np.float32(ending.scale / (first.factor * second.factor))
    if not np.isfinite(scale) or scale <= 0:
        return None
    before, name = ending.quantise, op.node_name or "matmul"
    unit_scale = add_weight(ctx, np.ones((), np.float32), before, f"{name}.one")
    operands: list[SSAValue] = []
    for real in (first, second):
        zero = add_weight(ctx, np.array(real.origin, real.dtype), before, f"{name}.zero")
        converted = make(
            "dequantise_linear", [real.value, unit_scale, zero], before=before, like=op
        )
        operands.append(converted.result)
    total = make("matmul", operands, op.values, before=before, like=op).result
    unit = add_weight(ctx, np.array(scale), before, f"{name}.scale")
    zero = add_weight(ctx, np.array(ending.zero, ending.dtype), before, f"{name}.zero")
    converted = make("quantise_linear", [total, unit, zero], before=before, like=op)
    return converted.result


def computed_sums(op: Operation, before: Operation, ctx: CompilerContext) -> Sums | None:
    """The int32 sums of two computed matrices whose zero points are 0, on machines of integers."""
    reals = [plain_bytes(value, ctx) for value in op.inputs]
    if integers_of(ctx.machine) is None or len(reals) != 2:
        return None
    known = [real for real in reals if real is not None]
    if [(real.dtype, real.origin) for real in known] != [(activation_dtype(ctx), 0)] * 2:
        return None
    total = make("matmul", [real.value for real in known], op.values, before=before, like=op).result
    scale = np.full((1,) * len(shape_of(total)), known[0].factor * known[1].factor, np.float32)
    return Sums(total, scale, biased=True)


def _largest(real: Real) -> int:
    limits = np.iinfo(real.dtype)
    return max(int(limits.max) - real.origin, real.origin - int(limits.min))

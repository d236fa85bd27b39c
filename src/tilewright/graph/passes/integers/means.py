"""Means: exact sums in int32, divided as they are quantised again."""

from __future__ import annotations

from math import prod

import numpy as np

from tilewright.graph.operations import Operation
from tilewright.graph.operations.reductions import ReduceMeanOp
from tilewright.graph.passes.editing import add_weight, make
from tilewright.graph.passes.integers.products import requantised
from tilewright.graph.passes.integers.reals import Ending, activations, plain_bytes
from tilewright.graph.passes.integers.sums import Bytes, padded
from tilewright.ir import SSAValue
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import shape_of
from tilewright.numerics import reference

_MOST = 2**23
"""Elements whose sum of 8-bit numbers stays within int32."""


def average_pool(op: Operation, ending: Ending, ctx: CompilerContext) -> SSAValue | None:
    """A convolution of each channel with ones; its windows' counts divide."""
    real = plain_bytes(op.inputs[0], ctx)
    kernel = op.integers("kernel")
    if real is None or prod(kernel) > _MOST:
        return None
    shape = shape_of(op.inputs[0])
    strides, pads = op.integers("strides"), op.integers("pads")
    dilations = op.integers("dilations") if "dilations" in op.DEFAULTS else (1, 1)
    counted = op.integers("counted") if "counted" in op.DEFAULTS else (0, 0, 0, 0)
    counts = reference.pool_counts(shape[2:], kernel, strides, pads, dilations, counted)
    x, zero = activations(real, ending.quantise, ctx)
    x, pads = padded(Bytes(x, zero), pads, ending.quantise)
    return _sums(op, ending, ctx, x, zero, kernel, strides, pads, dilations, counts, real.factor)


def _sums(
    op: Operation,
    ending: Ending,
    ctx: CompilerContext,
    x: SSAValue,
    zero: int,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    counts: np.ndarray,
    scale: np.float32,
) -> SSAValue:
    channels, name, before = shape_of(x)[1], op.node_name or op.operation, ending.quantise
    ones = np.ones((channels, 1, *kernel), np.int8)
    operands = [x, add_weight(ctx, ones, before, f"{name}.ones")]
    if zero:
        bias = np.full(channels, -zero * prod(kernel), np.int32)
        operands.append(add_weight(ctx, bias, before, f"{name}.zero"))
    total = make(
        "conv",
        operands,
        {"strides": strides, "pads": pads, "dilations": dilations, "group": channels},
        before=before,
        like=op,
    )
    divisors = np.asarray(counts, np.float32)
    divisors = divisors.reshape(-1)[:1] if np.ptp(divisors) == 0 else divisors
    factor = (scale / ending.scale / divisors).astype(np.float32)
    factor = factor.reshape((1, 1, *(factor.shape if factor.ndim == 2 else (1, 1))))
    return requantised(total.result, factor, ending, ctx, op)


def reduce_mean(op: Operation, ending: Ending, ctx: CompilerContext) -> SSAValue | None:
    """Over the pixels of images a pool; over other axes a sum in int32."""
    assert isinstance(op, ReduceMeanOp)
    real = plain_bytes(op.inputs[0], ctx)
    shape = shape_of(op.inputs[0])
    axes = op.reduced(len(shape))
    count = prod(shape[axis] for axis in axes)
    if real is None or not 0 < count <= _MOST:
        return None
    before = ending.quantise
    if len(shape) == 4 and axes == (2, 3):
        x, zero = activations(real, before, ctx)
        counts = np.full((1, 1), count)
        plain = (1, 1), (0, 0, 0, 0), (1, 1)
        pooled = _sums(op, ending, ctx, x, zero, shape[2:], *plain, counts, real.factor)
        if shape_of(op.result) == shape_of(pooled):
            return pooled
        mean = make("reshape", [pooled], {"shape": shape_of(op.result)}, before=before, like=op)
        return mean.result
    wide = make("cast", [real.value], {"to": "int32"}, before=before, like=op)
    total = make("reduce_sum", [wide.result], op.values, before=before, like=op).result
    if real.origin:
        offset = np.full((1,) * len(shape_of(total)), real.origin * count, np.int32)
        moved = add_weight(ctx, offset, before, f"{op.node_name or 'mean'}.zero")
        total = make("sub", [total, moved], before=before, like=op).result
    factor = np.float32(real.factor / ending.scale / np.float32(count))
    scale = np.full((1,) * len(shape_of(total)), factor, np.float32)
    return requantised(total, scale, ending, ctx, op)

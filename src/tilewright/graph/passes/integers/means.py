"""Means: exact sums in int32, divided as they are quantised again."""

from __future__ import annotations

from math import prod
from typing import cast

import numpy as np

from tilewright.graph.operations import Operation
from tilewright.graph.operations.reductions import ReduceMeanOp
from tilewright.graph.passes.editing import Rewriter
from tilewright.graph.passes.integers.products import requantised
from tilewright.graph.passes.integers.reals import Ending, Real, activations, plain_bytes
from tilewright.graph.passes.integers.sums import Bytes, padded
from tilewright.ir import PythonValue, SSAValue
from tilewright.ir.types import shape_of
from tilewright.numerics import reference

_MOST = 2**23
"""Elements whose sum of 8-bit numbers stays within int32."""


def average_pool(op: Operation, ending: Ending, at: Rewriter) -> SSAValue | None:
    """A convolution of each channel with ones; its windows' counts divide."""
    real = plain_bytes(op.inputs[0], at.ctx)
    kernel = op.integers("kernel")
    if real is None or prod(kernel) > _MOST:
        return None
    shape = shape_of(op.inputs[0])
    strides, pads = op.integers("strides"), op.integers("pads")
    dilations = op.integers("dilations") if "dilations" in op.DEFAULTS else (1, 1)
    counted = op.integers("counted") if "counted" in op.DEFAULTS else (0, 0, 0, 0)
    counts = reference.pool_counts(shape[2:], kernel, strides, pads, dilations, counted)
    slide: dict[str, PythonValue] = {"strides": strides, "pads": pads, "dilations": dilations}
    return _mean(real, kernel, counts, slide, ending, at)


def _mean(
    real: Real,
    kernel: tuple[int, ...],
    counts: np.ndarray,
    slide: dict[str, PythonValue],
    ending: Ending,
    at: Rewriter,
) -> SSAValue:
    """Sums of windows by ``counts``."""
    x, zero = activations(real, at)
    x, pads = padded(Bytes(x, zero), cast("tuple[int, ...]", slide["pads"]), at)
    channels = shape_of(x)[1]
    operands = [x, at.weight(np.ones((channels, 1, *kernel), np.int8), ".ones")]
    if zero:
        operands.append(at.weight(np.full(channels, -zero * prod(kernel), np.int32), ".zero"))
    total = at.make("conv", *operands, **{**slide, "pads": pads}, group=channels)
    divisors = np.asarray(counts, np.float32)
    divisors = divisors.reshape(-1)[:1] if np.ptp(divisors) == 0 else divisors
    factor = (real.factor / ending.scale / divisors).astype(np.float32)
    factor = factor.reshape((1, 1, *(factor.shape if factor.ndim == 2 else (1, 1))))
    return requantised(total, factor, ending, at)


def reduce_mean(op: Operation, ending: Ending, at: Rewriter) -> SSAValue | None:
    """Over the pixels of images a pool; over other axes a sum in int32."""
    assert isinstance(op, ReduceMeanOp)
    real = plain_bytes(op.inputs[0], at.ctx)
    shape = shape_of(op.inputs[0])
    axes = op.reduced(len(shape))
    count = prod(shape[axis] for axis in axes)
    if real is None or not 0 < count <= _MOST:
        return None
    if len(shape) == 4 and axes == (2, 3):
        plain: dict[str, PythonValue] = {"strides": (1, 1), "pads": (0, 0, 0, 0)}
        plain["dilations"] = (1, 1)
        pooled = _mean(real, shape[2:], np.full((1, 1), count), plain, ending, at)
        if shape_of(op.result) == shape_of(pooled):
            return pooled
        return at.make("reshape", pooled, shape=shape_of(op.result))
    total = at.make("reduce_sum", at.make("cast", real.value, to="int32"), **op.values)
    if real.origin:
        offset = np.full((1,) * len(shape_of(total)), real.origin * count, np.int32)
        total = at.make("sub", total, at.weight(offset, ".zero"))
    factor = np.float32(real.factor / ending.scale / np.float32(count))
    scale = np.full((1,) * len(shape_of(total)), factor, np.float32)
    return requantised(total, scale, ending, at)

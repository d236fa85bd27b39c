"""The layers LRN, BatchNorm and Softmax."""

from __future__ import annotations

import numpy as np

from tilewright.frontends.caffe.lowering import Lowering
from tilewright.frontends.caffe.operators.windows import pool
from tilewright.ir import SSAValue


def lrn(at: Lowering) -> SSAValue:
    """x * (k + alpha/n * s)**-beta, s a sum of squares over channels or over a window."""
    at.images()
    settings = at.settings("lrn_param")
    size = int(settings.local_size)
    alpha, beta, k = (at.number(settings, name) for name in ("alpha", "beta", "k"))
    if size % 2 == 0:
        raise at.refuse(f"local_size {size} is not odd")
    if settings.NormRegion.Name(settings.norm_region) == "WITHIN_CHANNEL":
        return _within_channel(at, size, alpha, beta)
    return at.emit("lrn", at.x, size=size, alpha=alpha, beta=beta, bias=k)


def _within_channel(at: Lowering, size: int, alpha: float, beta: float) -> SSAValue:
    """x * (1 + alpha * mean of x*x over a window)**-beta; the padding's zeros count, k does not.

    It is made of the layers that Caffe makes it of: powers, an average pool, a product.
    """
    pad = (size - 1) // 2
    square = at.emit("mul", at.x, at.x)
    around = (pad, pad)
    mean = pool(at, square, "AVE", (size, size), (1, 1), around, around)
    base = at.emit("add", at.emit("mul", mean, at.constant(alpha, "alpha")), at.constant(1.0))
    return at.emit("mul", at.x, at.emit("pow", base, at.constant(-beta, "exponent")))


def batch_norm(at: Lowering) -> SSAValue:
    """(x - mean) / sqrt(variance + eps), with the stored sums over their factor."""
    settings = at.settings("batch_norm_param")
    if settings.HasField("use_global_stats") and not settings.use_global_stats:
        raise at.refuse(
            "with use_global_stats false it normalises by the batch, as in training",
            help="set use_global_stats to true",
        )
    if len(at.shape) < 2:
        raise at.misfit(f"its bottom of shape {list(at.shape)} has no channels")
    channels = at.shape[1]
    sums = [at.parameter_array((channels,), kind) for kind in ("mean", "variance")]
    factor = at.parameter_array((1,), "factor")
    known = [array for array in (*sums, factor) if array is not None]
    if len(known) < 3:
        return at.network.placeholder(at.shape)
    mean, variance, (count,) = known
    share = np.float32(0 if count == 0 else 1 / count)
    with np.errstate(over="ignore", invalid="ignore"):
        statistics = (np.ones(channels), np.zeros(channels), mean * share, variance * share)
    names = ("scale", "shift", "mean", "variance")
    operands = [at.constant(array, name) for array, name in zip(statistics, names, strict=True)]
    return at.emit("batch_norm", at.x, *operands, epsilon=at.number(settings, "eps"))


def softmax(at: Lowering) -> SSAValue:
    """Softmax along an axis, the channels unless stated."""
    axis = at.axis(at.settings("softmax_param").axis, len(at.shape))
    return at.emit("softmax", at.x, axis=axis)

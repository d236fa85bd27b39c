"""Conv and LpPool: convolutions over one to three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.frontends import windows
from tilewright.frontends.onnx.lowering import Lowering, Value, dtype_of, shape_of_value
from tilewright.frontends.onnx.tensors import Constant
from tilewright.frontends.onnx.windows import MAX_EXTENT, spatial_rank, window_of
from tilewright.frontends.windows import Window
from tilewright.ir import SSAValue


def conv(at: Lowering) -> SSAValue:
    """Convolution, with groups and an optional bias."""
    rank, shape = spatial_rank(at), at.shape(1)
    if len(shape) != rank + 2:
        raise at.misfit(f"weights of shape {list(shape)} do not fit the input {list(at.shape(0))}")
    kernel = at.integers("kernel_shape") or shape[2:]
    if kernel != shape[2:]:
        raise at.refuse(f"kernel_shape {list(kernel)} is not that of the weights {list(shape)}")
    window = window_of(at, kernel, pool=False)
    bias = at.tensor(2) if at.has(2) else None
    return convolve(at, at.tensor(0), at.operand(1), bias, window, at.integer("group", 1))


def convolve(
    at: Lowering, x: SSAValue, weights: Value, bias: SSAValue | None, window: Window, group: int
) -> SSAValue:
    """The convolution of images of any of the ranks that are computed."""

    def shaped(shape: Sequence[int]) -> SSAValue:
        if isinstance(weights, Constant):
            return at.weight(weights.array.reshape(shape), weights.name)
        return at.reshape(weights, shape)

    return windows.convolve(at, x, shape_of_value(weights), shaped, bias, window, group)


def lp_pool(at: Lowering) -> Value:
    """The p-norm of each window."""
    _ = spatial_rank(at)
    order = at.integer("p", 2)
    if order < 1:
        raise at.refuse(f"p = {order} is not positive")
    window = window_of(at, at.integers("kernel_shape") or (), pool=True)
    x, channels = at.tensor(0), at.shape(0)[1]
    if channels * math.prod(window.kernel) > MAX_EXTENT:
        raise at.refuse(f"a window of {list(window.kernel)} is too large", code="onnx-too-large")
    ones = Constant(np.ones((channels, 1, *window.kernel), dtype_of(x)), f"{at.node.name}.ones")
    return _root(at, convolve(at, _raised(at, x, order), ones, None, window, channels), order)


def global_lp_pool(at: Lowering) -> Value:
    """The p-norm over all spatial axes."""
    order, rank = at.integer("p", 2), len(at.shape(0))
    if order < 1 or rank < 3:
        raise at.refuse(f"p = {order} or its rank, {rank}, is too small")
    raised = _raised(at, at.tensor(0), order)
    total = at.emit("reduce_sum", raised, axes=tuple(range(2, rank)), keep_dims=True)
    return _root(at, total, order)


def _raised(at: Lowering, x: SSAValue, order: int) -> SSAValue:
    if order == 2:
        return at.emit("mul", x, x)
    size = at.emit("abs", x)
    return size if order == 1 else at.apply("pow", size, float(order))


def _root(at: Lowering, x: SSAValue, order: int) -> SSAValue:
    if order == 2:
        return at.emit("sqrt", x)
    return x if order == 1 else at.apply("pow", x, 1.0 / order)

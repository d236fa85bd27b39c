"""Conv, ConvTranspose and LpPool: convolutions over one to three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from tilewright.frontends import windows
from tilewright.frontends.limits import MAX_EXTENT
from tilewright.frontends.moves import reversed_along
from tilewright.frontends.onnx.lowering import Lowering, Value, dtype_of, shape_of_value
from tilewright.frontends.onnx.tensors import Constant
from tilewright.frontends.onnx.windows import positive, spatial_rank, window_of
from tilewright.frontends.phases import by_phases, mirrored, spread_out
from tilewright.frontends.steps import kept
from tilewright.frontends.windows import Window
from tilewright.graph.operations.written import ConvTransposeOp
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
    shaped = partial(at.shaped, weights)
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


def conv_transpose(at: Lowering) -> Value:
    """The transpose of a convolution: one for all phases of its strides, where that saves products,
    or one of the input with zeros between its elements.
    """
    rank, shape, sizes = spatial_rank(at), at.shape(1), at.shape(0)
    group = at.integer("group", 1)
    if len(shape) != rank + 2 or group < 1 or shape[0] % group or shape[0] != sizes[1]:
        raise at.misfit(
            f"weights of shape {list(shape)} in {group} groups do not fit {list(sizes)}"
        )
    if (at.integers("kernel_shape") or shape[2:]) != shape[2:]:
        raise at.refuse(f"kernel_shape is not that of the weights {list(shape)}")
    strides, dilations = (positive(at, name, rank) for name in ("strides", "dilations"))
    spans = [(size - 1) * d + 1 for size, d in zip(shape[2:], dilations, strict=True)]
    begins, ends, extra = _transposed_pads(at, sizes[2:], strides, spans)
    window = Window(shape[2:], strides, dilations, begins, ends, ends)

    def steps() -> SSAValue:
        return _transposed_steps(at, window, extra, group)

    def operands() -> list[SSAValue]:
        return [at.tensor(index) for index in range(3) if at.has(index)]

    cut = (*begins, *(end - more for end, more in zip(ends, extra, strict=True)))
    return kept(
        at, ConvTransposeOp, steps, operands,
        strides=strides, pads=cut, dilations=dilations, group=group,
    )  # fmt: skip


def _transposed_steps(at: Lowering, window: Window, extra: Sequence[int], group: int) -> SSAValue:
    weights = at.operand(1)
    if isinstance(weights, Constant):
        operand = at.operand(2) if at.has(2) else None
        bias = operand.array if isinstance(operand, Constant) else operand
        x, name = at.tensor(0), weights.name
        result = by_phases(at, x, weights.array, bias, window, extra, group, name)
        if result is not None:
            return result
    x = spread_out(at, at.tensor(0), window, extra)
    bias = at.tensor(2) if at.has(2) else None
    window = Window.plain(window.kernel, window.dilations)
    return convolve(at, x, _mirrored(at, group), bias, window, group)


def _transposed_pads(
    at: Lowering, extents: Sequence[int], strides: Sequence[int], spans: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The elements that are cut off before and after each axis, and those added at its end."""
    rank = len(extents)
    extra = at.integers("output_padding") or (0,) * rank
    mode, shape = at.text("auto_pad", "NOTSET"), at.integers("output_shape")
    if len(extra) != rank or any(not 0 <= value < MAX_EXTENT for value in extra):
        raise at.refuse(f"output_padding {list(extra)} does not fit {rank} axes")
    if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise at.refuse(f"auto_pad {mode!r} is not known")
    if shape is None and mode.startswith("SAME"):
        shape = tuple(extent * step for extent, step in zip(extents, strides, strict=True))
    if shape is None:
        attribute = at.integers("pads") if mode == "NOTSET" else None
        pads = attribute or (0,) * (2 * rank)
        if len(pads) != 2 * rank or any(abs(pad) >= MAX_EXTENT for pad in pads):
            raise at.refuse(f"pads {list(pads)} are not {2 * rank} sizes")
        return pads[:rank], pads[rank:], extra
    shape = shape[-rank:]
    if len(shape) != rank or any(not 1 <= size < MAX_EXTENT for size in shape):
        raise at.refuse(f"output_shape {list(shape)} does not fit {rank} axes")
    totals = [strides[i] * (extents[i] - 1) + extra[i] + spans[i] - shape[i] for i in range(rank)]
    small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
    return (small, large, extra) if mode == "SAME_UPPER" else (large, small, extra)


def _mirrored(at: Lowering, group: int) -> Value:
    """The weights as those of the convolution."""
    value, shape = at.operand(1), at.shape(1)
    if isinstance(value, Constant):
        return Constant(mirrored(value.array, group), value.name)
    split = at.reshape(value, (group, shape[0] // group, *shape[1:]))
    turned = at.transpose(split, (0, 2, 1, *range(3, len(shape) + 1)))
    turned = at.reshape(turned, (group * shape[1], shape[0] // group, *shape[2:]))
    for axis in range(2, len(shape)):
        turned = reversed_along(at, turned, axis)
    return turned

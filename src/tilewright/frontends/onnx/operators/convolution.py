"""Conv, ConvTranspose and LpPool: convolutions over one to three spatial axes.

Over one axis images have height 1. Over three, the taps along the depth become channels: each
slice of the depth is stacked with those that its window reaches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.frontends.moves import cut, padded, reversed_along, spread
from tilewright.frontends.onnx.lowering import Lowering, Value, dtype_of
from tilewright.frontends.onnx.tensors import Constant
from tilewright.frontends.onnx.windows import (
    MAX_EXTENT,
    Window,
    as_image,
    as_sequence,
    spatial_rank,
    window_of,
)
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of


def conv(at: Lowering) -> Value:
    """Convolution, with groups and an optional bias."""
    rank, shape = spatial_rank(at), at.shape(1)
    if len(shape) != rank + 2:
        raise at.refuse(
            f"weights of shape {list(shape)} do not fit the input {list(at.shape(0))}",
            code="onnx-shape",
        )
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
    rank = len(window.kernel)
    if rank == 3:
        return _deep(at, x, weights, bias, window, group)
    if isinstance(weights, Constant) and rank == 1:
        shape = weights.array.shape
        second = at.weight(weights.array.reshape(*shape[:2], 1, shape[2]), weights.name)
    else:
        second = as_image(at, _tensor(at, weights))
    inputs = [as_image(at, x), second, *([] if bias is None else [bias])]
    attributes = window.attributes(kernel=False, dilations=True)
    return as_sequence(at, at.emit("conv", *inputs, group=group, **attributes), rank)


def _tensor(at: Lowering, value: Value) -> SSAValue:
    return at.weight(value.array, value.name) if isinstance(value, Constant) else value


def _deep(
    at: Lowering, x: SSAValue, weights: Value, bias: SSAValue | None, window: Window, group: int
) -> SSAValue:
    taps, step, spread = window.kernel[0], window.strides[0], window.dilations[0]
    n, c, _, h, w = shape_of(x)
    x = padded(at, x, {2: (window.begins[0], window.ends[0])})
    depth = (shape_of(x)[2] - (taps - 1) * spread - 1) // step + 1
    slices: list[SSAValue] = []
    for tap in range(taps):
        first = tap * spread
        part = cut(at, x, {2: (first, first + (depth - 1) * step + 1, step)})
        slices.append(at.reshape(part, (n, c, 1, depth, h, w)))
    stack = slices[0] if taps == 1 else at.emit("concat", *slices, axis=2)
    image = at.transpose(stack, (0, 3, 1, 2, 4, 5))
    image = at.reshape(image, (n * depth, c * taps, h, w))
    shape = weights.array.shape if isinstance(weights, Constant) else shape_of(weights)
    flat = (shape[0], shape[1] * taps, *shape[3:])
    if isinstance(weights, Constant):
        second: Value = Constant(weights.array.reshape(flat), weights.name)
    else:
        second = at.reshape(weights, flat)
    y = convolve(at, image, second, bias, window.on(1, 2), group)
    sizes = shape_of(y)
    y = at.reshape(y, (n, depth, *sizes[1:]))
    return at.transpose(y, (0, 2, 1, 3, 4))


def conv_transpose(at: Lowering) -> Value:
    """The transpose of a convolution: one of the input with zeros between its elements."""
    rank, shape, sizes = spatial_rank(at), at.shape(1), at.shape(0)
    group = at.integer("group", 1)
    if len(shape) != rank + 2 or group < 1 or shape[0] % group or shape[0] != sizes[1]:
        raise at.refuse(
            f"weights of shape {list(shape)} in {group} groups do not fit {list(sizes)}",
            code="onnx-shape",
        )
    if (at.integers("kernel_shape") or shape[2:]) != shape[2:]:
        raise at.refuse(f"kernel_shape is not that of the weights {list(shape)}")
    strides, dilations = (_positive(at, name, rank) for name in ("strides", "dilations"))
    spans = [(size - 1) * d + 1 for size, d in zip(shape[2:], dilations, strict=True)]
    pads, extra = _transposed_pads(at, sizes[2:], strides, spans)
    x = at.tensor(0)
    outside: dict[int, tuple[int, int]] = {}
    for i in range(rank):
        x = spread(at, x, 2 + i, strides[i])
        begin, end = pads[i]
        outside[2 + i] = (spans[i] - 1 - begin, spans[i] - 1 - end + extra[i])
    x = padded(at, x, outside)
    if any(have < span for have, span in zip(shape_of(x)[2:], spans, strict=True)):
        raise at.refuse("its pads leave nothing", code="onnx-shape")
    ones, zeros = (1,) * rank, (0,) * rank
    window = Window(shape[2:], ones, dilations, zeros, zeros, zeros)
    bias = at.tensor(2) if at.has(2) else None
    return convolve(at, x, _mirrored(at, group), bias, window, group)


def _positive(at: Lowering, name: str, rank: int) -> tuple[int, ...]:
    values = at.integers(name) or (1,) * rank
    if len(values) != rank or any(not 1 <= value < MAX_EXTENT for value in values):
        raise at.refuse(f"{name} {list(values)} are not {rank} positive integers")
    return values


def _transposed_pads(
    at: Lowering, extents: Sequence[int], strides: Sequence[int], spans: Sequence[int]
) -> tuple[list[tuple[int, int]], tuple[int, ...]]:
    """What is cut off before and after each axis, and what is added after it."""
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
        given = at.integers("pads") if mode == "NOTSET" else None
        pads = given or (0,) * (2 * rank)
        if len(pads) != 2 * rank or any(abs(pad) >= MAX_EXTENT for pad in pads):
            raise at.refuse(f"pads {list(pads)} are not {2 * rank} sizes")
        return list(zip(pads[:rank], pads[rank:], strict=True)), extra
    shape = shape[-rank:]
    if len(shape) != rank or any(not 1 <= size < MAX_EXTENT for size in shape):
        raise at.refuse(f"output_shape {list(shape)} does not fit {rank} axes")
    found: list[tuple[int, int]] = []
    for i in range(rank):
        total = strides[i] * (extents[i] - 1) + extra[i] + spans[i] - shape[i]
        half = total // 2
        found.append((half, total - half) if mode == "SAME_UPPER" else (total - half, half))
    return found, extra


def _mirrored(at: Lowering, group: int) -> Value:
    """The weights [ci, co/group, ...] as those of the convolution, [co, ci/group, ...]."""
    value, shape = at.operand(1), at.shape(1)
    split = (group, shape[0] // group, *shape[1:])
    order = (0, 2, 1, *range(3, len(split)))
    merged = (group * shape[1], shape[0] // group, *shape[2:])
    spatial = tuple(range(2, len(shape)))
    if isinstance(value, Constant):
        array = value.array.reshape(split).transpose(order).reshape(merged)
        return Constant(np.ascontiguousarray(np.flip(array, spatial)), value.name)
    turned = at.reshape(at.transpose(at.reshape(value, split), order), merged)
    for axis in spatial:
        turned = reversed_along(at, turned, axis)
    return turned


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

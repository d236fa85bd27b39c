"""MaxPool, AveragePool and the global pools."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tilewright.frontends.onnx.lowering import Lowering, Value
from tilewright.frontends.onnx.operators import patches
from tilewright.frontends.onnx.windows import spatial_rank, window_of
from tilewright.frontends.windows import Window, as_image, as_sequence
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of
from tilewright.numerics import reference

MAX_TABLE = 2**24
"""Elements of a constant that stands for a dilated average."""


def max_pool(at: Lowering) -> Value | Sequence[Value]:
    """Largest element of each window, and where it lies."""
    rank = spatial_rank(at)
    window = window_of(at, at.integers("kernel_shape") or (), pool=True)

    def pool(image: SSAValue, window: Window) -> SSAValue:
        return at.emit("max_pool", image, **window.attributes(kernel=True, dilations=True))

    largest = _pooled(at, rank, window, pool)
    if len(at.node.outputs) < 2 or not at.node.outputs[1]:
        return largest
    return [largest, patches.pooled_places(at, window, shape_of(largest))]


def average_pool(at: Lowering) -> SSAValue:
    """Mean of each window; padding counts in the divisor if count_include_pad says so.

    What ceil_mode adds after the padding never counts.
    """
    rank = spatial_rank(at)
    window = window_of(at, at.integers("kernel_shape") or (), pool=True)
    counted = bool(at.integer("count_include_pad"))

    def pool(image: SSAValue, window: Window) -> SSAValue:
        if any(step != 1 for step in window.dilations):
            return _dilated_average(at, image, window, counted)
        return at.emit(
            "average_pool",
            image,
            counted=window.pads(counted=True) if counted else [0, 0, 0, 0],
            **window.attributes(kernel=True, dilations=False),
        )

    return _pooled(at, rank, window, pool)


def _pooled(
    at: Lowering, rank: int, window: Window, pool: Callable[[SSAValue, Window], SSAValue]
) -> SSAValue:
    """Apply a pool of images; over three axes, first to the planes and then along the depth.

    Both the largest element and the mean of a box come about axis by axis: the number of elements
    that a window counts is a product over the axes.
    """
    x = at.tensor(0)
    if rank < 3:
        return as_sequence(at, pool(as_image(at, x), window), rank)
    n, c, depth, h, w = shape_of(x)
    planes = pool(at.reshape(x, (n, c * depth, h, w)), window.on(1, 2))
    oh, ow = shape_of(planes)[2:]
    deep = pool(at.reshape(planes, (n, c, depth, oh * ow)), window.on(0, None))
    return at.reshape(deep, (n, c, shape_of(deep)[2], oh, ow))


def _dilated_average(at: Lowering, image: SSAValue, window: Window, counted: bool) -> SSAValue:
    """A dilated mean: a depthwise convolution with ones, over the number of elements counted."""
    channels = shape_of(image)[1]
    kernel = (1, *window.kernel)[-2:]
    if channels * math.prod(kernel) > MAX_TABLE:
        raise at.refuse(f"a dilated window of {list(kernel)} is too large", code="onnx-too-large")
    ones = at.weight(np.ones((channels, 1, *kernel), np.float32), f"{at.node.name}.ones")
    attributes = window.attributes(kernel=False, dilations=True)
    total = at.emit("conv", image, ones, group=channels, **attributes)
    if math.prod(shape_of(total)[2:]) > MAX_TABLE:
        raise at.refuse("a dilated average of so large an image", code="onnx-too-large")
    counts = reference.pool_counts(
        shape_of(image)[2:],
        kernel,
        window.flat(window.strides, 1),
        window.pads(),
        window.flat(window.dilations, 1),
        window.pads(counted=True) if counted else (0, 0, 0, 0),
    )
    if counts.min() < 1:
        raise at.misfit("a window lies wholly in the padding")
    shares = (1 / counts[None, None]).astype(np.float32)
    return at.emit("mul", total, at.weight(shares, f"{at.node.name}.shares"))


def global_average_pool(at: Lowering) -> SSAValue:
    """Mean over all spatial axes, however many, which stay with extent 1."""
    return _global(at, "average_pool")


def global_max_pool(at: Lowering) -> Value:
    """Largest element over all spatial axes, which stay with extent 1."""
    return _global(at, "max_pool")


def _global(at: Lowering, operation: str) -> SSAValue:
    shape = at.shape(0)
    if len(shape) < 3:
        raise at.misfit(f"its input of shape {list(shape)} has no spatial axes")
    image = at.tensor(0)
    if len(shape) != 4:
        image = at.reshape(image, (*shape[:2], 1, math.prod(shape[2:])))
    result = at.emit(operation, image, kernel=list(shape_of(image)[2:]), strides=[1, 1])
    return at.reshape(result, (*shape[:2], *(1 for _ in shape[2:])))

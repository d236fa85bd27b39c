"""MaxPool, AveragePool and the global pools."""

from __future__ import annotations

import math

import numpy as np

from tilewright.frontends.onnx.lowering import Lowering, Value
from tilewright.frontends.onnx.windows import (
    Window,
    as_image,
    as_sequence,
    spatial_rank,
    window_of,
)
from tilewright.ir import SSAValue
from tilewright.numerics import reference
from tilewright.types import shape_of

MAX_TABLE = 2**24
"""Elements of a constant that stands for a dilated average."""


def max_pool(at: Lowering) -> Value:
    """Largest element of each window; the indices, a second result, are not computed."""
    rank = spatial_rank(at)
    window = window_of(at, at.integers("kernel_shape") or (), pool=True)
    image = as_image(at, at.tensor(0))
    result = at.emit("max_pool", image, **window.attributes(kernel=True, dilations=True))
    return as_sequence(at, result, rank)


def average_pool(at: Lowering) -> Value:
    """Mean of each window; padding counts in the divisor if count_include_pad says so.

    What ceil_mode adds behind the padding never counts.
    """
    rank = spatial_rank(at)
    window = window_of(at, at.integers("kernel_shape") or (), pool=True)
    image = as_image(at, at.tensor(0))
    counted = bool(at.integer("count_include_pad"))
    if any(step != 1 for step in window.dilations):
        return as_sequence(at, _dilated_average(at, image, window, counted), rank)
    result = at.emit(
        "average_pool",
        image,
        counted=window.pads(counted=True) if counted else [0, 0, 0, 0],
        **window.attributes(kernel=True, dilations=False),
    )
    return as_sequence(at, result, rank)


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
        raise at.refuse("a window lies wholly in the padding", code="onnx-shape")
    shares = (1 / counts[None, None]).astype(np.float32)
    return at.emit("mul", total, at.weight(shares, f"{at.node.name}.shares"))


def global_average_pool(at: Lowering) -> Value:
    """Mean over all spatial axes, however many, which stay with extent 1."""
    return _global(at, "average_pool")


def global_max_pool(at: Lowering) -> Value:
    """Largest element over all spatial axes, which stay with extent 1."""
    return _global(at, "max_pool")


def _global(at: Lowering, operation: str) -> SSAValue:
    shape = at.shape(0)
    if len(shape) < 3:
        raise at.refuse(f"its input of shape {list(shape)} has no spatial axes", code="onnx-shape")
    image = at.tensor(0)
    if len(shape) != 4:
        image = at.reshape(image, (*shape[:2], 1, math.prod(shape[2:])))
    result = at.emit(operation, image, kernel=list(shape_of(image)[2:]), strides=[1, 1])
    return at.reshape(result, (*shape[:2], *(1 for _ in shape[2:])))

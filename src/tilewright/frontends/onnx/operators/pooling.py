"""Pools, and windows as tables of places: MaxPool's indices, MaxUnpool, Col2Im."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tilewright.frontends.limits import MAX_TABLE
from tilewright.frontends.onnx.lowering import Lowering, Value, dtype_of
from tilewright.frontends.onnx.windows import positive, spatial_rank, window_of
from tilewright.frontends.windows import Window, as_image, as_sequence
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, shape_of
from tilewright.numerics import reference


def max_pool(at: Lowering) -> Value | Sequence[Value]:
    """Largest element of each window, and where it lies."""
    rank = spatial_rank(at)
    window = window_of(at, at.integers("kernel_shape") or (), pool=True)

    def pool(image: SSAValue, window: Window) -> SSAValue:
        return at.emit("max_pool", image, **window.attributes(kernel=True, dilations=True))

    largest = _pooled(at, rank, window, pool)
    if len(at.node.outputs) < 2 or not at.node.outputs[1]:
        return largest
    return [largest, pooled_places(at, window, shape_of(largest))]


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


def places_in_windows(at: Lowering, extents: Sequence[int], window: Window) -> tuple[Array, Array]:
    """For every window and tap the flat place in the image, and whether it lies inside."""
    flat, inside = np.zeros((1, 1), np.int64), np.ones((1, 1), np.bool_)
    count = 1
    for i, extent in enumerate(extents):
        span = (window.kernel[i] - 1) * window.dilations[i] + 1
        padded = extent + window.begins[i] + window.ends[i]
        windows = (padded - span) // window.strides[i] + 1
        count *= windows * window.kernel[i]
        if count > MAX_TABLE:
            raise at.refuse("its windows have too many elements", code="onnx-too-large")
        place = np.arange(windows)[:, None] * window.strides[i] - window.begins[i]
        place = place + np.arange(window.kernel[i])[None] * window.dilations[i]
        inside_axis = (place >= 0) & (place < extent)
        flat = flat[:, None, :, None] * extent + np.clip(place, 0, extent - 1)[None, :, None, :]
        inside = inside[:, None, :, None] & inside_axis[None, :, None, :]
        size = (flat.shape[0] * flat.shape[1], flat.shape[2] * flat.shape[3])
        flat, inside = flat.reshape(size), inside.reshape(size)
    return flat, inside


def pooled_places(at: Lowering, window: Window, sizes: Sequence[int]) -> SSAValue:
    """Return the index in the flattened operand of the largest element of each window."""
    shape = at.shape(0)
    flat, inside = places_in_windows(at, shape[2:], window)
    images, pixels = math.prod(shape[:2]), math.prod(shape[2:])
    x = at.reshape(at.tensor(0), (images, pixels))
    table = at.weight(flat, f"{at.node.name}.places")
    taps = at.emit("gather", x, table, axis=1)
    if not inside.all():
        dtype = dtype_of(taps)
        lowest = -np.inf if dtype.kind == "f" else np.iinfo(dtype.name).min
        mask = at.weight(inside, f"{at.node.name}.inside")
        taps = at.emit("select", mask, taps, at.made(lowest, taps, "lowest"))
    best = at.emit("arg_max", taps, axes=(2,), keep_dims=False)
    windows, count = flat.shape
    starts = (np.arange(windows) * count).astype(np.int64)
    entry = at.emit("add", best, at.weight(starts, f"{at.node.name}.windows"))
    order = _column_major(flat, shape[2:]) if at.integer("storage_order") else flat
    listed = at.weight(order.reshape(-1), f"{at.node.name}.listed")
    place = at.emit("gather", listed, entry, axis=0)
    image = (np.arange(images) * pixels).astype(np.int64)[:, None]
    place = at.emit("add", place, at.weight(image, f"{at.node.name}.images"))
    return at.reshape(place, sizes)


def _column_major(flat: Array, extents: Sequence[int]) -> Array:
    """Places counted with the first axis innermost."""
    index = np.unravel_index(flat, tuple(extents))
    return np.ravel_multi_index(index, tuple(extents), order="F").astype(np.int64)


def max_unpool(at: Lowering) -> Value:
    """Elements put back to where a pool found them, zeros elsewhere."""
    shape, places = at.shape(0), at.shape(1)
    rank = len(shape) - 2
    kernel = at.integers("kernel_shape") or ()
    if rank < 1 or places != shape or len(kernel) != rank or min(kernel) < 1:
        raise at.misfit(f"places {list(places)} do not fit {list(shape)}")
    strides, pads = positive(at, "strides", rank), at.integers("pads") or (0,) * (2 * rank)
    if len(pads) != 2 * rank:
        raise at.refuse(f"pads {list(pads)} are not {2 * rank} sizes")
    sizes = tuple(
        (shape[2 + i] - 1) * strides[i] + kernel[i] - pads[i] - pads[rank + i] for i in range(rank)
    )
    if min(sizes) < 1:
        raise at.misfit("its pads leave nothing")
    whole = (*shape[:2], *sizes)
    wanted = at.integers_at(2, "output shape") or whole
    if len(wanted) != len(whole) or any(w < h for w, h in zip(wanted, whole, strict=True)):
        raise at.misfit(f"{list(whole)} does not fit in {list(wanted)}")
    x = at.tensor(0)
    zeros = at.weight(np.zeros(math.prod(whole), dtype_of(x)), f"{at.node.name}.zeros")
    count = math.prod(shape)
    index = at.reshape(at.tensor(1), (count,))
    result = at.reshape(at.emit("scatter", zeros, index, at.reshape(x, (count,))), whole)
    grown = tuple(w - h for w, h in zip(wanted, whole, strict=True))
    if not any(grown):
        return result
    return at.emit("pad", result, pads=(*(0 for _ in grown), *grown), mode="constant")


def col2im(at: Lowering) -> Value:
    """Columns of blocks added up to the image that they were taken from."""
    shape = at.shape(0)
    image, block = at.integers_at(1, "image shape"), at.integers_at(2, "block shape")
    if image is None or block is None or len(shape) != 3 or len(image) != len(block):
        raise at.misfit("its image and its block have not the same axes")
    rank, taps = len(image), math.prod(block)
    if rank < 1 or min(*image, *block) < 1 or shape[1] % taps:
        raise at.misfit(f"{shape[1]} rows are not blocks {list(block)}")
    dilations, strides = positive(at, "dilations", rank), positive(at, "strides", rank)
    pads = at.integers("pads") or (0,) * (2 * rank)
    if len(pads) != 2 * rank or min(pads) < 0:
        raise at.refuse(f"pads {list(pads)} are not {2 * rank} sizes")
    window = Window(block, strides, dilations, pads[:rank], pads[rank:], pads[rank:])
    flat, inside = places_in_windows(at, image, window)
    if flat.shape != (shape[2], taps):
        raise at.misfit(f"there are {flat.shape[0]} blocks, not {shape[2]}")
    # A row for each pixel; the windows' elements outside of the image name none.
    channels, pixels = shape[0] * shape[1] // taps, math.prod(image)
    places = at.weight(np.where(inside, flat, pixels).T.reshape(-1), f"{at.node.name}.places")
    x = at.reshape(at.tensor(0), (channels, taps * shape[2]))
    zeros = at.weight(np.zeros((pixels, channels), dtype_of(x)), f"{at.node.name}.zeros")
    total = at.emit("scatter", zeros, places, at.transpose(x, (1, 0)), reduction="add")
    return at.reshape(at.transpose(total, (1, 0)), (shape[0], shape[1] // taps, *image))

"""Samples of images at computed places: GridSample, AffineGrid, DeformConv, what regions need.

An image becomes rows, one for each pixel with its channels; a sample is a sum of rows that integer
arithmetic finds at run time, each times a weight that depends on where the place lies.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.frontends.moves import element_at
from tilewright.frontends.onnx.lowering import Lowering, Value, dtype_of
from tilewright.frontends.onnx.windows import window_of
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, shape_of

CUBIC = -0.75
"""The free coefficient of Keys' kernel, "Cubic convolution interpolation", 1981."""


@dataclass(frozen=True)
class Axis:
    """The valid coordinates along one axis of an image, and the padding beyond."""

    extent: int
    padding: str = "zeros"
    """zeros, border, or reflection about ``low`` and ``high``."""
    low: float = 0.0
    high: float = 0.0


def rows_of(at: Lowering, x: SSAValue) -> SSAValue:
    """[n, c, spatial...] as rows of pixels [n * spatial, c]."""
    shape = shape_of(x)
    order = (0, *range(2, len(shape)), 1)
    return at.reshape(at.transpose(x, order), (math.prod(shape) // shape[1], shape[1]))


def sampled(
    at: Lowering,
    rows: SSAValue,
    places: Sequence[SSAValue],
    axes: Sequence[Axis],
    mode: str,
    first: SSAValue,
    fold: str = "add",
) -> SSAValue:
    """Sample at ``places``, one tensor of coordinates [s...] for each axis: [s..., c].

    ``mode`` is nearest (places are whole numbers), linear or cubic; ``first`` [s...], or what
    broadcasts to it, is the row of each sample's image. ``fold`` puts weighted pixels together.
    """
    steps = [{"nearest": 1, "linear": 2, "cubic": 4}[mode]] * len(axes)
    parts = [taps_of(at, place, axis, mode) for place, axis in zip(places, axes, strict=True)]
    strides = [math.prod(axis.extent for axis in axes[i + 1 :]) for i in range(len(axes))]
    total: SSAValue | None = None
    for chosen in itertools.product(*(range(count) for count in steps)):
        row, weight = first, None
        for part, tap, stride in zip(parts, chosen, strides, strict=True):
            index, factor = part[tap]
            row = at.emit("add", row, at.apply("mul", index, stride) if stride > 1 else index)
            if factor is not None:
                weight = factor if weight is None else at.emit("mul", weight, factor)
        corner = at.emit("gather", rows, row, axis=0)
        if weight is not None:
            corner = at.emit("mul", corner, at.reshape(weight, (*shape_of(weight), 1)))
        total = corner if total is None else at.emit(fold, total, corner)
    assert total is not None
    return total


def taps_of(
    at: Lowering, place: SSAValue, axis: Axis, mode: str
) -> list[tuple[SSAValue, SSAValue | None]]:
    """The pixels along an axis that a place is made of: index (int64) and weight."""
    if mode == "nearest":
        return [_pixel(at, place, axis, None)]
    base = at.emit("floor", place)
    part = at.emit("sub", place, base)
    weights = _linear(at, part) if mode == "linear" else _cubic(at, part)
    first = 0 if mode == "linear" else -1
    return [
        _pixel(at, at.apply("add", base, float(first + step)), axis, weight)
        for step, weight in enumerate(weights)
    ]


def _pixel(
    at: Lowering, place: SSAValue, axis: Axis, weight: SSAValue | None
) -> tuple[SSAValue, SSAValue | None]:
    """The pixel at a whole place, moved into the image; with zeros as padding, its weight outside
    is 0."""
    last = float(axis.extent - 1)
    if axis.padding == "reflection":
        place = reflected(at, place, axis)
    inside = within(at, place, 0.0, last) if axis.padding == "zeros" else None
    index = at.cast(at.emit("clip", place, minimum=0.0, maximum=last), np.int64)
    if inside is not None:
        mask = at.cast(inside, dtype_of(place))
        weight = mask if weight is None else at.emit("mul", weight, mask)
    return index, weight


def within(at: Lowering, value: SSAValue, low: float, high: float) -> SSAValue:
    """Emit a comparison, true for elements in [low, high]."""
    below = at.made(low, value, "low")
    return at.emit(
        "bit_and", at.emit("less_equal", below, value), at.apply("less_equal", value, high)
    )


def reflected(at: Lowering, place: SSAValue, axis: Axis) -> SSAValue:
    """Places mirrored at both ends until they lie between: a triangle wave."""
    span = axis.high - axis.low
    if span <= 0:
        return at.emit("clip", place, minimum=axis.low, maximum=axis.low)
    distance = at.emit("abs", at.apply("sub", place, axis.low))
    rest = at.apply("mod", distance, 2 * span)
    back = at.emit("sub", at.made(2 * span, rest, "turn"), rest)
    return at.apply("add", at.emit("min", rest, back), axis.low)


def _linear(at: Lowering, part: SSAValue) -> list[SSAValue]:
    unit = at.made(1.0, part, "one")
    return [at.emit("sub", unit, part), part]


def _cubic(at: Lowering, part: SSAValue) -> list[SSAValue]:
    """Keys' kernel at the distances of four pixels."""
    unit = at.made(1.0, part, "one")
    other = at.emit("sub", unit, part)

    def near(distance: SSAValue) -> SSAValue:
        inner = at.apply("sub", at.apply("mul", distance, CUBIC + 2), CUBIC + 3)
        square = at.emit("mul", distance, distance)
        return at.apply("add", at.emit("mul", inner, square), 1.0)

    def far(distance: SSAValue) -> SSAValue:
        away = at.apply("add", distance, 1.0)
        inner = at.apply("sub", at.apply("mul", away, CUBIC), 5 * CUBIC)
        inner = at.apply("add", at.emit("mul", inner, away), 8 * CUBIC)
        return at.apply("sub", at.emit("mul", inner, away), 4 * CUBIC)

    return [far(part), near(part), near(other), far(other)]


def grid_sample(at: Lowering) -> Value:
    """An image at places of a grid, which counts each axis from -1 to 1."""
    shape, grid = at.shape(0), at.shape(1)
    rank = len(shape) - 2
    if rank < 1 or len(grid) != rank + 2 or grid[0] != shape[0] or grid[-1] != rank:
        raise at.misfit(f"a grid {list(grid)} does not fit the image {list(shape)}")
    mode = at.text("mode", "linear").removeprefix("bi")
    padding, corners = at.text("padding_mode", "zeros"), bool(at.integer("align_corners"))
    if mode not in ("nearest", "linear", "cubic") or (mode == "cubic" and rank > 3):
        raise at.refuse(f"mode {mode!r} over {rank} axes is not computed")
    if padding not in ("zeros", "border", "reflection"):
        raise at.refuse(f"padding_mode {padding!r} is not known")
    places: list[SSAValue] = []
    axes: list[Axis] = []
    for i, extent in enumerate(shape[2:]):
        low, high = (0.0, extent - 1.0) if corners else (-0.5, extent - 0.5)
        axis = Axis(extent, padding, low, high)
        # The grid names its axes from the innermost.
        turned = rank - 1 - i
        where = element_at(at, at.tensor(1), rank + 1, turned)
        places.append(_brought_in(at, _pixels_of(at, where, extent, corners), axis, mode))
        axes.append(axis)
    image = np.arange(shape[0]).reshape(-1, *(1 for _ in grid[1:-1])) * math.prod(shape[2:])
    first = at.weight(image.astype(np.int64), f"{at.node.name}.image")
    samples = sampled(at, rows_of(at, at.tensor(0)), places, axes, mode, first)
    return at.transpose(samples, (0, rank + 1, *range(1, rank + 1)))


def affine_grid(at: Lowering) -> Value:
    """The places of an image's pixels, each axis from -1 to 1, under affine maps: for GridSample.

    ONNX's definition by other operators squeezes a batch of one away. An axis of one pixel is at
    -1 where the corners' middles are the ends, as in ONNX's reference.
    """
    maps, size = at.shape(0), at.integers_at(1, "sizes")
    if size is None or maps != (size[0], len(size) - 2, len(size) - 1) or len(size) not in (4, 5):
        raise at.misfit(f"maps {list(maps)} do not fit an image of shape {list(size or ())}")
    extents = size[2:]
    at.check_size((size[0], *extents, len(extents)))
    lines = [_line(extent, corners=bool(at.integer("align_corners"))) for extent in extents]
    # A map takes axes from the innermost, and a one for what it adds.
    places = [line.reshape(-1) for line in reversed(np.meshgrid(*lines, indexing="ij"))]
    points = np.stack([*places, np.ones_like(places[0])])
    maps_of = at.tensor(0)
    base = at.weight(points.astype(dtype_of(maps_of)), f"{at.node.name}.places")
    moved = at.transpose(at.emit("matmul", maps_of, base), (0, 2, 1))
    return at.reshape(moved, (size[0], *extents, len(extents)))


def _line(extent: int, *, corners: bool) -> Array:
    """The middles of pixels along an axis, whose ends are -1 and 1."""
    step = 2 / max(extent - 1, 1) if corners else 2 / extent
    return -1 + step * (np.arange(extent) + (0 if corners else 0.5))


def _pixels_of(at: Lowering, where: SSAValue, extent: int, corners: bool) -> SSAValue:
    """From -1 ... 1 to pixels."""
    half = at.apply("add", where, 1.0)
    if corners:
        return at.apply("mul", at.apply("div", half, 2.0), extent - 1.0)
    return at.apply("div", at.apply("sub", at.apply("mul", half, float(extent)), 1.0), 2.0)


def _brought_in(at: Lowering, place: SSAValue, axis: Axis, mode: str) -> SSAValue:
    """Places outside of the borders on the border, or mirrored at it."""
    if mode == "nearest":
        place = at.emit("round", place)
    if axis.padding == "zeros" or (axis.padding == "border" and mode == "cubic"):
        # Cubic samples beyond the border mix its pixels, as PyTorch and ONNX Runtime have it.
        return place
    if axis.padding == "reflection":
        new = reflected(at, place, axis)
        # Half a pixel may be left beyond the first pixel's middle, where the nearest is still it.
        return at.emit("round", new) if mode == "nearest" and axis.low == 0 else new
    new = at.emit("clip", place, minimum=0.0, maximum=axis.extent - 1.0)
    return at.emit("select", within(at, place, axis.low, axis.high), place, new)


def deform_conv(at: Lowering) -> Value:
    """Linear samples of the image at every tap, times the weights.

    Dai et al., "Deformable Convolutional Networks", 2017 (section 2.1).
    """
    x, w, offsets = at.shape(0), at.shape(1), at.shape(2)
    group, parts = at.integer("group", 1), at.integer("offset_group", 1)
    if len(x) != 4 or len(w) != 4 or group < 1 or parts < 1:
        raise at.misfit(f"an image of shape {list(x)} is not supported")
    kernel = at.integers("kernel_shape") or w[2:]
    taps = math.prod(kernel)
    if kernel != w[2:] or x[1] != w[1] * group or w[0] % group or x[1] % parts:
        raise at.misfit(f"weights {list(w)} do not fit {list(x)}")
    window = window_of(at, kernel, pool=False)
    sizes = tuple(
        (x[2 + i] + window.begins[i] + window.ends[i] - (kernel[i] - 1) * window.dilations[i] - 1)
        // window.strides[i]
        + 1
        for i in range(2)
    )
    if offsets != (x[0], parts * taps * 2, *sizes):
        raise at.misfit(f"offsets {list(offsets)} do not fit {list(sizes)}")
    # [n, offset group, tap, axis, oh, ow]
    moved = at.reshape(at.tensor(2), (x[0], parts, taps, 2, *sizes))
    places: list[SSAValue] = []
    for i in range(2):
        shifts = element_at(at, moved, 3, i)
        tap = np.indices(kernel)[i].reshape(taps, 1, 1) * window.dilations[i]
        step = np.indices(sizes)[i] * window.strides[i] - window.begins[i]
        places.append(at.emit("add", shifts, at.made(tap + step, shifts, f"taps{i}")))
    # One image for every offset group: [n, parts, h, w, c / parts] as rows.
    image = at.reshape(at.tensor(0), (x[0] * parts, x[1] // parts, *x[2:]))
    first = np.arange(x[0] * parts).reshape(x[0], parts, 1, 1, 1) * (x[2] * x[3])
    start = at.weight(first.astype(np.int64), f"{at.node.name}.image")
    axes = [Axis(extent) for extent in x[2:]]
    samples = sampled(at, rows_of(at, image), places, axes, "linear", start)
    if at.has(4):
        if math.prod(at.shape(4)) != x[0] * parts * taps * math.prod(sizes):
            raise at.misfit(f"a mask {list(at.shape(4))} does not fit")
        mask = at.reshape(at.tensor(4), (x[0], parts, taps, *sizes, 1))
        samples = at.emit("mul", samples, mask)
    # [n, parts, taps, oh, ow, c / parts] to [n, group, c / group * taps, oh * ow].
    samples = at.transpose(samples, (0, 1, 5, 2, 3, 4))
    samples = at.reshape(samples, (x[0], group, x[1] // group * taps, math.prod(sizes)))
    weights = at.reshape(at.tensor(1), (1, group, w[0] // group, w[1] * taps))
    product = at.reshape(at.emit("matmul", weights, samples), (x[0], w[0], *sizes))
    if at.has(3):
        product = at.emit("add", product, at.reshape(at.tensor(3), (1, w[0], 1, 1)))
    assert shape_of(product) == (x[0], w[0], *sizes)
    return product

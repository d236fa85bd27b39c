"""Regions of images, known at run time: RoiAlign and MaxRoiPool."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.frontends.moves import stretch
from tilewright.frontends.onnx.lowering import Lowering, Value, dtype_of
from tilewright.frontends.onnx.operators.sampling import (
    Axis,
    rows_of,
    sampled,
    within,
)
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, shape_of


def roi_align(at: Lowering) -> Value:
    """The mean, or the largest, of samples in each cell of regions of an image."""
    shape, rois = at.shape(0), at.shape(1)
    if len(shape) != 4 or len(rois) != 2 or rois[1] != 4 or at.shape(2) != rois[:1]:
        raise at.misfit(f"regions {list(rois)} do not fit {list(shape)}")
    cells = (at.integer("output_height", 1), at.integer("output_width", 1))
    ratio, mode = at.integer("sampling_ratio"), at.text("mode", "avg")
    if min(cells) < 1 or mode not in ("avg", "max"):
        raise at.refuse(f"cells {list(cells)} in mode {mode!r} are not computed")
    default = "half_pixel" if at.version >= 16 else "output_half_pixel"
    half = at.text("coordinate_transformation_mode", default) == "half_pixel"
    boxes = at.apply("mul", at.tensor(1), at.number("spatial_scale", 1.0))
    if half:
        boxes = at.apply("sub", boxes, 0.5)
    if ratio < 1:
        return (_means if mode == "avg" else _maxima)(at, boxes, cells, half=half)
    sides = [_side(at, boxes, axis, cells[axis], ratio, half) for axis in range(2)]
    count = rois[0]
    # Coordinates [roi, rows of samples, columns of samples].
    tall = at.reshape(sides[0], (count, cells[0] * ratio, 1))
    wide = at.reshape(sides[1], (count, 1, cells[1] * ratio))
    places = [_clamped(at, side, extent) for side, extent in ((tall, shape[2]), (wide, shape[3]))]
    inside = at.emit("bit_and", within(at, tall, -1.0, shape[2]), within(at, wide, -1.0, shape[3]))
    image = at.apply("mul", at.cast(at.tensor(2), np.int64), shape[2] * shape[3])
    first = at.reshape(image, (count, 1, 1))
    axes = [Axis(extent, "border") for extent in shape[2:]]
    rows = rows_of(at, at.tensor(0))
    # In mode max, as ONNX has it, a sample is the largest of its four weighted pixels.
    fold = "max" if mode == "max" else "add"
    samples = sampled(at, rows, places, axes, "linear", first, fold)
    mask = at.cast(at.reshape(inside, (*shape_of(inside), 1)), dtype_of(samples))
    samples = at.emit("mul", samples, mask)
    samples = at.reshape(samples, (count, cells[0], ratio, cells[1], ratio, shape[1]))
    operation = "reduce_max" if mode == "max" else "reduce_mean"
    samples = at.emit(operation, samples, axes=(2, 4), keep_dims=False)
    return at.transpose(samples, (0, 3, 1, 2))


def _clamped(at: Lowering, side: SSAValue, extent: int) -> SSAValue:
    return at.emit("clip", side, minimum=0.0, maximum=extent - 1.0)


def _means(at: Lowering, boxes: SSAValue, cells: tuple[int, int], *, half: bool) -> SSAValue:
    """The mean of as many samples as a cell has pixels, which regions decide at run time.

    It is a product on each side: a row of the image counts in a cell as much as the cell's samples
    along that axis weigh it, and so does a column.
    """
    images, channels, height, width = at.shape(0)
    count = at.shape(1)[0]
    tall, wide = (
        _shares(at, boxes, axis, cells[axis], extent, half=half)
        for axis, extent in enumerate((height, width))
    )
    if images > 1:
        number = at.reshape(at.cast(at.tensor(2), np.int64), (count, 1, 1, 1))
        every = at.weight(np.arange(images).reshape(1, 1, -1, 1), f"{at.node.name}.images")
        is_region = at.cast(at.emit("equal", number, every), dtype_of(tall))
        tall = at.emit("mul", at.reshape(tall, (count, cells[0], 1, height)), is_region)
    tall = at.reshape(tall, (count * cells[0], images * height))
    lines = at.transpose(at.tensor(0), (0, 2, 3, 1))
    lines = at.reshape(lines, (images * height, width * channels))
    at.check_size([count, cells[0], width, channels])
    rows = at.reshape(at.emit("matmul", tall, lines), (count, cells[0], width, channels))
    wide = at.reshape(wide, (count, 1, cells[1], width))
    return at.transpose(at.emit("matmul", wide, rows), (0, 3, 1, 2))


def _maxima(at: Lowering, boxes: SSAValue, cells: tuple[int, int], *, half: bool) -> Value:
    """The largest weighted pixel of as many samples as a cell has pixels.

    A sample's weight of a pixel is a product of one weight for each axis, so that the axes follow
    one another: of a positive pixel the largest weight counts, of a negative one the smallest.
    Samples beyond the image are 0, and so is a cell without samples.
    """
    count, extents = at.shape(1)[0], at.shape(0)[2:]
    x = at.emit("gather", at.tensor(0), at.cast(at.tensor(2), np.int64), axis=0)
    zero, beyond = at.made(0.0, x, "zero"), []
    for axis in (1, 0):
        near = _near(at, boxes, axis, cells[axis], extents[axis], half=half)
        rows = (count, 1, *((1, cells[1], extents[1]) if axis else (cells[0], extents[0], 1)))
        largest, least = (at.cast(at.reshape(w, rows), dtype_of(x)) for w in near.extremes(at))
        sizes = shape_of(x)
        x = at.reshape(x, (*sizes[: 2 + axis], 1, *sizes[2 + axis :]))
        negative = at.apply("less", x, 0.0)
        weight = at.emit("select", negative, least, largest)
        taken = at.apply("less_equal", 0.0, largest)
        at.check_size([*sizes, cells[axis]])
        x = _largest(at, taken, at.emit("mul", x, weight), 3 + axis)
        x = at.emit("select", at.apply("equal", x, -np.inf), zero, x)
        place = (count, 1, 1, cells[1]) if axis else (count, 1, cells[0], 1)
        beyond.append(at.reshape(near.beyond, place))
    either = at.emit("bit_or", *beyond)
    return at.emit("select", either, at.apply("max", x, 0.0), x)


_NEAR = 7
"""Samples that are looked at for each pixel: those less than 1 from it, in steps of over half a
pixel, are four at most; the others are for what rounding leaves."""


@dataclass(frozen=True)
class _Near:
    """The samples of every cell along an axis that are near each of the axis' pixels."""

    taken: SSAValue
    """Mask of those that are samples and lie in the image [roi, cells, extent, near]."""
    offset: SSAValue
    """The pixel's place less that of the sample, which is moved into the image, likewise."""
    divisor: SSAValue
    """The number of a cell's samples, 1 where it has none [roi, 1, 1, 1]."""
    beyond: SSAValue
    """Mask of the cells with a sample beyond the image [roi, cells, 1, 1]."""

    def weights(self, at: Lowering) -> SSAValue:
        """The weight of the pixel in each sample that is a neighbour of it; else 0."""
        distance = at.emit("abs", self.offset)
        return at.apply("max", at.apply("sub", 1.0, distance), 0.0)

    def extremes(self, at: Lowering) -> tuple[SSAValue, SSAValue]:
        """The largest weight of each pixel, -1 where no sample has it, and the smallest."""
        weights = self.weights(at)
        mask = at.emit("bit_and", at.apply("less", 0.0, weights), self.taken)
        # A sample on a pixel has a neighbour of weight 0, too.
        least = at.emit(
            "select", at.apply("equal", self.offset, 0.0), at.made(0.0, weights), weights
        )
        missing = at.made(-1.0, weights, "missing"), at.made(1.0, weights, "missing")
        largest = at.emit("select", mask, weights, missing[0])
        least = at.emit("select", mask, least, missing[1])
        return (
            at.emit("reduce_max", largest, axes=(3,), keep_dims=False),
            at.emit("reduce_min", least, axes=(3,), keep_dims=False),
        )


def _near(
    at: Lowering, boxes: SSAValue, axis: int, cells: int, extent: int, *, half: bool
) -> _Near:
    """Return the samples near each pixel, of as many to a cell as it has pixels along the axis."""
    count = shape_of(boxes)[0]
    start, cell = _cell(at, boxes, axis, cells, half=half)
    samples = at.emit("ceil", cell)
    divisor = at.apply("max", samples, 1.0)
    step = at.emit("div", cell, divisor)
    start = at.emit(
        "add", at.emit("mul", cell, at.made(np.arange(cells)[None], cell, "cells")), start
    )
    samples, divisor, step = (at.reshape(v, (count, 1, 1, 1)) for v in (samples, divisor, step))
    start = at.reshape(start, (count, cells, 1, 1))

    def place_of(number: SSAValue) -> SSAValue:
        return at.emit("add", start, at.emit("mul", at.apply("add", number, 0.5), step))

    pixels = at.made(np.arange(extent).reshape(1, 1, -1, 1), cell, "pixels")
    # The first sample that may lie within one pixel of a pixel, and those after it.
    first = at.emit("sub", at.apply("sub", pixels, 1.0), start)
    first = at.emit("ceil", at.emit("div", first, at.apply("max", step, 1e-30)))
    first = at.apply("max", at.apply("sub", first, 2.0), 0.0)
    number = at.emit("add", first, at.made(np.arange(_NEAR).reshape(1, 1, 1, -1), cell, "near"))
    place = place_of(number)
    taken = at.emit("bit_and", at.emit("less", number, samples), within(at, place, -1.0, extent))
    ends = place_of(at.made(0.0, cell, "zero")), place_of(at.apply("sub", divisor, 1.0))
    inside = at.emit("bit_and", *(within(at, end, -1.0, extent) for end in ends))
    beyond = at.emit("bit_not", inside)
    return _Near(taken, at.emit("sub", pixels, _clamped(at, place, extent)), divisor, beyond)


def _shares(
    at: Lowering, boxes: SSAValue, axis: int, cells: int, extent: int, *, half: bool
) -> SSAValue:
    """Return the weight of each pixel along an axis in the mean of a cell: [roi, cells, extent]."""
    near = _near(at, boxes, axis, cells, extent, half=half)
    weights = near.weights(at)
    weights = at.emit("select", near.taken, weights, at.made(0.0, weights, "zero"))
    total = at.emit("reduce_sum", weights, axes=(3,), keep_dims=True)
    total = at.emit("div", total, near.divisor)
    return at.reshape(total, (shape_of(boxes)[0], cells, extent))


def _cell(
    at: Lowering, boxes: SSAValue, axis: int, cells: int, *, half: bool
) -> tuple[SSAValue, SSAValue]:
    """Return the start of every region along an axis, and the length of its cells: [roi, 1]."""
    start, end = _column(at, boxes, 1 - axis), _column(at, boxes, 3 - axis)
    length = at.emit("sub", end, start)
    if not half:
        length = at.apply("max", length, 1.0)
    return start, at.apply("div", length, float(cells))


def _side(at: Lowering, boxes: SSAValue, axis: int, cells: int, ratio: int, half: bool) -> SSAValue:
    """Coordinates of the samples of every region along one axis: [roi, cells * ratio]."""
    start, cell = _cell(at, boxes, axis, cells, half=half)
    steps = np.repeat(np.arange(cells), ratio)[None]
    parts = (np.tile(np.arange(ratio), cells)[None] + 0.5) / ratio
    along = at.emit("mul", cell, at.made(steps, cell, "cells"))
    inner = at.emit("mul", cell, at.made(parts, cell, "parts"))
    return at.emit("add", at.emit("add", along, inner), start)


def max_roi_pool(at: Lowering) -> Value:
    """The largest element of each cell of regions (image, x1, y1, x2, y2); 0 for empty cells.

    Girshick, "Fast R-CNN", 2015 (section 2.1): regions and cells lie on whole pixels.
    """
    shape, rois = at.shape(0), at.shape(1)
    cells = at.integers("pooled_shape") or ()
    if len(shape) != 4 or len(rois) != 2 or rois[1] != 5 or len(cells) != 2 or min(cells) < 1:
        raise at.misfit(f"regions {list(rois)} do not fit {list(shape)}")
    boxes = at.apply("mul", at.tensor(1), at.number("spatial_scale", 1.0))
    # Half away from zero, as C's round.
    whole = at.emit("floor", at.apply("add", boxes, 0.5))
    number = at.reshape(_column(at, at.tensor(1), 0), rois[:1])
    x = at.emit("gather", at.tensor(0), at.cast(number, np.int64), axis=0)
    # Along each axis in turn: pixels [roi, 1 ..., cell, pixel] of which a cell has some.
    for axis in (1, 0):
        mask = _cells(at, whole, axis, cells[axis], shape[2 + axis])
        sizes = shape_of(x)
        if axis == 1:
            wide = at.reshape(x, (*sizes[:3], 1, sizes[3]))
            mask = at.reshape(mask, (rois[0], 1, 1, cells[1], sizes[3]))
            x = _largest(at, mask, wide, 4)
        else:
            tall = at.reshape(x, (*sizes[:2], 1, *sizes[2:]))
            mask = at.reshape(mask, (rois[0], 1, cells[0], sizes[2], 1))
            x = _largest(at, mask, tall, 3)
    empty = at.apply("equal", x, -np.inf)
    return at.emit("select", empty, at.made(0.0, x, "zero"), x)


def _column(at: Lowering, boxes: SSAValue, index: int) -> SSAValue:
    return stretch(at, boxes, 1, index, index + 1)


def _cells(at: Lowering, whole: SSAValue, axis: int, cells: int, extent: int) -> SSAValue:
    """Mask of the pixels along an axis that lie in each cell: [roi, cells, extent]."""
    start, end = _column(at, whole, 2 - axis), _column(at, whole, 4 - axis)
    length = at.apply("max", at.apply("add", at.emit("sub", end, start), 1.0), 1.0)
    cell = at.apply("div", length, float(cells))

    def edge(operation: str, steps: Array) -> SSAValue:
        step = at.made(steps[None], cell, operation)
        place = at.emit("add", at.emit(operation, at.emit("mul", cell, step)), start)
        return at.reshape(place, (*shape_of(place), 1))

    first, last = edge("floor", np.arange(cells)), edge("ceil", np.arange(1, cells + 1))
    pixels = at.made(np.arange(extent).reshape(1, 1, -1), cell, "pixels")
    return at.emit("bit_and", at.emit("less_equal", first, pixels), at.emit("less", pixels, last))


def _largest(at: Lowering, mask: SSAValue, x: SSAValue, axis: int) -> SSAValue:
    lowest = at.made(-np.inf, x, "lowest")
    chosen = at.emit("select", mask, x, lowest)
    return at.emit("reduce_max", chosen, axes=(axis,), keep_dims=False)

"""Resize and Upsample: along each axis a product with a matrix that is known at import."""

from __future__ import annotations

import math

import numpy as np

from tilewright.frontends.limits import too_large
from tilewright.frontends.onnx.lowering import Lowering, Value, dtype_of
from tilewright.frontends.onnx.operators.run_moves import resize_of_run
from tilewright.frontends.steps import kept
from tilewright.graph.operations.written import ResampleOp
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, shape_of


def resize(at: Lowering) -> Value:
    """Any mode; axes that keep their size are left alone."""
    shape = at.shape(0)
    rank = len(shape)
    axes = [at.axis(axis, rank) for axis in at.integers("axes") or range(rank)]
    offset = 0 if at.version < 11 else 1
    for index in (2, 3):
        if at.version >= 11 and at.has(index) and at.constant(index) is None:
            return resize_of_run(at, axes, scales=index == 2)
    scales = _numbers(at, 1 + offset, "scales")
    sizes = at.integers_at(2 + offset, "sizes") if at.version >= 11 else None
    mode = at.text("mode", "nearest")
    if sizes:
        if len(sizes) != len(axes) or min(sizes) < 1 or too_large(sizes):
            raise at.misfit(f"sizes {list(sizes)} do not fit its axes")
        ratios = [size / shape[axis] for size, axis in zip(sizes, axes, strict=True)]
        policy = at.text("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            ratios = [ratio] * len(ratios)
            sizes = tuple(int(ratio * shape[axis] + 0.5) for axis in axes)
    else:
        if len(scales) != len(axes) or not all(0 < scale < 2**31 for scale in scales):
            raise at.refuse(f"scales {scales[:16]} do not fit its {len(axes)} axes")
        ratios = scales
        sizes = tuple(
            math.floor(shape[axis] * scale) for axis, scale in zip(axes, ratios, strict=True)
        )
    if sizes and min(sizes) < 1:
        raise at.misfit(f"scales {ratios} leave nothing of an axis")
    at.check_size([*sizes, *(shape[axis] for axis in range(rank) if axis not in axes)])
    boxes = _numbers(at, 1, "regions") if at.version >= 11 else []
    x = at.tensor(0)
    for number, (axis, scale, size) in enumerate(zip(axes, ratios, sizes, strict=True)):
        box = (0.0, 1.0)
        if at.text("coordinate_transformation_mode") == "tf_crop_and_resize":
            if len(boxes) != 2 * len(axes):
                raise at.refuse("its region is missing")
            box = (boxes[number], boxes[number + len(axes)])
        elif size == shape[axis] and scale == 1:
            continue
        matrix, outside = _matrix(at, mode, shape[axis], size, scale, box)
        x = _along(at, x, axis, matrix)
        if outside.any():
            value = at.made(at.number("extrapolation_value"), x, "outside")
            mask = outside.reshape([-1 if i == axis else 1 for i in range(rank)])
            x = at.emit("select", at.weight(mask, f"{at.node.name}.mask"), value, x)
    return x


def _numbers(at: Lowering, index: int, subject: str) -> list[float]:
    """A constant operand that lists numbers; [] if it is absent or empty."""
    if at.version < 9 or not at.has(index):
        return []
    array = at.constant(index)
    if array is None:
        raise at.misfit(f"its {subject} are computed at run time")
    return [float(item) for item in array.reshape(-1)]


def _along(at: Lowering, x: SSAValue, axis: int, matrix: Array) -> SSAValue:
    """The product of a matrix [out, in] with an axis; a gather if it only chooses."""
    chosen = (np.count_nonzero(matrix, axis=1) == 1) & (matrix.max(axis=1) == 1)
    if chosen.all():
        places = at.weight(matrix.argmax(axis=1).astype(np.int64), f"{at.node.name}.places")
        return at.emit("gather", x, places, axis=axis)
    shape, dtype = shape_of(x), dtype_of(x)
    wide = dtype if dtype.kind == "f" else np.dtype(np.float32)
    before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])

    def left() -> SSAValue:
        return at.weight(matrix.astype(wide), f"{at.node.name}.axis{axis}")

    def product() -> SSAValue:
        flat = at.reshape(at.cast(x, wide), (before, shape[axis], after))
        result = at.emit("matmul", at.reshape(left(), (1, *matrix.shape)), flat)
        if dtype != wide:
            result = at.cast(at.emit("round", result), dtype)
        return at.reshape(result, (*shape[:axis], matrix.shape[0], *shape[axis + 1 :]))

    return kept(at, ResampleOp, product, lambda: [x, left()], axis=axis)


def _matrix(
    at: Lowering, mode: str, extent: int, size: int, scale: float, box: tuple[float, float]
) -> tuple[Array, Array]:
    """Matrix of weights from the elements to the results of a resized axis, and a mask of the
    results outside of it."""
    if extent * size > 2**24:
        raise at.refuse("an axis is too long", code="onnx-too-large")
    places = _places(at, extent, size, scale, box, mode)
    outside = np.zeros(size, np.bool_)
    if at.text("coordinate_transformation_mode") == "tf_crop_and_resize":
        outside = (places < 0) | (places > extent - 1)
    matrix = np.zeros((size, extent), np.float64)
    if mode == "nearest":
        chosen = np.clip(_rounded(at, places), 0, extent - 1)
        matrix[np.arange(size), chosen] = 1
        return matrix, outside
    stretch = min(scale, 1.0) if at.integer("antialias") else 1.0
    base = np.floor(places).astype(np.int64)
    reach = math.ceil((1 if mode == "linear" else 2) / stretch)
    if mode not in ("linear", "bilinear", "trilinear", "cubic", "bicubic"):
        raise at.refuse(f"mode {mode!r} is not known")
    if mode.startswith(("bi", "tri")):
        reach = math.ceil((1 if "linear" in mode else 2) / stretch)
    excluded = bool(at.integer("exclude_outside"))
    coefficient = at.number("cubic_coeff_a", -0.75)
    for step in range(-reach, reach + 2):
        place = base + step
        distance = np.abs((places - place) * stretch)
        weight = _linear(distance) if "linear" in mode else _cubic(distance, coefficient)
        inside = (place >= 0) & (place < extent)
        np.add.at(
            matrix,
            (np.arange(size), np.clip(place, 0, extent - 1)),
            np.where(inside | (not excluded), weight, 0),
        )
    if excluded or stretch < 1:
        matrix /= matrix.sum(axis=1, keepdims=True)
    return matrix, outside


def _linear(distance: Array) -> Array:
    return np.maximum(1 - distance, 0)


def _cubic(distance: Array, a: float) -> Array:
    """Keys' kernel, "Cubic convolution interpolation", 1981, with a free coefficient."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = a * (((distance - 5) * distance + 8) * distance - 4)
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


def _places(
    at: Lowering, extent: int, size: int, scale: float, box: tuple[float, float], mode: str
) -> Array:
    """For each index of the result its coordinate in the operand."""
    default = "half_pixel" if at.version >= 11 else "asymmetric"
    way = at.text("coordinate_transformation_mode", default) if at.version >= 11 else default
    # Which element is nearest may hang on the last bit; ONNX Runtime's choice is followed.
    narrow = mode == "nearest" and "half_pixel" in way
    index = np.arange(size, dtype=np.float32 if narrow else np.float64)
    match way:
        case "asymmetric":
            return index / scale
        case "half_pixel":
            return (index + 0.5) / scale - 0.5
        case "half_pixel_symmetric":
            adjustment = size / (scale * extent)
            center = extent / 2
            return center * (1 - adjustment) + (index + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return (index + 0.5) / scale - 0.5 if size > 1 else np.zeros(1)
        case "align_corners":
            # The reference divides by the length before it is rounded down.
            return index * (extent - 1) / (scale * extent - 1) if size > 1 else np.zeros(1)
        case "tf_crop_and_resize":
            start, end = box
            if size > 1:
                return start * (extent - 1) + index * (end - start) * (extent - 1) / (size - 1)
            return np.full(1, 0.5 * (start + end) * (extent - 1))
        case other:
            raise at.refuse(f"coordinate_transformation_mode {other!r} is not known")


def _rounded(at: Lowering, places: Array) -> Array:
    """Round places to the nearest elements, by the node's mode."""
    places = places.astype(np.float64)
    default = "round_prefer_floor" if at.version >= 11 else "floor"
    match at.text("nearest_mode", default) if at.version >= 11 else default:
        case "round_prefer_floor":
            rounded = np.ceil(places - 0.5)
        case "round_prefer_ceil":
            rounded = np.floor(places + 0.5)
        case "floor":
            rounded = np.floor(places)
        case "ceil":
            rounded = np.ceil(places)
        case other:
            raise at.refuse(f"nearest_mode {other!r} is not known")
    return rounded.astype(np.int64)


def upsample(at: Lowering) -> Value:
    """Resize as operator set 9 has it: to sizes that are no smaller."""
    if any(scale < 1 for scale in _numbers(at, 1, "scales")):
        raise at.refuse("its scales make an axis smaller")
    return resize(at)

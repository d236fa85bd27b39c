"""The meaning of a stage's operation on one tile.

A tile of an anchor is a ``Tile``: the boxes of its operands and the dims' intervals. Anchors that
reduce state three steps: the tile's own part of the reduction, how parts combine, and what the
complete reduction becomes. Everything that multiplies and adds reads its index arithmetic off the
windows, so a convolution with groups and strides is the same few lines as a matrix product, and
independent of the whole-tensor functions in numerics. Maps are those of ``numerics.pointwise``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from tests.tile.iterations import Box
from tilewright.errors import refuse
from tilewright.ir.types import Array
from tilewright.numerics import fixed, lrn_gradient, pointwise, reference, sparse, winograd
from tilewright.planning.domain import Affine, Interval

_EXACT_TERMS = 1 << 22
"""Products of 16-bit integers that a double adds up exactly."""


@dataclass(frozen=True)
class Tile:
    """One execution of a stage.

    ``arrays`` hold the parts of the operands' boxes that lie inside their tensors; ``windows``
    has one window per operand and last the result's. ``dims`` are the intervals of the program's
    dims and ``extents`` their whole extents.
    """

    arrays: Sequence[Array]
    boxes: Sequence[Box]
    windows: Sequence[Sequence[Affine]]
    dims: Mapping[str, Interval]
    extents: Mapping[str, int]
    parameters: Mapping[str, Any]
    is_fixed: bool
    fractions: Sequence[int]
    result_fraction: int
    dtype: np.dtype[Any]
    """The element type of the result."""

    def padded(self, number: int, fill: float = 0) -> Array:
        """An operand's whole box, ``fill`` where it lies outside the tensor."""
        array, box = self.arrays[number], self.boxes[number]
        if array.shape == box.size:
            return array
        return np.pad(array, box.padding, constant_values=fill)

    @property
    def result_size(self) -> tuple[int, ...]:
        """Shape of the result's box."""
        return tuple(axis.interval(self.dims)[1] for axis in self.windows[-1])

    def view(self, number: int, array: Array, names: Sequence[str]) -> Array:
        """An array of a whole box, seen with one axis per dim; see ``view_by_dims``."""
        return view_by_dims(array, self.windows[number], names, self.dims)


def depends(window: Sequence[Affine], dim: str) -> bool:
    """Return True if a window moves with a dim."""
    return any(name == dim and c for axis in window for name, c in axis.terms)


def view_by_dims(
    array: Array, window: Sequence[Affine], names: Sequence[str], dims: Mapping[str, Interval]
) -> Array:
    """The array of a window's box, indexed by the named dims instead of the tensor's axes.

    Element (i, j, ...) is the one that the iteration with those dims touches; a dim that the
    window does not depend on has stride 0. Dims that are not named stay at their first index.
    """
    strides = dict.fromkeys(names, 0)
    base: list[slice] = []
    for axis, step in zip(window, array.strides, strict=True):
        first = 0
        for name, c in axis.terms:
            if c < 0:
                first += -c * (dims[name][1] - 1)
            if name in strides:
                strides[name] += c * step
        base.append(slice(first, None))
    return np.lib.stride_tricks.as_strided(
        array[tuple(base)],
        shape=tuple(dims[name][1] for name in names),
        strides=tuple(strides[name] for name in names),
    )


def _written(tile: Tile) -> list[str]:
    """The dims that the result depends on."""
    return [name for name in tile.dims if depends(tile.windows[-1], name)]


def _to_box(tile: Tile, names: Sequence[str], values: Array) -> Array:
    """Values by dims as an array of the result's box."""
    result = np.zeros(tile.result_size, values.dtype)
    view_by_dims(result, tile.windows[-1], names, tile.dims)[...] = values
    return result


def _product(tile: Tile) -> Array:
    """The sum of products of the first two operands over the tile's reduction dims."""
    x_window, w_window = tile.windows[0], tile.windows[1]
    written = _written(tile)
    in_x = [name for name in tile.dims if depends(x_window, name)]
    in_w = [name for name in tile.dims if depends(w_window, name)]
    both = [name for name in written if name in in_x and name in in_w]
    rows = [name for name in written if name not in both and name not in in_w]
    columns = [name for name in written if name not in both and name in in_w]
    inner = [name for name in tile.dims if name not in written and name in (*in_x, *in_w)]
    size = {name: tile.dims[name][1] for name in tile.dims}
    b, m, n, k = (prod(size[name] for name in group) for group in (both, rows, columns, inner))
    x, w = tile.padded(0, tile.parameters.get("fill", 0)), tile.padded(1)
    kind = _working_type(x, w, k)
    left = tile.view(0, x.astype(kind), [*both, *rows, *inner]).reshape(b, m, k)
    right = tile.view(1, w.astype(kind), [*both, *inner, *columns]).reshape(b, k, n)
    total = left @ right
    if x.dtype.kind != "f":
        total = total.astype(np.int64)
    order = [*both, *rows, *columns]
    values = total.reshape([size[name] for name in order])
    return _to_box(tile, order, values)


def _sparse_product(tile: Tile) -> Array:
    """The product with the weights that the streams of the second operand stand for."""
    segment = dict(tile.windows[0][1].terms)["cs"]
    kernel = [n for n in ("kh", "kw") if n in tile.dims]
    taps = prod(tile.dims[name][1] for name in kernel)
    lanes = tile.dims["cl"][1]
    decoded = sparse.decode(tile.padded(1), taps * segment, lanes)
    names = ["cb", "cl", "cs", *kernel, "cc"]
    weights = decoded.reshape([tile.dims[name][1] for name in names])
    window = tuple(Affine(((name, 1),)) for name in names)
    box = Box(tuple(tile.dims[n][0] for n in names), weights.shape, weights.shape)
    arrays, boxes, windows = list(tile.arrays), list(tile.boxes), list(tile.windows)
    arrays[1], boxes[1], windows[1] = weights, box, window
    return _product(replace(tile, arrays=arrays, boxes=boxes, windows=windows))


def _working_type(x: Array, w: Array, terms: int) -> np.dtype[Any]:
    if x.dtype.kind == "f":
        return np.dtype(np.float64)
    narrow = x.dtype.itemsize <= 2 and w.dtype.itemsize <= 2 and terms <= _EXACT_TERMS
    return np.dtype(np.float64 if narrow else np.int64)


def _with_bias(tile: Tile, total: Array) -> Array:
    if len(tile.arrays) < 3:
        return _narrow(tile, total)
    names = _written(tile)
    bias = tile.view(2, tile.padded(2), names)
    return _narrow(tile, total + _to_box(tile, names, bias.astype(total.dtype)))


def _narrow(tile: Tile, total: Array) -> Array:
    """Integers modulo 2**32 if they are 32 bits wide; floats rounded."""
    return fixed.wrap32(total) if tile.dtype == np.int32 else total.astype(tile.dtype)


def _fold(combine: np.ufunc, fill: Callable[[np.dtype[Any]], float], wide: bool) -> Any:
    def part(tile: Tile) -> Array:
        x = tile.padded(0, fill(tile.arrays[0].dtype))
        if wide:
            x = x.astype(np.float64 if x.dtype.kind == "f" else np.int64)
        written = _written(tile)
        inner = [n for n in tile.dims if n not in written and depends(tile.windows[0], n)]
        view = tile.view(0, x, [*written, *inner])
        axes = tuple(range(len(written), len(written) + len(inner)))
        return _to_box(tile, written, combine.reduce(view, axis=axes))

    return part


def _lowest(dtype: np.dtype[Any]) -> float:
    if dtype.kind == "b":
        return False
    return -np.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)


def _highest(dtype: np.dtype[Any]) -> float:
    if dtype.kind == "b":
        return True
    return np.inf if dtype.kind == "f" else int(np.iinfo(dtype).max)


def _complete(_: Tile, part: Array) -> Array:
    """Return a reduction that needs no further step once it is complete."""
    return part


def _concat(tile: Tile) -> Array:
    """Concatenate the operands' parts of the result's box; along other axes all are alike."""
    result = np.zeros(tile.result_size, tile.dtype)
    for array, box in zip(tile.arrays, tile.boxes, strict=False):
        starts = (before for before, _ in box.padding)
        result[tuple(slice(s, s + n) for s, n in zip(starts, array.shape, strict=True))] = array
    return result


def _place(place: reference.Place) -> Callable[[Tile], Array]:
    """The index of an extreme along the one dim that is reduced."""

    def part(tile: Tile) -> Array:
        written = _written(tile)
        (inner,) = [n for n in tile.dims if n not in written and depends(tile.windows[0], n)]
        view = tile.view(0, tile.padded(0), [*written, inner])
        last = bool(tile.parameters.get("last"))
        places = reference.place_of_extreme(view, -1, place, last=last)[..., 0]
        return _to_box(tile, written, places.astype(tile.dtype))

    return part


def _gather(tile: Tile) -> Array:
    """Along dim ``v``, which is whole, the element that each point's index names."""
    written, extent = _written(tile), tile.extents["v"]
    view = tile.view(0, tile.padded(0), [*written, "v"])
    places = tile.view(1, tile.padded(1), written).astype(np.int64)
    places = np.clip(np.where(places < 0, places + extent, places), 0, extent - 1)
    return _to_box(tile, written, np.take_along_axis(view, places[..., None], -1)[..., 0])


_COMBINE: Mapping[str, Callable[[Array, Array], Array]] = {
    "none": lambda _, new: new,
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def _scatter(tile: Tile) -> Array:
    """The updates, in order, whose indices name the row of a point."""
    written, (first, _) = _written(tile), tile.dims["d0"]
    result = tile.view(0, tile.padded(0), written).copy()
    updates = tile.view(2, tile.padded(2), ["u", *written])
    combine = _COMBINE[str(tile.parameters.get("reduction", "none"))]
    row = written.index("d0")
    for place, update in zip(tile.padded(1).astype(np.int64).tolist(), updates, strict=True):
        at = (place + tile.extents["d0"] if place < 0 else place) - first
        if 0 <= at < result.shape[row]:
            index = (slice(None),) * row + (at,)
            result[index] = combine(result[index], np.take(update, at, row))
    return _to_box(tile, written, result)


def _running(fold: Callable[..., Array]) -> Callable[[Tile], Array]:
    return lambda tile: fold(tile.arrays[0], axis=int(tile.parameters["axis"]), dtype=tile.dtype)


def _arg_sort(tile: Tile) -> Array:
    axis, x = int(tile.parameters["axis"]), tile.arrays[0]
    if not tile.parameters.get("descending"):
        return np.argsort(x, axis=axis, kind="stable").astype(np.int64)
    back = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - back, axis).astype(np.int64)


def _suppressed(tile: Tile) -> Array:
    """Boxes of each class in order of their scores, unless one before shares too large a part."""
    boxes, scores, threshold = tile.arrays
    one, other = boxes[..., :2], boxes[..., 2:]
    if tile.parameters.get("center"):
        one, other = one - other / 2, one + other / 2
    low, high = np.minimum(one, other), np.maximum(one, other)
    most = int(tile.parameters["most"])
    chosen = np.full((*scores.shape[:2], most), -1, np.int64)
    for n, c in np.ndindex(*scores.shape[:2]):
        found: list[int] = []
        for place in sorted(range(scores.shape[2]), key=lambda p: (-scores[n, c, p], p)):
            shared = [
                np.prod(
                    np.maximum(
                        np.minimum(high[n, k], high[n, place])
                        - np.maximum(low[n, k], low[n, place]),
                        0,
                    )
                )
                for k in found
            ]
            area = [np.prod(high[n, k] - low[n, k]) for k in (*found, place)]
            apart = all(
                s <= float(threshold) * (a + area[-1] - s)
                for s, a in zip(shared, area, strict=False)
            )
            if apart and len(found) < most and scores[n, c, place] > -np.inf:
                found.append(place)
        chosen[n, c, : len(found)] = found
    return chosen


def _average(tile: Tile, total: Array) -> Array:
    """The sums over the elements of each window that lie in the image or in counted padding."""
    values = tile.parameters
    counts = reference.pool_counts(
        tile.boxes[0].shape[2:],
        values["kernel"],
        values.get("strides", (1, 1)),
        values.get("pads", (0, 0, 0, 0)),
        values.get("dilations", (1, 1)),
        values.get("counted", (0, 0, 0, 0)),
    )
    rows, columns = (axis.interval(tile.dims) for axis in tile.windows[-1][2:])
    part = counts[rows[0] : rows[0] + rows[1], columns[0] : columns[0] + columns[1]]
    return _divided(tile, total, part)


def _mean(tile: Tile, total: Array) -> Array:
    reduced = [
        name
        for name in tile.extents
        if depends(tile.windows[0], name) and not depends(tile.windows[-1], name)
    ]
    return _divided(tile, total, prod(tile.extents[name] for name in reduced))


def _divided(tile: Tile, total: Array, count: Array | int) -> Array:
    if total.dtype.kind == "f":
        return (total / count).astype(tile.dtype)
    return fixed.rounded_divide(total, count).astype(tile.dtype)


def _lrn_settings(tile: Tile) -> tuple[int, float, float, float]:
    values = tile.parameters
    return (
        int(values["size"]),
        float(values.get("alpha", 1e-4)),
        float(values.get("beta", 0.75)),
        float(values.get("bias", 1.0)),
    )


def _lrn(tile: Tile) -> Array:
    arguments = _lrn_settings(tile)
    x = tile.arrays[0]
    if tile.is_fixed:
        whole = fixed.lrn(x, *arguments, tile.fractions[0], tile.result_fraction)
    else:
        whole = reference.lrn(x, *arguments)
    # The box brings the neighbouring channels with it; the result has none of them.
    first = tile.windows[-1][1].interval(tile.dims)[0] - tile.boxes[0].clamped[1][0]
    return whole[:, first : first + tile.result_size[1]]


def _lrn_gradient(tile: Tile) -> Array:
    (x, gradient), settings = tile.arrays, _lrn_settings(tile)
    if not tile.is_fixed:
        return lrn_gradient.in_floats(x, gradient, *settings)
    points = (tile.fractions[0], tile.fractions[1], tile.result_fraction)
    return lrn_gradient.in_fixed_point(x, gradient, *settings, points)


def _maximum_gradient(tile: Tile) -> Array:
    return reference.maximum_gradient(tile.arrays[0])


def _softmax(tile: Tile) -> Array:
    axis = int(tile.parameters.get("axis", -1))
    if tile.is_fixed:
        return fixed.softmax(tile.arrays[0], axis, tile.fractions[0], tile.result_fraction)
    return reference.softmax(tile.arrays[0], axis)


def _attention_weights(tile: Tile) -> Array:
    """Rows that are whole: the softmax of scores times the scale, plus the mask."""
    names = [axis.dims[0] if axis.dims else "" for axis in tile.windows[-1]]
    x, *mask = (tile.view(n, tile.padded(n), names) for n in range(len(tile.arrays)))
    scores = x * np.float32(tile.parameters.get("scale", 1.0))
    return reference.softmax(scores + mask[0] if mask else scores, -1)


def _layer_norm(tile: Tile) -> Array:
    """Rows that are whole; the caller's tile has every index of the last axis."""
    x, *others = tile.arrays
    if tile.boxes[0].size[-1] != tile.boxes[0].shape[-1]:
        raise refuse("tile-run", "a row is normalised before all of it is in the tile")
    epsilon = float(tile.parameters.get("epsilon", 1e-5))
    centred = bool(tile.parameters.get("centred", True))
    return reference.layer_norm(x, others, epsilon, centred=centred)


def _transforms(tile: Tile) -> winograd.Transforms:
    return winograd.TRANSFORMS[int(tile.parameters["tile"]), int(tile.parameters["taps"])]


def _winograd_input(tile: Tile) -> Array:
    """B^T d B of whole tiles of inputs, in float64, rounded once."""
    names, m = ["c", "n", "th", "tw"], _transforms(tile)
    d = tile.view(0, tile.padded(0).astype(np.float64), [*names, "kh", "kw"])
    points = (m.inputs @ d @ m.inputs.T).reshape(*d.shape[:4], -1).astype(tile.dtype)
    return _to_box(tile, [*names, "p"], points)


def _winograd_output(tile: Tile) -> Array:
    """A^T m A of whole tiles of products, in float64, rounded once; then the bias."""
    names, m = ["n", "c", "th", "tw"], _transforms(tile)
    view = tile.view(0, tile.padded(0).astype(np.float64), [*names, "p"])
    products = view.reshape(*view.shape[:4], m.inner, m.inner)
    values = (m.outputs @ products @ m.outputs.T).astype(tile.dtype)
    if len(tile.arrays) > 1:
        values += tile.view(1, tile.padded(1), [*names, "r", "s"])
    return _to_box(tile, [*names, "r", "s"], values)


@dataclass(frozen=True)
class Anchor:
    """An operation that reduces, as it is computed in parts.

    ``part`` gives the tile's own part over the result's box; ``combine`` joins two parts (None:
    the reduction must be whole); ``finish`` turns the complete reduction into the result.
    """

    part: Callable[[Tile], Array]
    combine: Callable[[Array, Array], Array] | None
    finish: Callable[[Tile, Array], Array]


_PRODUCT = Anchor(_product, np.add, _with_bias)
_SUM = _fold(np.add, lambda _: 0, wide=True)

ANCHORS: Mapping[str, Anchor] = {
    "conv": _PRODUCT,
    "depthwise_conv": _PRODUCT,
    "matmul": _PRODUCT,
    "sparse_product": Anchor(_sparse_product, np.add, _with_bias),
    "max_pool": Anchor(_fold(np.fmax, _lowest, wide=False), np.fmax, _complete),
    "average_pool": Anchor(_SUM, np.add, _average),
    "reduce_mean": Anchor(_SUM, np.add, _mean),
    "reduce_sum": Anchor(_SUM, np.add, _narrow),
    "lrn": Anchor(_lrn, None, _complete),
    "softmax": Anchor(_softmax, None, _complete),
    "attention_weights": Anchor(_attention_weights, None, _complete),
    "layer_norm": Anchor(_layer_norm, None, _complete),
    "lrn_gradient": Anchor(_lrn_gradient, None, _complete),
    "maximum_gradient": Anchor(_maximum_gradient, None, _complete),
    "reduce_product": Anchor(_fold(np.multiply, lambda _: 1, wide=True), np.multiply, _narrow),
    "reduce_max": Anchor(_fold(np.maximum, _lowest, wide=False), np.maximum, _complete),
    "reduce_min": Anchor(_fold(np.minimum, _highest, wide=False), np.minimum, _complete),
    "arg_max": Anchor(_place(np.argmax), None, _complete),
    "arg_min": Anchor(_place(np.argmin), None, _complete),
    "concat": Anchor(_concat, None, _complete),
    "gather": Anchor(_gather, None, _complete),
    "scatter": Anchor(_scatter, None, _complete),
    "running_sum": Anchor(_running(np.cumsum), None, _complete),
    "running_product": Anchor(_running(np.cumprod), None, _complete),
    "arg_sort": Anchor(_arg_sort, None, _complete),
    "non_max_suppression": Anchor(_suppressed, None, _complete),
    "winograd_input": Anchor(_winograd_input, None, _complete),
    "winograd_output": Anchor(_winograd_output, None, _complete),
}
"""The operations that reduce, by name; every other operation is a map."""


def apply_map(operation: str, tile: Tile) -> Array:
    """The result of a map on its tile; raises KeyError for an unknown operation."""
    names = _written(tile)
    views = [tile.view(i, tile.padded(i), names) for i in range(len(tile.arrays))]
    values = _map_values(operation, tile, views)
    return _to_box(tile, names, values).astype(tile.dtype, copy=False)


def _map_values(operation: str, tile: Tile, views: Sequence[Array]) -> Array:
    match operation:
        case "convert_layout" | "copy" | "identity" | "im2col":
            return views[0]
        case "quantise":
            return fixed.quantise(views[0], tile.result_fraction, tile.dtype)
        case "dequantise":
            return fixed.dequantise(views[0], tile.fractions[0])
        case "batch_norm":
            x, scale, shift, mean, variance = views
            factor = scale / np.sqrt(variance + float(tile.parameters.get("epsilon", 1e-5)))
            return x * factor + (shift - mean * factor)
        case _:
            return pointwise.evaluate(
                operation,
                views,
                fixed=tile.is_fixed,
                fractions=tile.fractions,
                result_fraction=tile.result_fraction,
                result_dtype=tile.dtype,
                attributes=tile.parameters,
            )

"""Moves of elements to shapes that a run computes: parts, repetition, padding, other shapes.

Each axis of the result has room for the most elements that it may have, and a gather brings each
its element; the places follow from the sizes by integer arithmetic of the run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from tilewright.frontends.onnx.decided import ended, gathered, ramp, room
from tilewright.frontends.onnx.lowering import Lowering, Value
from tilewright.frontends.onnx.operators.run_parts import number_at, numbers_at
from tilewright.frontends.onnx.tensors import array_of
from tilewright.ir import SSAValue
from tilewright.ir.types import dtype_of, shape_of

Number = SSAValue | int
"""An integer of a run, [1], or one that is known at import."""


def listed(at: Lowering, index: int, subject: str) -> list[Number]:
    """An operand that lists integers, of which a run computes some."""
    terms = numbers_at(at, at.tensor(index))
    if terms is None:
        raise at.refuse(f"its {subject} are not a short list of integers")
    return [
        term[1] if term[0] is None else number_at(at, at.tensor(index), n)
        for n, term in enumerate(terms)
    ]


def _value(at: Lowering, number: Number) -> SSAValue:
    """A number as a value of the network, [1]."""
    if isinstance(number, int):
        return at.weight(np.array([number], np.int64), f"{at.node.name}.number")
    return number


def slice_to_size(at: Lowering) -> Value:
    """A Slice of which a run computes the ends of axes, and with them sizes."""
    sizes, x = at.shape(0), at.tensor(0)
    starts, ends = listed(at, 1, "starts"), listed(at, 2, "ends")
    axes = at.integers_at(3, "axes") or tuple(range(len(starts)))
    steps = at.integers_at(4, "steps") or (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or not all(steps):
        raise at.refuse("starts, ends, axes and steps differ in number, or a step is 0")
    open_axes = [
        n
        for n in range(len(axes))
        if not isinstance(starts[n], int) or not isinstance(ends[n], int)
    ]
    for n, (start, end, step) in enumerate(zip(starts, ends, steps, strict=True)):
        axis = at.axis(axes[n], len(sizes))
        if isinstance(start, int) and isinstance(end, int):
            first, stop, by = slice(start, end, step).indices(sizes[axis])
            places = np.arange(first, stop, by)
            if not places.size:
                raise at.misfit("its part is empty")
            x = at.emit("gather", x, at.weight(places, f"{at.node.name}.places"), axis=axis)
            continue
        low, high = (0, sizes[axis]) if step > 0 else (-1, sizes[axis] - 1)
        begin, stop = (_cut(at, _value(at, each), sizes[axis], low, high) for each in (start, end))
        if step < 0:
            begin, stop = at.apply("min", begin, sizes[axis] - 1), stop
        across = at.emit("sub", stop, begin) if step > 0 else at.emit("sub", begin, stop)
        count = at.apply(
            "div", at.apply("max", at.apply("add", across, abs(step) - 1), 0), abs(step)
        )
        most = -(-sizes[axis] // abs(step))
        name, extent = room(at, axis if len(open_axes) > 1 else None, most=most)
        places = at.emit("add", at.apply("mul", ramp(at, extent), step), begin)
        x = ended(at, gathered(at, x, places, axis), axis, name, count)
    return x


def _cut(at: Lowering, place: SSAValue, extent: int, low: int, high: int) -> SSAValue:
    """A place counted from the end where it is negative, and cut to what there is."""
    wrapped = at.emit("select", at.apply("less", place, 0), at.apply("add", place, extent), place)
    return at.apply("min", at.apply("max", wrapped, low), high)


def tile_of_run(at: Lowering) -> Value:
    """The tensor repeated along its axes, how often a run computes."""
    x, shape = at.tensor(0), at.shape(0)
    repeats = listed(at, 1, "repeats")
    if len(repeats) != len(shape):
        raise at.refuse(f"repeats do not give a number for each axis of {list(shape)}")
    several = sum(not isinstance(each, int) for each in repeats) > 1
    for axis, times in enumerate(repeats):
        if isinstance(times, int):
            places = np.tile(np.arange(shape[axis]), times)
            if not places.size:
                raise at.misfit("a number of repeats is not positive")
            if times > 1:
                x = at.emit("gather", x, at.weight(places, f"{at.node.name}.places"), axis=axis)
            continue
        name, extent = room(at, axis if several else None, most=None)
        count = at.apply("mul", times, shape[axis])
        places = at.apply("mod", ramp(at, extent), shape[axis])
        x = ended(at, at.emit("gather", x, places, axis=axis), axis, name, count)
    return x


def expand_of_run(at: Lowering) -> Value:
    """Broadcasting to a shape that a run computes."""
    target = listed(at, 1, "sizes")
    return _spread(at, at.tensor(0), target)


def constant_of_run_shape(at: Lowering) -> Value:
    """One value in a shape that a run computes."""
    stated = at.attributes.get("value")
    array = array_of(stated) if isinstance(stated, TensorProto) else np.zeros(1, np.float32)
    value = at.weight(array.reshape(()), f"{at.node.name}.value")
    return _spread(at, value, listed(at, 0, "sizes"))


def _spread(at: Lowering, x: SSAValue, target: Sequence[Number]) -> SSAValue:
    sizes = shape_of(x)
    rank = max(len(sizes), len(target))
    sizes = (1,) * (rank - len(sizes)) + sizes
    target = [1] * (rank - len(target)) + list(target)
    x = at.reshape(x, sizes)
    several = sum(not isinstance(t, int) and s == 1 for s, t in zip(sizes, target, strict=True)) > 1
    for axis, wanted in enumerate(target):
        if sizes[axis] != 1 or wanted == 1:
            if isinstance(wanted, int) and wanted not in (1, sizes[axis]):
                raise at.misfit(f"{list(sizes)} does not broadcast to {wanted} at axis {axis}")
            continue
        if isinstance(wanted, int):
            zeros = at.weight(np.zeros(wanted, np.int64), f"{at.node.name}.zeros")
            x = at.emit("gather", x, zeros, axis=axis)
            continue
        name, extent = room(at, axis if several else None, most=None)
        zeros = at.apply("mul", ramp(at, extent), 0)
        x = ended(at, at.emit("gather", x, zeros, axis=axis), axis, name, wanted)
    return x


def pad_of_run(at: Lowering) -> Value:
    """Elements around a tensor, of which a run computes the numbers; negative ones cut."""
    sizes, rank, x = at.shape(0), len(at.shape(0)), at.tensor(0)
    pads, axes = listed(at, 1, "pads"), at.integers_at(3, "axes")
    places = list(range(rank)) if axes is None else [at.axis(axis, rank) for axis in axes]
    mode, count = at.text("mode", "constant"), len(places)
    if len(pads) != 2 * count or mode not in ("constant", "edge"):
        raise at.refuse(f"mode {mode!r} with pads that a run computes is not taken")
    pairs = list(zip(places, pads[:count], pads[count:], strict=True))
    grown = [axis for axis, *pair in pairs if any(pad != 0 for pad in pair)]
    value = at.tensor(2) if at.has(2) else at.made(0, x, "value")
    value = at.reshape(value, ())
    for axis, before, after in pairs:
        if axis not in grown:
            continue
        one, other = _value(at, before), _value(at, after)
        size = at.apply("add", at.emit("add", one, other), sizes[axis])
        name, extent = room(at, axis if len(grown) > 1 else None, most=None)
        index = at.emit("sub", ramp(at, extent), one)
        x = gathered(at, x, index, axis)
        if mode == "constant":
            shape = [-1 if n == axis else 1 for n in range(rank)]
            low = at.apply("less_equal", at.made(0, index, "first"), index)
            inside = at.emit("bit_and", low, at.apply("less", index, sizes[axis]))
            wide = tuple(extent if n < 0 else n for n in shape)
            x = at.emit("select", at.reshape(inside, wide), x, value)
        x = ended(at, x, axis, name, size)
    return x


def reshape_of_run(at: Lowering) -> Value:
    """The same elements in a shape that a run computes."""
    old, wanted = at.shape(0), listed(at, 1, "sizes")
    total = math.prod(old)
    keep = not at.integer("allowzero")
    counts: list[Number] = [
        old[n] if keep and size == 0 and n < len(old) else size for n, size in enumerate(wanted)
    ]
    known = math.prod(size for size in counts if isinstance(size, int) and size > 0)
    free = [n for n, size in enumerate(counts) if not isinstance(size, int) or size < 0]
    if not known or total % known:
        raise at.misfit(f"{list(old)} cannot be reshaped to {known} by what a run computes")
    # A size that is not known may be -1 in the run as well: the rest.
    values = [_value(at, counts[n]) for n in free]
    if keep:
        values = [
            v
            if n >= len(old)
            else at.emit("select", at.apply("equal", v, 0), at.made(old[n], v), v)
            for n, v in zip(free, values, strict=True)
        ]
    stated = [at.apply("max", value, 1) for value in values]
    product = stated[0]
    for value in stated[1:]:
        product = at.emit("mul", product, value)
    rest = at.emit("div", at.made(total // known, product, "rest"), product)
    sizes = {
        n: at.emit("select", at.apply("less", value, 0), rest, value)
        for n, value in zip(free, values, strict=True)
    }
    most = total // known if len(free) == 1 else None
    rooms = {n: room(at, n if len(free) > 1 else None, most=most) for n in free}
    extents = [rooms[n][1] if n in rooms else size for n, size in enumerate(counts)]
    places: SSAValue | None = None
    stride = at.weight(np.ones(1, np.int64), f"{at.node.name}.one")
    rank = len(counts)
    for n in reversed(range(rank)):
        extent = extents[n]
        assert isinstance(extent, int)
        along = at.emit("mul", ramp(at, extent, rank, n), at.reshape(stride, (1,) * rank))
        places = along if places is None else at.emit("add", places, along)
        stride = at.emit("mul", stride, sizes[n] if n in sizes else _value(at, counts[n]))
    if places is None:
        raise at.misfit("its shape has no axes")
    x = gathered(at, at.reshape(at.tensor(0), (total,)), places, 0)
    for n, (name, _) in rooms.items():
        x = ended(at, x, n, name, sizes[n])
    return x


def resize_of_run(at: Lowering, axes: Sequence[int], *, scales: bool) -> Value:
    """Resize to sizes, or by scales, that a run computes, of modes nearest and linear.

    Along each axis linear mode is a product with a matrix of weights that the run computes.
    """
    shape, x = at.shape(0), at.tensor(0)
    rank, mode = len(shape), at.text("mode", "nearest")
    way = at.text("coordinate_transformation_mode", "half_pixel")
    simple = at.text("keep_aspect_ratio_policy", "stretch") == "stretch"
    if (
        mode not in ("nearest", "linear")
        or way not in _WAYS
        or at.integer("antialias")
        or not simple
    ):
        raise at.misfit(
            f"its sizes are computed at run time, which mode {mode!r} ({way}) does not take"
        )
    asked = at.tensor(2 if scales else 3)
    if shape_of(asked) != (len(axes),):
        raise at.misfit("its sizes do not fit its axes")
    changed = [axis for axis in axes if axis >= rank - 2] if rank == 4 and len(axes) == 4 else axes
    for axis in sorted(changed, reverse=True):  # What ends early is one axis of a product.
        number = at.emit(
            "slice",
            asked,
            starts=[axes.index(axis)],
            ends=[axes.index(axis) + 1],
            axes=(0,),
            steps=[1],
        )
        wide = at.cast(number, np.float64)
        extent = shape[axis]
        size = (
            at.cast(at.emit("floor", at.apply("mul", wide, extent)), np.int64) if scales else number
        )
        scale = wide if scales else at.apply("div", wide, extent)
        name, most = room(at, axis if len(changed) > 1 else None, most=None)
        index = at.cast(ramp(at, most), np.float64)
        last = at.apply("sub", at.cast(size, np.float64), 1)
        place = _WAYS[way](at, index, scale, last, extent)
        if mode == "nearest":
            x = ended(at, gathered(at, x, _nearest(at, place), axis), axis, name, size)
            continue
        place = at.apply("min", at.apply("max", place, 0), extent - 1)
        columns = at.weight(np.arange(extent, dtype=np.float64)[None], f"{at.node.name}.columns")
        apart = at.emit("abs", at.emit("sub", at.reshape(place, (most, 1)), columns))
        weights = at.apply("max", at.emit("sub", at.made(1, apart), apart), 0)
        x = ended(at, _product(at, x, axis, weights), axis, name, size)
    return x


def _product(at: Lowering, x: SSAValue, axis: int, weights: SSAValue) -> SSAValue:
    """The product of a matrix [out, in] with an axis of floats."""
    shape, dtype = shape_of(x), dtype_of(x)
    if dtype.kind != "f":
        raise at.misfit("its sizes are computed at run time, and its elements are no floats")
    before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    left = at.reshape(at.cast(weights, dtype), (1, *shape_of(weights)))
    result = at.emit("matmul", left, at.reshape(x, (before, shape[axis], after)))
    return at.reshape(result, (*shape[:axis], shape_of(weights)[0], *shape[axis + 1 :]))


def _nearest(at: Lowering, place: SSAValue) -> SSAValue:
    match at.text("nearest_mode", "round_prefer_floor"):
        case "round_prefer_floor":
            place = at.emit("ceil", at.apply("sub", place, 0.5))
        case "round_prefer_ceil":
            place = at.emit("floor", at.apply("add", place, 0.5))
        case "floor":
            place = at.emit("floor", place)
        case "ceil":
            place = at.emit("ceil", place)
        case other:
            raise at.refuse(f"nearest_mode {other!r} is not known")
    return at.cast(place, np.int64)


def _half_pixel(
    at: Lowering, index: SSAValue, scale: SSAValue, last: SSAValue, extent: int
) -> SSAValue:
    return at.apply("sub", at.emit("div", at.apply("add", index, 0.5), scale), 0.5)


def _asymmetric(
    at: Lowering, index: SSAValue, scale: SSAValue, last: SSAValue, extent: int
) -> SSAValue:
    return at.emit("div", index, scale)


def _align_corners(
    at: Lowering, index: SSAValue, scale: SSAValue, last: SSAValue, extent: int
) -> SSAValue:
    """Ends lie upon ends; one element is the first."""
    return at.emit("div", at.apply("mul", index, extent - 1), at.apply("max", last, 1))


def _torch_half_pixel(
    at: Lowering, index: SSAValue, scale: SSAValue, last: SSAValue, extent: int
) -> SSAValue:
    place = _half_pixel(at, index, scale, last, extent)
    return at.emit("select", at.apply("less", last, 1), at.made(0, place), place)


_WAYS = {
    "half_pixel": _half_pixel,
    "asymmetric": _asymmetric,
    "align_corners": _align_corners,
    "pytorch_half_pixel": _torch_half_pixel,
}
"""The coordinate in the operand of each index of a result, float64."""

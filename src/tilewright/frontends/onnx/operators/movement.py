"""Operators that move elements: shapes, order, parts, and padding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from tilewright.frontends.moves import broadcast, cut, padded, stretch
from tilewright.frontends.onnx.lowering import Lowering, Value, dtype_of
from tilewright.frontends.onnx.operators.run_moves import (
    expand_of_run,
    pad_of_run,
    reshape_of_run,
    slice_to_size,
    tile_of_run,
)
from tilewright.frontends.onnx.operators.run_parts import slice_of_run
from tilewright.frontends.onnx.tensors import DTYPES, Constant
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of
from tilewright.memory.alignment import ceil_div


def shape(at: Lowering) -> Value:
    """The shape, which is known at import; operator set 15 added a range of axes."""
    sizes = at.shape(0)
    start, end = at.integer("start"), at.integer("end", len(sizes))
    return Constant(np.array(sizes[slice(start, end)], np.int64), at.node.outputs[0])


def eye_like(at: Lowering) -> Value:
    """Ones on a diagonal of a matrix of the operand's shape, which is known at import."""
    sizes, kind = at.shape(0), at.integer("dtype")
    dtype = DTYPES.get(kind) if kind else at.dtype(0)
    if len(sizes) != 2 or dtype is None or math.prod(sizes) > 2**24:
        raise at.misfit(f"a matrix of shape {list(sizes)} is not supported")
    return Constant(np.eye(*sizes, k=at.integer("k")).astype(dtype), at.node.outputs[0])


def size(at: Lowering) -> Value:
    """The number of elements, which is known at import."""
    return Constant(np.array(math.prod(at.shape(0)), np.int64), at.node.outputs[0])


def reshape(at: Lowering) -> Value:
    """Another shape of the same elements: 0 keeps an axis (unless allowzero), -1 is worked out."""
    if at.version >= 5 and at.constant(1) is None:
        return reshape_of_run(at)
    sizes = at.integers_at(1, "sizes")
    if sizes is None:
        raise at.refuse("its shape is missing")
    old, new = at.shape(0), list(sizes)
    for index, extent in enumerate(new):
        if extent == 0 and not at.integer("allowzero"):
            if index >= len(old):
                raise at.refuse(f"size 0 at {index} keeps an axis that {list(old)} lacks")
            new[index] = old[index]
    if new.count(-1) > 1 or any(extent < -1 for extent in new):
        raise at.refuse(f"{list(sizes)} is not a shape")
    if -1 in new:
        rest = math.prod(extent for extent in new if extent != -1)
        if rest == 0 or math.prod(old) % rest:
            raise at.misfit(f"{list(old)} cannot be reshaped to {list(sizes)}")
        new[new.index(-1)] = math.prod(old) // rest
    return at.reshape(at.tensor(0), new)


def flatten(at: Lowering) -> Value:
    """Two axes: those before ``axis`` as one, and the others."""
    sizes = at.shape(0)
    axis = at.integer("axis", 1)
    if not -len(sizes) <= axis <= len(sizes):
        raise at.refuse(f"axis {axis} is outside a tensor of rank {len(sizes)}")
    axis = axis + len(sizes) if axis < 0 else axis
    return at.reshape(at.tensor(0), (math.prod(sizes[:axis]), math.prod(sizes[axis:])))


def _axes(at: Lowering) -> tuple[int, ...] | None:
    """Axes: an attribute before operator set 13, an operand since."""
    return at.integers_at(1, "axes") if at.version >= 13 else at.integers("axes")


def squeeze(at: Lowering) -> Value:
    """Without the axes, which have extent 1; without all such axes if none are named."""
    sizes, axes = at.shape(0), _axes(at)
    if axes is None:
        return at.reshape(at.tensor(0), [extent for extent in sizes if extent != 1])
    gone = {at.axis(axis, len(sizes)) for axis in axes}
    if any(sizes[axis] != 1 for axis in gone):
        raise at.misfit(f"axes {sorted(gone)} of {list(sizes)} are not all 1")
    return at.reshape(at.tensor(0), [e for axis, e in enumerate(sizes) if axis not in gone])


def unsqueeze(at: Lowering) -> Value:
    """With new axes of extent 1 at the places named, counted in the result."""
    sizes, axes = list(at.shape(0)), _axes(at)
    if axes is None:
        raise at.refuse("its axes are missing")
    rank = len(sizes) + len(axes)
    places = sorted({at.axis(axis, rank) for axis in axes})
    if len(places) != len(axes):
        raise at.refuse(f"axes {list(axes)} name an axis twice")
    for place in places:
        sizes.insert(place, 1)
    return at.reshape(at.tensor(0), sizes)


def transpose(at: Lowering) -> Value:
    """The axes in another order, reversed if none is given."""
    rank = len(at.shape(0))
    order = at.integers("perm") or tuple(reversed(range(rank)))
    if sorted(order) != list(range(rank)):
        raise at.refuse(f"perm {list(order)} is not an order of {rank} axes")
    if list(order) == list(range(rank)):
        return at.tensor(0)
    return at.emit("transpose", at.tensor(0), permutation=list(order))


def concat(at: Lowering) -> Value:
    """Operands one after another along an axis; empty ones drop out."""
    rank = len(at.shape(0))
    axis = at.axis(at.integer("axis"), rank)
    kept = [index for index in range(len(at.operands)) if math.prod(at.shape(index))]
    if not kept:
        raise at.misfit("all its inputs are empty")
    parts = [at.tensor(index) for index in kept]
    return parts[0] if len(parts) == 1 else at.emit("concat", *parts, axis=axis)


def part(at: Lowering, value: SSAValue, ranges: dict[int, tuple[int, int, int]]) -> Value:
    """The part of a value that lies in [start, end) by step of some axes; it may be empty."""
    shape = list(shape_of(value))
    for axis, (start, end, step) in ranges.items():
        stop = end if end >= 0 else (None if end < -shape[axis] else end)
        shape[axis] = len(range(*slice(start, stop, step).indices(shape[axis])))
    if 0 in shape:
        return Constant(np.zeros(shape, dtype_of(value)), f"{at.node.name}.nothing")
    return cut(at, value, ranges)


def slice_(at: Lowering) -> Value:
    """A strided part: bounds are attributes before operator set 10, operands since."""
    computed = slice_of_run(at)
    if computed is not None:
        return computed
    sizes = at.shape(0)
    if at.version >= 10 and (at.constant(1) is None or at.constant(2) is None):
        return slice_to_size(at)
    if at.version < 10:
        starts, ends, axes = (at.integers(name) for name in ("starts", "ends", "axes"))
        steps = None
    else:
        starts, ends = at.integers_at(1, "starts"), at.integers_at(2, "ends")
        axes, steps = at.integers_at(3, "axes"), at.integers_at(4, "steps")
    starts, ends = starts or (), ends or ()
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise at.refuse("starts, ends, axes and steps differ in number")
    ranges: dict[int, tuple[int, int, int]] = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = at.axis(axis, len(sizes))
        if step == 0:
            raise at.refuse("a step is 0")
        if axis in ranges:
            raise at.refuse(f"axis {axis} is named twice")
        first, stop, step = slice(start, end, step).indices(sizes[axis])
        # Before the first element is -1 to Python; to the graph that is the last element.
        ranges[axis] = (first, stop if stop >= 0 else -sizes[axis] - 1, step)
    return part(at, at.tensor(0), ranges)


def split(at: Lowering) -> Sequence[Value]:
    """Parts along an axis, as slices: sizes are given, or the parts are equal but the last."""
    sizes, parts = at.shape(0), len(at.node.outputs)
    axis = at.axis(at.integer("axis"), len(sizes))
    widths = at.integers_at(1, "sizes") if at.version >= 13 else at.integers("split")
    if widths is None:
        if at.version >= 18 and at.integer("num_outputs", parts) != parts:
            raise at.refuse(f"num_outputs is not {parts}, the number of its outputs")
        width = ceil_div(sizes[axis], parts)
        if at.version < 18 and width * parts != sizes[axis]:
            raise at.refuse(f"{sizes[axis]} does not split into {parts} equal parts")
        widths = tuple(max(0, min(width, sizes[axis] - i * width)) for i in range(parts))
    if len(widths) != parts or sum(widths) != sizes[axis] or min(widths) < 0:
        raise at.refuse(f"sizes {list(widths)} do not split {sizes[axis]} into {parts} parts")
    x, start, results = at.tensor(0), 0, list[Value]()
    for width in widths:
        results.append(part(at, x, {axis: (start, start + width, 1)}))
        start += width
    return results


MAX_INDICES = 256
"""Constant indices of a Gather that becomes slices."""

MAX_RUNS = 16
"""Slices that a Gather becomes at most."""


def gather_constant(at: Lowering, axis: int) -> SSAValue | None:
    """Constant indices along an axis as slices, one for each run, joined; None if too many."""
    sizes, index = at.shape(0), at.constant(1)
    if index is None or index.dtype.kind not in "iu" or not 1 <= index.size <= MAX_INDICES:
        return None
    places = [at.axis(int(i), sizes[axis], "index") for i in index.reshape(-1)]
    runs: list[tuple[int, int]] = []
    for place in places:
        if runs and runs[-1][1] == place:
            runs[-1] = (runs[-1][0], place + 1)
        else:
            runs.append((place, place + 1))
    if len(runs) > MAX_RUNS:
        return None
    # Whole cuts, too: networks of size 1 and of others are the same.
    parts = [stretch(at, at.tensor(0), axis, *run) for run in runs]
    joined = parts[0] if len(parts) == 1 else at.emit("concat", *parts, axis=axis)
    return at.reshape(joined, (*sizes[:axis], *index.shape, *sizes[axis + 1 :]))


def expand(at: Lowering) -> Value:
    """Broadcasting to a shape."""
    if at.constant(1) is None:
        return expand_of_run(at)
    target = at.integers_at(1, "sizes")
    if target is None:
        raise at.refuse("its shape is missing")
    sizes = at.shape(0)
    rank = max(len(sizes), len(target))
    have, want = (1,) * (rank - len(sizes)) + sizes, (1,) * (rank - len(target)) + target
    if any(h != w and 1 not in (h, w) for h, w in zip(have, want, strict=True)):
        raise at.misfit(f"{list(sizes)} does not broadcast to {list(target)}")
    wide = [h if w == 1 else w for h, w in zip(have, want, strict=True)]
    return broadcast(at, at.tensor(0), wide)


def tile(at: Lowering) -> Value:
    """The tensor repeated along its axes."""
    if at.constant(1) is None:
        return tile_of_run(at)
    repeats, shape = at.integers_at(1, "repeats"), at.shape(0)
    if repeats is None or len(repeats) != len(shape) or any(count < 1 for count in repeats):
        raise at.refuse(f"repeats do not give one positive number for each axis of {list(shape)}")
    x = at.tensor(0)
    for axis, count in enumerate(repeats):
        if count == 1:
            continue
        sizes = shape_of(x)
        x = at.reshape(x, (math.prod(sizes[:axis]), 1, math.prod(sizes[axis:])))
        x = broadcast(at, x, (math.prod(sizes[:axis]), count, math.prod(sizes[axis:])))
        x = at.reshape(x, (*sizes[:axis], count * sizes[axis], *sizes[axis + 1 :]))
    return x


def depth_to_space(at: Lowering) -> Value:
    """Blocks of channels become blocks of pixels."""
    shape, block = at.shape(0), at.integer("blocksize")
    if len(shape) != 4 or block < 1 or shape[1] % (block * block):
        raise at.misfit(f"{list(shape)} has no blocks of {block}")
    n, c, h, w = shape
    mode = at.text("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise at.refuse(f"mode {mode!r} is not known")
    inner = c // (block * block)
    if mode == "DCR":
        x = at.reshape(at.tensor(0), (n, block, block, inner, h, w))
        x = at.transpose(x, (0, 3, 4, 1, 5, 2))
    else:
        x = at.reshape(at.tensor(0), (n, inner, block, block, h, w))
        x = at.transpose(x, (0, 1, 4, 2, 5, 3))
    return at.reshape(x, (n, inner, h * block, w * block))


def space_to_depth(at: Lowering) -> Value:
    """Blocks of pixels become blocks of channels."""
    shape, block = at.shape(0), at.integer("blocksize")
    if len(shape) != 4 or block < 1 or shape[2] % block or shape[3] % block:
        raise at.misfit(f"{list(shape)} has no blocks of {block}")
    n, c, h, w = shape
    x = at.reshape(at.tensor(0), (n, c, h // block, block, w // block, block))
    if at.text("mode", "DCR") == "CRD":
        x = at.transpose(x, (0, 1, 3, 5, 2, 4))
    else:
        x = at.transpose(x, (0, 3, 5, 1, 2, 4))
    return at.reshape(x, (n, c * block * block, h // block, w // block))


def pad(at: Lowering) -> Value:
    """Elements around a tensor; negative pads cut. Attributes before operator set 11."""
    sizes = at.shape(0)
    rank, x_dtype = len(sizes), at.dtype(0)
    if at.version < 11:
        pads, value, axes = at.integers("pads"), at.number("value"), None
    else:
        if at.constant(1) is None:
            return pad_of_run(at)
        pads, value = at.integers_at(1, "pads"), at.scalar_at(2, "constant value") or 0.0
        axes = at.integers_at(3, "axes")
    places = range(rank) if axes is None else [at.axis(axis, rank) for axis in axes]
    count = len(places)
    if pads is None or len(pads) != 2 * count or len(set(places)) != count:
        raise at.refuse(f"its pads are not {2 * count} sizes")
    around = dict(zip(places, zip(pads[:count], pads[count:], strict=True), strict=True))
    if not any(pads):
        return at.tensor(0)
    mode = at.text("mode", "constant")
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise at.refuse(f"mode {mode!r} is not known")
    if mode == "constant":
        boolean = x_dtype.kind == "b"
        plain = at.cast(at.tensor(0), np.int8) if boolean else at.tensor(0)
        value = float(bool(value)) if boolean else float(value)
        return at.cast(padded(at, plain, around, value), x_dtype)
    x = padded(at, at.tensor(0), {i: (min(a, 0), min(b, 0)) for i, (a, b) in around.items()})
    grown = {i: (max(a, 0), max(b, 0)) for i, (a, b) in around.items()}
    at.check_size([e + sum(grown.get(i, (0,))) for i, e in enumerate(shape_of(x))])
    for axis, (first, last) in sorted(grown.items()):
        if first or last:
            ramp = np.arange(shape_of(x)[axis])
            if mode == "reflect" and ramp.size == 1:
                raise at.misfit("an axis of one element has no reflection")
            places = np.pad(ramp, (first, last), mode=_MODES[mode])
            indices = at.weight(places.astype(np.int64), f"{at.node.name}.places")
            x = at.emit("gather", x, indices, axis=axis)
    return x


_MODES: dict[str, Literal["edge", "reflect", "wrap"]] = {
    "edge": "edge",
    "reflect": "reflect",
    "wrap": "wrap",
}

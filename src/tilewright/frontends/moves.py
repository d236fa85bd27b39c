"""Moves of elements that several front-ends make: parts, padding, gaps, repetition, lookup."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tilewright.frontends.emitter import Emitter
from tilewright.frontends.limits import MAX_TABLE
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, shape_of
from tilewright.numerics.blocks import Blocks

BACKWARDS = -(2**62)
"""The end of a slice that runs backwards through the first element."""


def cut(at: Emitter, value: SSAValue, ranges: Mapping[int, tuple[int, int, int]]) -> SSAValue:
    """The part of a value that lies in [start, end) by step of some axes."""
    sizes = shape_of(value)
    kept = {axis: r for axis, r in ranges.items() if r != (0, sizes[axis], 1)}
    if not kept:
        return value
    axes = sorted(kept)
    return at.emit(
        "slice",
        value,
        starts=[kept[axis][0] for axis in axes],
        ends=[kept[axis][1] for axis in axes],
        steps=[kept[axis][2] for axis in axes],
        axes=tuple(axes),
    )


def stretch(at: Emitter, value: SSAValue, axis: int, start: int, end: int) -> SSAValue:
    """The part of a value that lies in [start, end) of an axis."""
    return at.emit("slice", value, starts=[start], ends=[end], axes=(axis,), steps=[1])


def element_at(at: Emitter, value: SSAValue, axis: int, index: int) -> SSAValue:
    """One index along an axis, which goes. An axis of one index is cut as others are, so that
    networks of size 1 and of others are the same."""
    shape = shape_of(value)
    part = stretch(at, value, axis, index, index + 1)
    return at.reshape(part, (*shape[:axis], *shape[axis + 1 :]))


def padded(
    at: Emitter, x: SSAValue, pads: Mapping[int, tuple[int, int]], value: float = 0.0
) -> SSAValue:
    """``value`` before and after some axes; negative pads cut."""
    sizes, rank = shape_of(x), len(shape_of(x))
    kept: dict[int, tuple[int, int, int]] = {}
    for axis, (first, last) in pads.items():
        start, end = max(0, -first), sizes[axis] - max(0, -last)
        if start >= end:
            raise at.misfit("its pads cut away everything")
        kept[axis] = (start, end, 1)
    x = cut(at, x, kept)
    grown = [0] * (2 * rank)
    for axis, (first, last) in pads.items():
        grown[axis], grown[rank + axis] = max(0, first), max(0, last)
    if not any(grown):
        return x
    at.check_size([s + a + b for s, a, b in zip(sizes, grown, grown[rank:], strict=False)])
    return at.emit("pad", x, pads=tuple(grown), mode="constant", value=value)


def spread(at: Emitter, x: SSAValue, axis: int, step: int, value: float = 0.0) -> SSAValue:
    """``step - 1`` elements of ``value`` between those along an axis."""
    sizes = shape_of(x)
    if step == 1 or sizes[axis] == 1:
        return x
    x = at.reshape(x, (*sizes[: axis + 1], 1, *sizes[axis + 1 :]))
    x = padded(at, x, {axis + 1: (0, step - 1)}, value)
    x = at.reshape(x, (*sizes[:axis], sizes[axis] * step, *sizes[axis + 1 :]))
    return cut(at, x, {axis: (0, (sizes[axis] - 1) * step + 1, 1)})


def reversed_along(at: Emitter, x: SSAValue, axis: int) -> SSAValue:
    """The elements along an axis from the last to the first."""
    if shape_of(x)[axis] == 1:
        return x
    return at.emit("slice", x, starts=[-1], ends=[BACKWARDS], axes=(axis,), steps=[-1])


def by_depth(
    at: Emitter,
    x: SSAValue,
    taps: int,
    step: int,
    apart: int,
    pads: tuple[int, int],
    convolve: Callable[[SSAValue], SSAValue],
) -> SSAValue:
    """A convolution over three axes by one of images, whose channels the taps along the depth
    become: each slice of the depth is stacked with those that its window reaches."""
    x = padded(at, x, {2: pads})
    n, c, whole, height, width = shape_of(x)
    depth = (whole - (taps - 1) * apart - 1) // step + 1
    slices = [
        at.reshape(
            cut(at, x, {2: (tap * apart, tap * apart + (depth - 1) * step + 1, step)}),
            (n, c, 1, depth, height, width),
        )
        for tap in range(taps)
    ]
    stack = slices[0] if taps == 1 else at.emit("concat", *slices, axis=2)
    image = at.transpose(stack, (0, 3, 1, 2, 4, 5))
    y = convolve(at.reshape(image, (n * depth, c * taps, height, width)))
    y = at.reshape(y, (n, depth, *shape_of(y)[1:]))
    return at.transpose(y, (0, 2, 1, 3, 4))


def broadcast(at: Emitter, x: SSAValue, shape: Sequence[int]) -> SSAValue:
    """A value repeated along its axes of extent 1: chosen against itself."""
    sizes = shape_of(x)
    x = at.reshape(x, (*(1,) * (len(shape) - len(sizes)), *sizes))
    # Conditions only along the axes that grow: the choice broadcasts the rest.
    grown = [extent if have == 1 else 1 for have, extent in zip(shape_of(x), shape, strict=True)]
    if math.prod(grown) == 1:
        return x
    if math.prod(grown) > MAX_TABLE or any(extent < 1 for extent in grown):
        raise at.refuse(
            f"{list(sizes)} is not expanded to {list(shape)}", code=f"{at.FAMILY}-too-large"
        )
    always = at.weight(np.ones(grown, np.bool_), f"{at.title}.always")
    return at.emit("select", always, x, x)


def block_product(at: Emitter, rounded: SSAValue, weight: Blocks) -> SSAValue:
    """Rounded rows by those of a matrix in blocks, whose groups are filled up."""
    operands = (at.weight(a, f"{at.title}.{n}") for a, n in named_parts(weight))
    result = at.emit("block_matmul", rounded, *operands, **weight.form)
    return cut(at, result, {len(shape_of(result)) - 1: (0, len(weight.codes), 1)})


def named_parts(weight: Blocks) -> Sequence[tuple[Array, str]]:
    """Codes and scales of a matrix in blocks as operations take them, with names."""
    return [*zip(weight.padded().packed(), ("codes", "scales"), strict=True)]


def number(at: Emitter, array: Array, name: str) -> SSAValue:
    """Integers made at import."""
    return at.weight(np.asarray(array, np.int64), f"{at.title}.{name}")


def ramps(at: Emitter, shape: Sequence[int], sizes: Sequence[int], axis: int) -> Array:
    """For every element of ``shape`` the place in ``sizes`` of its indices but that of an axis."""
    total = np.zeros(tuple(shape), np.int64)
    for i, extent in enumerate(shape):
        if i != axis:
            ramp = np.arange(extent) * math.prod(sizes[i + 1 :])
            total += ramp.reshape([-1 if j == i else 1 for j in range(len(shape))])
    if total.size > MAX_TABLE:
        raise at.refuse("it has too many indices", code=f"{at.FAMILY}-too-large")
    return total


def flat_places(at: Emitter, places: SSAValue, sizes: Sequence[int], axis: int) -> SSAValue:
    """One number for each place along an axis of a value of some sizes, whose elements lie flat."""
    along = at.apply("mul", places, math.prod(sizes[axis + 1 :]))
    table = ramps(at, shape_of(places), sizes, axis)
    return at.emit("add", along, number(at, table, "ramps"))


def elements_along(at: Emitter, x: SSAValue, places: SSAValue, axis: int) -> SSAValue:
    """The elements of x along an axis at computed places that are in range."""
    sizes = shape_of(x)
    flat = flat_places(at, places, sizes, axis)
    return at.emit("gather", at.reshape(x, (math.prod(sizes),)), flat, axis=0)

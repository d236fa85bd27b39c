"""Layers that rearrange: Concat, Slice, Split, Flatten, Reshape, Crop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tilewright.frontends.caffe.lowering import Lowering
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of


def concat(at: Lowering) -> Sequence[SSAValue]:
    """The bottoms joined along an axis."""
    if not at.values or len(at.layer.tops) != 1:
        raise at.refuse("it takes one bottom or more and one top")
    axis = _axis(at, at.settings("concat_param"), "concat_dim")
    return [at.emit("concat", *at.values, axis=axis) if len(at.values) > 1 else at.x]


def slice_(at: Lowering) -> Sequence[SSAValue]:
    """The bottom cut along an axis, at stated points or into equal parts."""
    tops = len(at.layer.tops)
    if len(at.values) != 1 or tops < 1:
        raise at.refuse("it takes one bottom and one top or more")
    settings = at.settings("slice_param")
    axis = _axis(at, settings, "slice_dim")
    extent, points = at.shape[axis], list(settings.slice_point)
    if not points:
        if extent % tops:
            raise at.refuse(f"{extent} along axis {axis} do not divide into {tops} parts")
        points = [extent // tops * index for index in range(1, tops)]
    if len(points) != tops - 1:
        raise at.refuse(f"{len(points)} slice points for {tops} tops")
    bounds = [0, *points, extent]
    if any(start >= end for start, end in pairwise(bounds)):
        raise at.refuse(f"the slice points {points} do not rise within {extent}")
    if tops == 1:
        return [at.x]
    return [
        at.emit("slice", at.x, starts=[start], ends=[end], axes=[axis])
        for start, end in pairwise(bounds)
    ]


def _axis(at: Lowering, settings: Any, legacy: str) -> int:
    """``axis``, or the field that was there before it."""
    if not settings.HasField(legacy):
        return at.axis(settings.axis, len(at.shape))
    if settings.HasField("axis"):
        raise at.refuse(f"it has axis and {legacy}; one of them is enough")
    return at.axis(getattr(settings, legacy), len(at.shape), legacy)


def split(at: Lowering) -> Sequence[SSAValue]:
    """The bottom, once for every top."""
    if len(at.values) != 1:
        raise at.refuse("it takes one bottom")
    return [at.x] * len(at.layer.tops)


def flatten(at: Lowering) -> SSAValue:
    """The axes from one to another as one axis."""
    settings, rank = at.settings("flatten_param"), len(at.shape)
    start = at.axis(settings.axis, rank)
    end = at.axis(settings.end_axis, rank, "end_axis")
    if end < start:
        raise at.refuse(f"end_axis {end} lies before axis {start}")
    merged = math.prod(at.shape[start : end + 1])
    return at.reshape(at.x, (*at.shape[:start], merged, *at.shape[end + 1 :]))


def reshape(at: Lowering) -> SSAValue:
    """Another shape for some of the axes: 0 keeps an axis, -1 takes what is left."""
    settings, rank = at.settings("reshape_param"), len(at.shape)
    # Here -1 is after the last axis.
    start = settings.axis if settings.axis >= 0 else rank + settings.axis + 1
    covered = settings.num_axes
    end = rank if covered == -1 else start + covered
    if not 0 <= start <= end <= rank or covered < -1:
        raise at.refuse(f"axis {settings.axis} and num_axes {covered} leave a blob of rank {rank}")
    old = at.shape[start:end]
    dims = list(settings.shape.dim)
    for index, dim in enumerate(dims):
        if dim == 0:
            if start + index >= rank:
                raise at.refuse(f"dimension {index} is 0, but there is no axis to keep")
            dims[index] = at.shape[start + index]
    if any(dim < -1 for dim in dims) or dims.count(-1) > 1:
        raise at.refuse(f"the shape {list(settings.shape.dim)} is not one")
    if -1 in dims:
        known = -math.prod(dims)
        if math.prod(old) % known:
            raise at.refuse(f"{list(old)} does not divide into {list(settings.shape.dim)}")
        dims[dims.index(-1)] = math.prod(old) // known
    return at.reshape(at.x, (*at.shape[:start], *dims, *at.shape[end:]))


def crop(at: Lowering) -> Sequence[SSAValue]:
    """The first bottom cut to the second one's shape from an axis on, at stated offsets."""
    at.needs(2)
    settings = at.settings("crop_param")
    rank, wanted = len(at.shape), shape_of(at.values[1])
    axis = at.axis(settings.axis, rank)
    count = rank - axis
    offsets = list(settings.offset) or [0]
    if len(wanted) != rank:
        raise at.misfit(f"its bottoms have ranks {rank} and {len(wanted)}")
    if len(offsets) not in (1, count):
        raise at.refuse(f"{len(offsets)} offsets for {count} axes")
    starts = offsets * count if len(offsets) == 1 else offsets
    ends = [start + size for start, size in zip(starts, wanted[axis:], strict=True)]
    if any(end > extent for end, extent in zip(ends, at.shape[axis:], strict=True)):
        raise at.misfit(f"{list(wanted[axis:])} at {starts} leaves {list(at.shape[axis:])}")
    if wanted[axis:] == at.shape[axis:]:
        return [at.x]
    return [at.emit("slice", at.x, starts=starts, ends=ends, axes=list(range(axis, rank)))]

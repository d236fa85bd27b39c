"""Elements chosen by indices: gathers, slices at computed places, sorting, the largest k."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from tilewright.frontends import moves
from tilewright.frontends.stablehlo.lowering import Lowering
from tilewright.frontends.stablehlo.operators.movement import joined, sliced
from tilewright.frontends.stablehlo.values import View
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of


def gather(at: Lowering) -> View:
    """Slices at places that indices name: whole along most axes, one element thick along others.

    These are embeddings, ``take``, ``take_along_axis`` and indexing; what is thicker is refused
    unless its place is constant.
    """
    x, indices = at.views
    numbers = at.dimensions("dimension_numbers")
    offsets, collapsed, named, batched, batches = (
        tuple(int(axis) for axis in numbers.get(name, ()))
        for name in (
            "offset_dims",
            "collapsed_slice_dims",
            "start_index_map",
            "operand_batching_dims",
            "start_indices_batching_dims",
        )
    )
    vector, sizes = int(numbers["index_vector_dim"]), at.integers("slice_sizes")
    if vector == indices.rank:
        indices = at.reshaped(indices, (*indices.shape, 1))
    indices = indices.transposed([*(i for i in range(indices.rank) if i != vector), vector])
    batches = tuple(axis - (axis > vector) for axis in batches)
    known = indices.array
    if known is not None and known.size == len(named) and not batched:
        return _one_slice(at, x, known.reshape(-1), named, sizes, collapsed)
    for axis, size in enumerate(sizes):
        if size != x.shape[axis] and size != 1:
            raise at.unsupported(
                f"slices {size} thick along axis {axis}, which has {x.shape[axis]}, at places "
                "that are computed"
            )
    # Along an axis from which nothing is named the first element is taken.
    x = sliced(
        at,
        x,
        {
            axis: (0, 1, 1)
            for axis, size in enumerate(sizes)
            if size == 1 and axis not in (*named, *batched)
        },
    )
    sought = [axis for axis in (*batched, *named) if sizes[axis] == 1]
    rest = [axis for axis in range(x.rank) if axis not in sought]
    places = _places(at, x, indices, batched, batches, named, sizes)
    flat = at.reshape(
        at.full(x, (*sought, *rest)),
        (math.prod(x.shape[a] for a in sought), *(x.shape[a] for a in rest)),
    )
    rows = at.emit("gather", flat, places, axis=0)
    lead = len(shape_of(places))
    # What the slices keep, one element thick or whole, in the operand's order.
    kept = [axis for axis in range(x.rank) if axis not in (*collapsed, *batched)]
    shape = (*shape_of(places), *(x.shape[a] if a in rest else 1 for a in kept))
    gathered = at.reshaped(View.of(rows), shape)
    targets = [i for i in range(len(shape)) if i not in offsets]
    places_of = [*targets, *offsets]
    if len(targets) != lead or len(places_of) != len(shape):
        raise at.refuse(f"offset_dims {list(offsets)} do not fit its result")
    return gathered.transposed([places_of.index(i) for i in range(len(shape))])


def _one_slice(
    at: Lowering,
    x: View,
    starts: Any,
    named: Sequence[int],
    sizes: Sequence[int],
    collapsed: Sequence[int],
) -> View:
    """A slice at a constant place, which is moved to lie inside."""
    first = dict(zip(named, (int(start) for start in starts), strict=True))
    ranges: dict[int, tuple[int, int, int]] = {}
    for axis, size in enumerate(sizes):
        start = min(max(first.get(axis, 0), 0), x.shape[axis] - size)
        ranges[axis] = (start, start + size, 1)
    part = sliced(at, x, ranges)
    kept = [axis for axis in range(x.rank) if axis not in collapsed]
    slice_ = at.placed(
        part, {axis: i for i, axis in enumerate(kept)}, [part.shape[axis] for axis in kept]
    )
    return at.reshaped(slice_, at.kind.shape)


def _places(
    at: Lowering,
    x: View,
    indices: View,
    batched: Sequence[int],
    batches: Sequence[int],
    named: Sequence[int],
    sizes: Sequence[int],
) -> SSAValue:
    """One number for each list of indices: its place in the axes that are sought, in range."""
    lead = indices.shape[:-1]
    sought = [axis for axis in (*batched, *named) if sizes[axis] == 1]
    total: View | None = None
    for axis in sought:
        step = math.prod(x.shape[a] for a in sought[sought.index(axis) + 1 :])
        if axis in batched:
            along = batches[list(batched).index(axis)]
            extents = [x.shape[axis] if i == along else 1 for i in range(len(lead))]
            ramp = (np.arange(x.shape[axis], dtype=np.int64) * step).reshape(extents)
            part = View(ramp, tuple(range(len(lead))), lead)
        else:
            number = list(named).index(axis)
            column = sliced(at, indices, {indices.rank - 1: (number, number + 1, 1)})
            column = at.reshaped(column, lead)
            part = _inside(at, column, x.shape[axis], step)
        total = part if total is None else at.pointwise("add", total, part)
    if total is None:
        raise at.unsupported("a gather by no index")
    return at.full(total)


def _inside(at: Lowering, column: View, extent: int, step: int) -> View:
    """Indices as int64, moved into the axis, times the size of a step along it."""
    known = column.known
    if known is not None:
        wide = np.clip(known.astype(np.int64), 0, extent - 1) * step
        return View(wide, tuple(range(column.rank)), column.shape)

    def place(x: SSAValue) -> SSAValue:
        wide = at.cast(x, np.int64)
        wide = at.apply("max", wide, 0)
        wide = at.apply("min", wide, extent - 1)
        return wide if step == 1 else at.apply("mul", wide, step)

    return at.map(place, column)


def dynamic_slice(at: Lowering) -> View:
    """A part of stated size; its start, where constant, makes a slice, else a gather per axis."""
    x, sizes = at.views[0], at.integers("slice_sizes")
    for axis, start in enumerate(at.views[1:]):
        size, extent = sizes[axis], x.shape[axis]
        if size == extent:
            continue
        number = start.number
        if number is not None:
            first = min(max(int(number), 0), extent - size)
            x = sliced(at, x, {axis: (first, first + size, 1)})
            continue
        x = at.filled(x, [axis])
        place = at.arranged(start, ())
        first_place = at.cast(place, np.int64)
        first_place = at.apply("min", at.apply("max", first_place, 0), extent - size)
        ramp = moves.number(at, np.arange(size), "ramp")
        core = at.emit(
            "gather",
            at.arranged(x, x.axes),
            at.emit("add", first_place, ramp),
            axis=x.axes.index(axis),
        )
        x = View(core, x.axes, tuple(size if i == axis else e for i, e in enumerate(x.shape)))
    return x


def dynamic_update_slice(at: Lowering) -> View:
    """The operand with a part replaced, at a constant place: what lies around it is joined on."""
    x, update, *starts = at.views
    numbers = [start.number for start in starts]
    if any(number is None for number in numbers):
        raise at.unsupported("an update at a place that is computed")
    places = [
        min(max(int(number), 0), x.shape[axis] - update.shape[axis])
        for axis, number in enumerate(numbers)
    ]
    return _updated(at, x, update, places, 0)


def _updated(at: Lowering, x: View, update: View, places: Sequence[int], axis: int) -> View:
    if axis == x.rank:
        return update
    start, size, extent = places[axis], update.shape[axis], x.shape[axis]
    if size == extent:
        return _updated(at, x, update, places, axis + 1)
    middle = sliced(at, x, {axis: (start, start + size, 1)})
    parts = [_updated(at, middle, update, places, axis + 1)]
    if start:
        parts.insert(0, sliced(at, x, {axis: (0, start, 1)}))
    if start + size < extent:
        parts.append(sliced(at, x, {axis: (start + size, extent, 1)}))
    return joined(at, parts, axis)


def top_k(at: Lowering) -> Sequence[View]:
    """The k largest elements along the last axis, in order, and where they lie."""
    inner = at.op.attributes.get("composite_attributes")
    named = cast("dict[str, Any]", inner) if isinstance(inner, dict) else at.op.attributes
    k, x = named.get("k"), at.views[0]
    if not isinstance(k, int) or x.rank < 1 or not 1 <= k <= x.shape[-1]:
        raise at.refuse("k is not a number from 1 to the extent of the last axis")
    if not named.get("largest", True):
        raise at.unsupported("the smallest elements")
    axis, core = x.rank - 1, at.full(x)
    order = at.emit("arg_sort", core, axis=axis, descending=True)
    order = moves.cut(at, order, {axis: (0, k, 1)})
    return [View.of(moves.elements_along(at, core, order, axis)), View.of(order)]


def sort(at: Lowering, by: int, *, descending: bool) -> Sequence[View]:
    """All operands in the order of one of them along an axis."""
    axis = at.integer("dimension")
    axis += at.views[0].rank if axis < 0 else 0
    order = at.emit("arg_sort", at.full(at.views[by]), axis=axis, descending=descending)
    ordered: list[View] = []
    for x in at.views:
        ramp = x.known
        counts = ramp is not None and x.extent(axis) == ramp.size == x.shape[axis]
        if ramp is not None and counts and np.array_equal(ramp.reshape(-1), np.arange(ramp.size)):
            ordered.append(View.of(at.cast(order, x.dtype)))
        else:
            ordered.append(View.of(moves.elements_along(at, at.full(x), order, axis)))
    return ordered

"""Operators whose results have sizes that data decide: what is kept, found, or counted.

A stable sort by whether an element is kept brings those that are to the front, in order; the
number of them is the size (frontends/onnx/decided.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.frontends.moves import element_at, elements_along
from tilewright.frontends.onnx.decided import ended, first, gathered, ramp, room
from tilewright.frontends.onnx.lowering import Lowering, Value
from tilewright.frontends.onnx.tensors import Constant
from tilewright.ir import SSAValue
from tilewright.ir.types import dtype_of, shape_of


def kept_first(at: Lowering, kept: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Indices of a list of booleans, those of the true ones first and in order, and the number of
    these."""
    order = at.emit("arg_sort", kept, axis=0, descending=True)
    count = at.emit("reduce_sum", at.cast(kept, np.int64), axes=(0,), keep_dims=False)
    return order, count


def _unequal(at: Lowering, value: SSAValue) -> SSAValue:
    """True where an element is not 0."""
    if dtype_of(value) == np.bool_:
        return value
    return at.emit("bit_not", at.apply("equal", value, 0))


def non_zero(at: Lowering) -> Value:
    """The indices of elements other than 0, a row for each axis."""
    shape = at.shape(0)
    if not shape:
        reason = "its operand has no axes, for which ONNX and ONNX Runtime give other shapes"
        raise at.refuse(reason, help="reshape it to one axis")
    count = math.prod(shape)
    name, most = room(at, most=count)
    order, found = kept_first(at, _unequal(at, at.reshape(at.tensor(0), (count,))))
    places = ended(at, first(at, order, 0, most), 0, name, found)
    rows: list[SSAValue] = []
    for axis in range(len(shape)):
        index = at.apply("div", places, math.prod(shape[axis + 1 :]))
        rows.append(at.reshape(at.apply("mod", index, shape[axis]), (1, most)))
    return rows[0] if len(rows) == 1 else at.emit("concat", *rows, axis=0)


def compress_of_run(at: Lowering) -> Value:
    """The parts along an axis where a condition is true that a run computes."""
    x, sizes = at.tensor(0), at.shape(0)
    if "axis" not in at.attributes:
        x, axis, sizes = at.reshape(x, (math.prod(sizes),)), 0, (math.prod(sizes),)
    else:
        axis = at.axis(at.integer("axis"), len(sizes))
    (asked,) = at.shape(1)
    if asked > sizes[axis]:
        raise at.misfit("its condition is longer than the axis")
    name, most = room(at, most=asked)
    order, found = kept_first(at, at.tensor(1))
    places = ended(at, first(at, order, 0, most), 0, name, found)
    return at.emit("gather", x, places, axis=axis)


def top_of_run(at: Lowering, axis: int) -> Sequence[Value]:
    """TopK of a number of elements that a run computes."""
    shape, x = at.shape(0), at.tensor(0)
    if math.prod(at.shape(1)) != 1:
        raise at.misfit("k is not one number")
    name, most = room(at, most=shape[axis])
    order = at.emit("arg_sort", x, axis=axis, descending=bool(at.integer("largest", 1)))
    count = at.apply("min", at.cast(at.tensor(1), np.int64), shape[axis])
    places = ended(at, first(at, order, axis, most), axis, name, count)
    return [elements_along(at, x, places, axis), places]


def non_max_suppression(at: Lowering) -> Value:
    """Batch, class and place of each box that is chosen, [number, 3]: by batch, class and score."""
    batch, count, _ = at.shape(0)
    classes = at.shape(1)[1]
    if at.shape(0) != (batch, count, 4) or at.shape(1) != (batch, classes, count):
        raise at.misfit(f"boxes {list(at.shape(0))} and scores {list(at.shape(1))} do not fit")
    rounds = min(int(at.scalar_at(2, "largest number of boxes") or 0), count)
    if rounds < 1:
        return Constant(np.zeros((0, 3), np.int64), at.node.outputs[0])
    name, most = room(at, most=batch * classes * rounds)
    scores = at.tensor(1)
    if at.has(4):
        above = at.emit("less", at.reshape(at.tensor(4), ()), scores)
        scores = at.emit("select", above, scores, at.made(-np.inf, scores, "none"))
    threshold = at.reshape(at.tensor(3), ()) if at.has(3) else at.made(0, scores, "threshold")
    center = bool(at.integer("center_point_box"))
    chosen = at.emit(
        "non_max_suppression", at.tensor(0), scores, threshold, most=rounds, center=center
    )
    chosen = at.reshape(chosen, (batch * classes * rounds,))
    kept = at.emit("bit_not", at.apply("less", chosen, 0))
    order, found = kept_first(at, kept)
    places = ended(at, first(at, order, 0, most), 0, name, found)
    columns = [
        at.apply("div", places, classes * rounds),
        at.apply("mod", at.apply("div", places, rounds), classes),
        at.emit("gather", chosen, places, axis=0),
    ]
    return at.emit("concat", *(at.reshape(column, (most, 1)) for column in columns), axis=1)


def range_of_run(at: Lowering) -> Value:
    """Numbers from a start to a limit by a step, of which a run computes some."""
    start, limit, step = (at.reshape(at.tensor(index), (1,)) for index in range(3))
    name, most = room(at, most=None)
    wide = [at.cast(value, np.float64) for value in (start, limit, step)]
    steps = at.emit("div", at.emit("sub", wide[1], wide[0]), wide[2])
    count = at.apply("max", at.cast(at.emit("ceil", steps), np.int64), 0)
    places = at.cast(ramp(at, most), dtype_of(start))
    result = at.emit("add", at.emit("mul", places, step), start)
    return ended(at, result, 0, name, count)


def unique(at: Lowering) -> Sequence[Value]:
    """The different elements: sorted, or in the order in which they first come; where they first
    come, which one each element is, and how often each comes."""
    x, axis = at.reshape(at.tensor(0), (math.prod(at.shape(0)),)), 0
    if "axis" in at.attributes:
        x, axis = at.tensor(0), at.axis(at.integer("axis"), len(at.shape(0)))
    count = shape_of(x)[axis]
    name, most = room(at, most=count)
    order, same = _ordered(at, x, axis)
    begins = at.weight(np.arange(count) == 0, f"{at.node.name}.begin")
    begins = at.emit("bit_or", begins, at.emit("bit_not", same))
    starts, found = kept_first(at, begins)
    # The group of each element in order, and then of each where it stands.
    group = at.apply("sub", at.emit("running_sum", at.cast(begins, np.int64), axis=0), 1)
    back = at.emit("arg_sort", order, axis=0, descending=False)
    inverse = at.emit("gather", group, back, axis=0)
    places = ended(at, first(at, starts, 0, most), 0, name, found)
    after = at.weight(np.arange(1, most + 1), f"{at.node.name}.after")
    last = at.emit("less", after, at.reshape(found, (1,)))
    following = gathered(at, starts, at.apply("min", after, count - 1), 0)
    ends = at.emit("select", last, following, at.made(count, following, "end"))
    counts = at.emit("sub", ends, places)
    firsts = at.emit("gather", order, places, axis=0)
    if not at.integer("sorted", 1):
        valid = at.emit("less", ramp(at, most), at.reshape(found, (1,)))
        key = at.emit("select", valid, firsts, at.made(count, firsts, "none"))
        by_first = at.emit("arg_sort", key, axis=0, descending=False)
        firsts, counts = (at.emit("gather", each, by_first, axis=0) for each in (firsts, counts))
        rank = at.emit("arg_sort", by_first, axis=0, descending=False)
        inverse = at.emit("gather", rank, inverse, axis=0)
    return [at.emit("gather", x, firsts, axis=axis), firsts, inverse, counts]


MOST_COLUMNS = 256
"""Elements of a slice whose order is found, one after another."""


def _ordered(at: Lowering, x: SSAValue, axis: int) -> tuple[SSAValue, SSAValue]:
    """The order of the slices along an axis, by their first elements that differ, and whether each
    is the same as the one before."""
    shape = shape_of(x)
    count, columns = shape[axis], math.prod(shape) // shape[axis]
    if columns > MOST_COLUMNS:
        raise at.refuse(f"slices have {columns} elements; {MOST_COLUMNS} are compared")
    turned = at.transpose(x, [axis, *(n for n in range(len(shape)) if n != axis)])
    rows = at.reshape(turned, (count, columns))
    order: SSAValue | None = None
    # Sorted by the last elements first: sorts leave equal ones in order.
    for column in reversed(range(columns)):
        key = element_at(at, rows, 1, column)
        if order is None:
            order = at.emit("arg_sort", key, axis=0, descending=False)
            continue
        key = at.emit("gather", key, order, axis=0)
        places = at.emit("arg_sort", key, axis=0, descending=False)
        order = at.emit("gather", order, places, axis=0)
    assert order is not None
    ordered = at.emit("gather", rows, order, axis=0)
    before = at.weight(np.maximum(np.arange(count) - 1, 0), f"{at.node.name}.before")
    same = at.emit("equal", ordered, at.emit("gather", ordered, before, axis=0))
    whole = at.emit("reduce_min", at.cast(same, np.int32), axes=(1,), keep_dims=False)
    return order, at.cast(whole, np.bool_)

"""Elements chosen by indices: the Gather and Scatter families, orders, one-hot codes.

Everything becomes gathers along one axis and scatters of rows; where indices name elements of
several axes they are first turned into one number, by integer arithmetic at run time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.frontends.moves import cut, element_at, elements_along, flat_places, number
from tilewright.frontends.onnx.decided import first, sizes_decided
from tilewright.frontends.onnx.lowering import Lowering, Value
from tilewright.frontends.onnx.operators.movement import gather_constant
from tilewright.frontends.onnx.operators.run_sizes import compress_of_run, top_of_run
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of

MOST_ROWS = 64
"""Rows of a matrix that are taken one after another where data decide the number of columns."""


def places_of(at: Lowering, index: int, extents: Sequence[int] | int) -> SSAValue:
    """An operand of indices as int64, negative ones counted from the end of ``extents``."""
    constant = at.constant(index)
    sizes = np.asarray(extents, np.int64)
    if constant is not None:
        wide = constant.astype(np.int64)
        if ((wide < -sizes) | (wide >= sizes)).any():
            raise at.misfit("an index is out of range")
        return number(at, np.where(wide < 0, wide + sizes, wide), "indices")
    wide = at.cast(at.tensor(index), np.int64)
    end = number(at, sizes, "extents")
    return at.emit("select", at.apply("less", wide, 0), at.emit("add", wide, end), wide)


def gather(at: Lowering) -> Value:
    """The parts along an axis that indices name; runs of constant ones are slices."""
    sizes = at.shape(0)
    axis = at.axis(at.integer("axis"), len(sizes))
    if at.constant(1) is not None:
        folded = gather_constant(at, axis)
        if folded is not None:
            return folded
        return at.emit("gather", at.tensor(0), places_of(at, 1, sizes[axis]), axis=axis)
    return at.emit("gather", at.tensor(0), at.tensor(1), axis=axis)


def _places_along(at: Lowering, axis: int) -> SSAValue:
    """GatherElements' and ScatterElements' indices, which name places along an axis."""
    sizes, shape = at.shape(0), at.shape(1)
    if len(shape) != len(sizes) or any(
        have > want for i, (have, want) in enumerate(zip(shape, sizes, strict=True)) if i != axis
    ):
        raise at.misfit(f"indices {list(shape)} do not fit {list(sizes)}")
    return places_of(at, 1, sizes[axis])


def gather_elements(at: Lowering) -> Value:
    """One element for each index, which names its place along an axis."""
    sizes = at.shape(0)
    axis = at.axis(at.integer("axis"), len(sizes))
    return elements_along(at, at.tensor(0), _places_along(at, axis), axis)


def scatter_elements(at: Lowering) -> Value:
    """The operand with one element replaced, or combined, for each index."""
    sizes = at.shape(0)
    axis = at.axis(at.integer("axis"), len(sizes))
    if at.shape(2) != at.shape(1):
        raise at.misfit("its indices and updates differ in shape")
    count = math.prod(at.shape(1))
    if not count:
        return at.operand(0)
    result = at.emit(
        "scatter",
        at.reshape(at.tensor(0), (math.prod(sizes),)),
        at.reshape(flat_places(at, _places_along(at, axis), sizes, axis), (count,)),
        at.reshape(at.tensor(2), (count,)),
        reduction=_reduction(at),
    )
    return at.reshape(result, sizes)


def _reduction(at: Lowering) -> str:
    reduction = at.text("reduction", "none")
    if reduction not in ("none", "add", "mul", "max", "min"):
        raise at.refuse(f"reduction {reduction!r} is not known")
    return reduction


def _rows(at: Lowering, batch: int) -> tuple[SSAValue, int]:
    """One number for each of GatherND's and ScatterND's indices, and how many axes one names."""
    sizes, shape = at.shape(0), at.shape(1)
    depth = shape[-1] if shape else 0
    if not 1 <= depth <= len(sizes) - batch or sizes[:batch] != shape[:batch]:
        raise at.misfit(f"indices {list(shape)} do not fit {list(sizes)}")
    named = sizes[batch : batch + depth]
    steps = [math.prod(named[i + 1 :]) for i in range(depth)]
    parts = at.emit("mul", places_of(at, 1, named), number(at, np.array(steps), "steps"))
    rows = at.emit("reduce_sum", parts, axes=(len(shape) - 1,), keep_dims=False)
    if batch:
        ramp = np.arange(math.prod(sizes[:batch])) * math.prod(named)
        wide = (*sizes[:batch], *(1 for _ in shape[batch:-1]))
        rows = at.emit("add", rows, number(at, ramp.reshape(wide), "batches"))
    return rows, depth


def gather_nd(at: Lowering) -> Value:
    """The parts that lists of indices name."""
    batch, sizes = at.integer("batch_dims"), at.shape(0)
    if not 0 <= batch < min(len(sizes), len(at.shape(1))):
        raise at.refuse(f"batch_dims {batch} does not fit its inputs")
    rows, depth = _rows(at, batch)
    inner = sizes[batch + depth :]
    flat = at.reshape(at.tensor(0), (math.prod(sizes[: batch + depth]), *inner))
    return at.emit("gather", flat, rows, axis=0)


def scatter_nd(at: Lowering) -> Value:
    """The operand with the parts replaced, or combined, that lists of indices name."""
    sizes = at.shape(0)
    if 0 in at.shape(1):
        return at.operand(0)
    rows, depth = _rows(at, 0)
    inner, count = sizes[depth:], math.prod(shape_of(rows))
    if math.prod(at.shape(2)) != count * math.prod(inner):
        raise at.misfit("its updates do not fit its indices")
    result = at.emit(
        "scatter",
        at.reshape(at.tensor(0), (math.prod(sizes[:depth]), *inner)),
        at.reshape(rows, (count,)),
        at.reshape(at.tensor(2), (count, *inner)),
        reduction=_reduction(at),
    )
    return at.reshape(result, sizes)


def one_hot(at: Lowering) -> Value:
    """The second of two values where an index is, else the first; one out of range is nowhere."""
    depth = [at.whole_at(1, "depth")]
    if depth[0] < 1:
        raise at.misfit("its depth is not a positive number")
    shape = at.shape(0)
    axis = at.axis(at.integer("axis", -1), len(shape) + 1)
    at.check_size((*shape[:axis], depth[0], *shape[axis:]))
    places = at.cast(at.tensor(0), np.int64)
    end = at.emit("add", places, number(at, np.array(depth[0]), "depth"))
    places = at.emit("select", at.apply("less", places, 0), end, places)
    places = at.reshape(places, (*shape[:axis], 1, *shape[axis:]))
    ramp = np.arange(depth[0]).reshape([-1 if i == axis else 1 for i in range(len(shape) + 1)])
    hot = at.emit("equal", places, number(at, ramp, "ramp"))
    values = at.tensor(2)
    off, on = (element_at(at, values, 0, i) for i in range(2))
    return at.emit("select", hot, on, off)


def top_k(at: Lowering) -> Sequence[Value]:
    """The k largest or smallest elements along an axis and where they lie, in order."""
    shape = at.shape(0)
    axis = at.axis(at.integer("axis", -1), len(shape))
    if at.version >= 10 and at.constant(1) is None:
        return top_of_run(at, axis)
    counts = (at.integer("k"),) if at.version < 10 else at.integers_at(1, "k")
    if counts is None or len(counts) != 1 or not 1 <= counts[0] <= shape[axis]:
        raise at.refuse("k is not a number from 1 to the extent of the axis")
    descending = bool(at.integer("largest", 1))
    x = at.tensor(0)
    order = at.emit("arg_sort", x, axis=axis, descending=descending)
    places = order
    if sizes_decided(at):
        places = first(at, order, axis, counts[0])  # There are as many, whatever the size is.
        if len(shape) == 2 and shape[1 - axis] <= MOST_ROWS:
            return [_row_by_row(at, x, places, 1 - axis), places]
    elif counts[0] < shape[axis]:
        places = at.emit("slice", order, starts=[0], ends=[counts[0]], axes=(axis,), steps=[1])
    return [elements_along(at, x, places, axis), places]


def _row_by_row(at: Lowering, x: SSAValue, places: SSAValue, rows: int) -> SSAValue:
    """The elements of each row of a matrix at the places of that row, where ``rows`` is their axis:
    no reshape joins it with one whose size data decide."""
    found: list[Value] = []
    for begin in range(shape_of(x)[rows]):
        pair = (cut(at, value, {rows: (begin, begin + 1, 1)}) for value in (x, places))
        row, where = (at.reshape(value, (math.prod(shape_of(value)),)) for value in pair)
        found.append(at.emit("gather", row, where, axis=0))
    return at.stored(at.joined(found, rows, new=True))


def trilu(at: Lowering) -> Value:
    """The elements on and above, or below, a diagonal; zeros elsewhere."""
    shape = at.shape(0)
    diagonals = at.integers_at(1, "k")
    k = diagonals[0] if diagonals else 0
    if len(shape) < 2:
        raise at.misfit("it takes matrices")
    rows, columns = np.arange(shape[-2])[:, None], np.arange(shape[-1])
    kept = columns - rows >= k if at.integer("upper", 1) else columns - rows <= k
    x = at.tensor(0)
    zero = at.made(0, x, "zero")
    return at.emit("select", at.weight(kept, f"{at.node.name}.kept"), x, zero)


def reverse_sequence(at: Lowering) -> Value:
    """Reverse the first elements of each sequence of a batch, as many as its length says."""
    shape = at.shape(0)
    batch, time = at.integer("batch_axis", 1), at.integer("time_axis")
    if {batch, time} != {0, 1} or len(shape) < 2:
        raise at.refuse("its batch and time axes are not the first two")
    sides = (-1, 1), (1, -1)
    counts = [shape[batch] if extent < 0 else 1 for extent in sides[batch]]
    lengths = at.reshape(at.cast(at.tensor(1), np.int64), counts)
    ramp = number(at, np.arange(shape[time]).reshape(sides[time]), "ramp")
    mirrored = at.apply("sub", at.emit("sub", lengths, ramp), 1)
    rows = at.emit("select", at.emit("less", ramp, lengths), mirrored, ramp)
    if time == 0:
        rows = at.apply("mul", rows, shape[1])
    images = np.arange(shape[batch]).reshape(sides[batch]) * (shape[1] if batch == 0 else 1)
    rows = at.emit("add", rows, number(at, images, "batch"))
    flat = at.reshape(at.tensor(0), (shape[0] * shape[1], *shape[2:]))
    return at.emit("gather", flat, rows, axis=0)


def compress(at: Lowering) -> Value:
    """The parts along an axis where a condition is true."""
    condition = at.constant(1)
    if condition is None:
        return compress_of_run(at)
    x, sizes = at.tensor(0), at.shape(0)
    if "axis" not in at.attributes:
        x, axis, sizes = at.reshape(x, (math.prod(sizes),)), 0, (math.prod(sizes),)
    else:
        axis = at.axis(at.integer("axis"), len(sizes))
    places = np.flatnonzero(condition)
    if not places.size or places[-1] >= sizes[axis]:
        raise at.misfit("its condition selects nothing, or more than exists")
    return at.emit("gather", x, number(at, places, "places"), axis=axis)


def tensor_scatter(at: Lowering) -> Value:
    """A cache with new entries from a place on, one place for each of the batch.

    In mode circular places wrap around; else places after the end are left out.
    """
    sizes, new = at.shape(0), at.shape(1)
    axis = at.axis(at.integer("axis", -2), len(sizes))
    length = sizes[axis]
    if axis == 0 or new != (*sizes[:axis], new[axis], *sizes[axis + 1 :]) or new[axis] > length:
        raise at.misfit(f"entries {list(new)} do not fit {list(sizes)}")
    mode, batch = at.text("mode", "linear"), sizes[0]
    if mode not in ("linear", "circular"):
        raise at.refuse(f"mode {mode!r} is not known")
    lists, inner = math.prod(sizes[:axis]), math.prod(sizes[axis + 1 :])
    steps = np.arange(new[axis]).reshape(1, 1, -1)
    starts = np.arange(lists).reshape(batch, -1, 1) * length
    if at.has(2):
        if at.shape(2) != (batch,):
            raise at.misfit(f"there are not {batch} places")
        first = at.reshape(at.cast(at.tensor(2), np.int64), (batch, 1, 1))
        place = at.emit("add", first, number(at, steps, "steps"))
        within = at.apply("less", place, length)
        if mode == "circular":
            place = at.apply("mod", place, length)
        rows = at.emit("add", place, number(at, starts, "starts"))
        if mode == "linear":
            rows = at.emit("select", within, rows, number(at, np.array(lists * length), "nowhere"))
    else:
        rows = number(at, starts + steps, "rows")
    count = lists * new[axis]
    result = at.emit(
        "scatter",
        at.reshape(at.tensor(0), (lists * length, inner)),
        at.reshape(rows, (count,)),
        at.reshape(at.tensor(1), (count, inner)),
    )
    return at.reshape(result, sizes)


def array_feature_extractor(at: Lowering) -> Value:
    """The columns that a list names."""
    sizes = at.shape(0)
    if not sizes:
        raise at.misfit("it takes no scalar")
    places = at.reshape(places_of(at, 1, sizes[-1]), (math.prod(at.shape(1)),))
    rows = at.reshape(at.tensor(0), (math.prod(sizes[:-1]), sizes[-1]))
    columns = at.emit("gather", rows, places, axis=1)
    return at.reshape(columns, (*(sizes[:-1] or (1,)), math.prod(at.shape(1))))

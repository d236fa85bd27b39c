"""Operations that move elements: shapes, order, parts, padding, and constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.frontends import moves
from tilewright.frontends.stablehlo.lowering import Lowering, Rule
from tilewright.frontends.stablehlo.program import Dense
from tilewright.frontends.stablehlo.values import View, extents_of
from tilewright.ir import SSAValue


def constant(at: Lowering) -> View:
    """A constant; one value everywhere takes no memory."""
    value = at.op.attributes.get("value")
    if not isinstance(value, Dense):
        raise at.refuse("its value is not read", code="stablehlo-dtype")
    return View(value.array, tuple(range(len(value.shape))), value.shape)


def iota(at: Lowering) -> View:
    """0, 1, 2, ... along one axis."""
    shape, axis = at.kind.shape, at.integer("iota_dimension")
    if not 0 <= axis < len(shape) or shape[axis] > 2**24:
        raise at.refuse(f"axis {axis} does not fit {list(shape)}")
    sizes = [shape[axis] if i == axis else 1 for i in range(len(shape))]
    ramp = np.arange(shape[axis]).astype(at.kind.dtype).reshape(sizes)
    return View(ramp, tuple(range(len(shape))), shape)


def broadcast_in_dim(at: Lowering) -> View:
    """Each axis goes to one of the result's, where it may grow from 1; nothing moves."""
    (x,), places = at.views, at.integers("broadcast_dimensions")
    if len(places) != x.rank or len(set(places)) != x.rank:
        raise at.refuse(f"places {list(places)} do not fit {x.rank} axes")
    return at.placed(x, dict(enumerate(places)), at.kind.shape)


def reshape(at: Lowering) -> View:
    """The same elements in order in another shape."""
    return at.reshaped(at.views[0], at.kind.shape)


def transpose(at: Lowering) -> View:
    """The axes in another order; nothing moves."""
    return at.views[0].transposed(at.integers("permutation"))


def identity(at: Lowering) -> View:
    """Return the operand itself; nothing is emitted."""
    return at.views[0]


def sliced(at: Lowering, x: View, ranges: Mapping[int, tuple[int, int, int]]) -> View:
    """The part of a view that lies in [start, end) by step of some axes."""
    shape = list(x.shape)
    for axis, (start, end, step) in ranges.items():
        if not 0 <= start <= end <= shape[axis] or step < 1:
            raise at.refuse(f"[{start}:{end}:{step}] leaves axis {axis} of {list(x.shape)}")
        shape[axis] = len(range(start, end, step))
    at.check_size(shape)
    # Where the tensor is broadcast there is nothing to cut.
    kept = {x.axes.index(axis): bounds for axis, bounds in ranges.items() if x.extent(axis) > 1}
    if isinstance(x.core, SSAValue):
        return View(moves.cut(at, x.core, kept), x.axes, tuple(shape))
    index = [slice(None)] * x.rank
    for place, bounds in kept.items():
        index[place] = slice(*bounds)
    return View(x.core[tuple(index)], x.axes, tuple(shape))


def slice_(at: Lowering) -> View:
    """Take a strided part of the operand."""
    starts, ends, steps = (
        at.integers(name) for name in ("start_indices", "limit_indices", "strides")
    )
    ranges = dict(enumerate(zip(starts, ends, steps, strict=True)))
    return sliced(at, at.views[0], ranges)


def reverse(at: Lowering) -> View:
    """Some axes from the last to the first."""
    x = at.views[0]
    places = [x.axes.index(axis) for axis in at.integers("dimensions")]
    if not isinstance(x.core, SSAValue):
        return View(np.flip(x.core, tuple(places)), x.axes, x.shape)
    core = x.core
    for place in places:
        core = moves.reversed_along(at, core, place)
    return View(core, x.axes, x.shape)


def concatenate(at: Lowering) -> View:
    """Operands one after another; empty ones drop out."""
    axis = at.integer("dimension")
    parts = [view for view in at.views if view.shape[axis]]
    if not parts:
        raise at.misfit("all its operands are empty")
    return joined(at, parts, axis)


def joined(at: Lowering, parts: Sequence[View], axis: int) -> View:
    """Views one after another along an axis."""
    if len(parts) == 1:
        return parts[0]
    order = at.common_axes(parts)
    # An axis along which all are broadcast stays so.
    others = [i for i in order if i != axis and any(part.extent(i) > 1 for part in parts)]
    whole = [at.arranged(at.filled(part, [axis, *others]), order) for part in parts]
    core = at.emit("concat", *whole, axis=order.index(axis))
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    return View(core, order, tuple(shape))


def pad(at: Lowering) -> View:
    """Elements of one value before, after (negative: cut) and between those along each axis."""
    x, value = at.views
    filler = value.number
    if filler is None:
        raise at.unsupported("its padding is not one constant number")
    lows, highs, gaps = (
        at.integers(name) for name in ("edge_padding_low", "edge_padding_high", "interior_padding")
    )
    return padded(at, x, list(zip(lows, highs, gaps, strict=True)), float(filler))


def padded(at: Lowering, x: View, pads: Sequence[tuple[int, int, int]], filler: float) -> View:
    """A view with (before, after, between) elements of ``filler`` along each of its axes."""
    if any(gap < 0 for _, _, gap in pads):
        raise at.refuse("negative padding between elements")
    moving = [axis for axis, pads_here in enumerate(pads) if any(pads_here)]
    if not moving:
        return x
    x = at.filled(x, moving)
    core, dtype = at.arranged(x, x.axes), x.dtype
    if dtype == np.bool_:
        core = at.cast(core, np.int8)
    elif not np.isfinite(filler):
        # The graph pads with finite numbers; what lies furthest out is as good as infinity only
        # where it is compared, so it is put in by a choice.
        return _padded_by_choice(at, x, pads, filler)
    for axis in moving:
        core = moves.spread(at, core, x.axes.index(axis), pads[axis][2] + 1, filler)
    edges = {x.axes.index(axis): pads[axis][:2] for axis in moving}
    core = moves.padded(at, core, edges, filler)
    core = at.cast(core, dtype)
    return _of_core(core, x, moving)


def _of_core(core: SSAValue, x: View, moving: Sequence[int]) -> View:
    shape = list(x.shape)
    for axis in moving:
        shape[axis] = extents_of(core)[x.axes.index(axis)]
    return View(core, x.axes, tuple(shape))


def _padded_by_choice(
    at: Lowering, x: View, pads: Sequence[tuple[int, int, int]], filler: float
) -> View:
    inside = View(np.ones((1,) * x.rank, np.bool_), tuple(range(x.rank)), x.shape)
    mask = padded(at, inside, pads, 0.0)
    wide = padded(at, x, pads, 0.0)
    number = View(np.full((1,) * x.rank, filler, x.dtype), tuple(range(x.rank)), wide.shape)
    return at.pointwise("select", mask, wide, number)


MOVEMENT: Mapping[str, Rule] = {
    "stablehlo.broadcast_in_dim": broadcast_in_dim,
    "stablehlo.concatenate": concatenate,
    "stablehlo.constant": constant,
    "chlo.constant": constant,
    "stablehlo.iota": iota,
    "stablehlo.optimization_barrier": lambda at: list(at.views),
    "stablehlo.pad": pad,
    "stablehlo.reshape": reshape,
    "stablehlo.reverse": reverse,
    "stablehlo.slice": slice_,
    "stablehlo.transpose": transpose,
}
"""The rules by operation."""

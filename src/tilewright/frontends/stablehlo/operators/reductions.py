"""Reductions over axes, where an extreme lies, and batch normalisation as inference has it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.frontends.stablehlo.bodies import fold_of, place_of
from tilewright.frontends.stablehlo.lowering import Lowering
from tilewright.frontends.stablehlo.values import View
from tilewright.ir import SSAValue
from tilewright.ir.types import Array

REDUCE: Mapping[str, str] = {
    "add": "reduce_sum",
    "mul": "reduce_product",
    "max": "reduce_max",
    "min": "reduce_min",
}


def fold_here(at: Lowering, dtype: np.dtype[Any]) -> str:
    """Return the name of the body's operation: ``add``, ``mul``, ``max`` or ``min``; of booleans,
    the like."""
    fold = fold_of(at.op.regions[0]) if at.op.regions else None
    if fold is None:
        raise at.unsupported(
            "its body is none of add, multiply, maximum, minimum, and, or of two elements"
        )
    if dtype == np.bool_:
        # The larger of two booleans is their or.
        return {"add": "max", "or": "max", "mul": "min", "and": "min"}.get(fold, fold)
    if fold in ("and", "or"):
        raise at.unsupported(f"a reduction by {fold} of the bits of integers")
    return fold


def neutral(fold: str, dtype: np.dtype[Any], value: Array | float | None) -> bool:
    """Return True if starting from a value changes nothing."""
    if value is None:
        return False
    if fold in ("add", "mul"):
        return bool(value == (0 if fold == "add" else 1))
    if dtype == np.bool_:
        return bool(value) == (fold == "min")
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return int(value) == (limits.min if fold == "max" else limits.max)
    return bool(value == (-np.inf if fold == "max" else np.inf))


def reduce(at: Lowering) -> View | Sequence[View]:
    """The operand without some axes, its elements folded; or the place of an extreme."""
    axes = tuple(sorted(at.integers("dimensions")))
    if len(at.views) == 4 and len(axes) == 1:
        return _place(at, axes[0])
    if len(at.views) != 2:
        raise at.unsupported("several reductions in one")
    x, start = at.views
    fold = fold_here(at, x.dtype)
    result = folded(at, x, axes, fold)
    if neutral(fold, x.dtype, start.number):
        return result
    wide = at.placed(start, {}, result.shape)
    if x.dtype == np.bool_:
        return at.pointwise("bit_or" if fold == "max" else "bit_and", result, wide)
    return at.pointwise(fold, result, wide)


def folded(at: Lowering, x: View, axes: Sequence[int], fold: str) -> View:
    """The view without some axes."""
    rest = [axis for axis in range(x.rank) if axis not in axes]
    shape = tuple(x.shape[axis] for axis in rest)
    if any(x.shape[axis] == 0 for axis in axes):
        raise at.misfit("it reduces nothing at all")
    if fold in ("add", "mul"):
        x = at.filled(x, axes)
    lost = [axis for axis in axes if x.extent(axis) > 1]
    if not lost:
        return at.placed(x, {axis: i for i, axis in enumerate(rest)}, shape)
    core = at.arranged(x, x.axes)
    places = tuple(sorted(x.axes.index(axis) for axis in axes))
    core = at.emit(REDUCE[fold], core, axes=places, keep_dims=False)
    kept = [rest.index(axis) for axis in x.axes if axis not in axes]
    return View(core, tuple(kept), shape)


def _place(at: Lowering, axis: int) -> Sequence[View]:
    """The extreme along an axis, and the first place where it lies."""
    x, places, start, _ = at.views
    fold = place_of(at.op.regions[0]) if at.op.regions else None
    ramp = places.known
    along = None if ramp is None else np.arange(x.shape[axis]).reshape(-1)
    counts = (
        ramp is not None
        and along is not None
        and math.prod(ramp.shape) == x.shape[axis]
        and np.array_equal(ramp.reshape(-1), along)
        and places.extent(axis) == x.shape[axis]
    )
    if fold is None or not counts or not neutral(fold, x.dtype, start.number):
        raise at.unsupported("a reduction of pairs that is not the place of an extreme")
    core = at.full(x)
    where: SSAValue = at.emit(f"arg_{fold}", core, axes=(axis,), keep_dims=False)
    return [folded(at, x, (axis,), fold), View.of(at.cast(where, places.dtype))]


def batch_norm_inference(at: Lowering) -> View:
    """scale * (x - mean) / sqrt(variance + epsilon) + shift, per index of one axis."""
    x, axis = at.views[0], at.integer("feature_index")
    epsilon = at.op.attributes.get("epsilon")
    if not isinstance(epsilon, float) or x.rank < 2:
        raise at.refuse("epsilon is not a number, or there is no batch")
    order = [*(i for i in x.axes if i != axis)]
    order.insert(1, axis)
    core = at.emit(
        "batch_norm",
        at.full(x, order),
        *(at.full(view) for view in at.views[1:]),
        epsilon=epsilon,
    )
    return View.of(core, order)

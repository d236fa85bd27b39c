"""Reductions over axes, and running sums along one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tilewright.frontends.moves import reversed_along, stretch
from tilewright.frontends.onnx.lowering import Lowering, Map, Rule, Value, dtype_of
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of

Reduction = Callable[[Lowering, SSAValue, Sequence[int], bool], SSAValue]


def reduction(reduce: Reduction, *, since: int = 18) -> Map:
    """The rule of a reduction; its axes are an operand since operator set ``since``."""

    def rule(at: Lowering) -> SSAValue:
        x, rank = at.tensor(0), len(at.shape(0))
        axes = at.integers_at(1, "axes") if at.version >= since else at.integers("axes")
        if not axes and at.integer("noop_with_empty_axes"):
            return reduce(at, x, (), True)
        reduced = sorted({at.axis(axis, rank) for axis in axes or range(rank)})
        return reduce(at, x, reduced, bool(at.integer("keepdims", 1)))

    return rule


def fold(operation: str) -> Reduction:
    """One operation of the graph; over no axes, the operand itself."""

    def reduce(at: Lowering, x: SSAValue, axes: Sequence[int], keep: bool) -> SSAValue:
        return at.emit(operation, x, axes=tuple(axes), keep_dims=keep) if axes else x

    return reduce


_sum, _largest, _mean = fold("reduce_sum"), fold("reduce_max"), fold("reduce_mean")


def _average(at: Lowering, x: SSAValue, axes: Sequence[int], keep: bool) -> SSAValue:
    """The mean; of integers their sum divided by how many there are, towards zero."""
    if dtype_of(x).kind not in "iu" or not axes:
        return _mean(at, x, axes, keep)
    count = math.prod(shape_of(x)[axis] for axis in axes)
    return at.apply("div", _sum(at, x, axes, keep), count)


def composed(before: str, after: str) -> Reduction:
    """A sum of a function of the elements, and a function of it; "" is none, "square" x * x."""

    def reduce(at: Lowering, x: SSAValue, axes: Sequence[int], keep: bool) -> SSAValue:
        if before:
            x = at.emit("mul", x, x) if before == "square" else at.emit(before, x)
        total = _sum(at, x, axes, keep)
        return _function(at, after, total) if after else total

    return reduce


def _function(at: Lowering, operation: str, x: SSAValue) -> SSAValue:
    """A function of floats; of integers by way of float64, rounded towards zero."""
    if dtype_of(x).kind not in "iu":
        return at.emit(operation, x)
    return at.cast(at.emit(operation, at.cast(x, np.float64)), dtype_of(x))


def log_sum_exp(at: Lowering, x: SSAValue, axes: Sequence[int], keep: bool) -> SSAValue:
    """log(sum(exp(x))), the largest element taken out first so that nothing overflows."""
    if not axes:
        return x
    if dtype_of(x).kind in "iu":
        result = log_sum_exp(at, at.cast(x, np.float64), axes, keep)
        return at.cast(result, dtype_of(x))
    most = _largest(at, x, axes, True)
    # An infinite largest element would leave inf - inf.
    most = at.apply("clip", most, minimum=-3.0e38, maximum=3.0e38)
    total = _function(at, "log", _sum(at, at.emit("exp", at.emit("sub", x, most)), axes, keep))
    return at.emit("add", total, at.reshape(most, shape_of(total)))


REDUCTIONS: dict[str, Map] = {
    "ReduceL1": reduction(composed("abs", "")),
    "ReduceL2": reduction(composed("square", "sqrt")),
    "ReduceLogSum": reduction(composed("", "log")),
    "ReduceLogSumExp": reduction(log_sum_exp),
    "ReduceMax": reduction(fold("reduce_max")),
    "ReduceMean": reduction(_average),
    "ReduceMin": reduction(fold("reduce_min")),
    "ReduceProd": reduction(fold("reduce_product")),
    "ReduceSum": reduction(_sum, since=13),
    "ReduceSumSquare": reduction(composed("square", "")),
}
"""The rules by operator."""


def arg(operation: str) -> Rule:
    """The rule of ArgMax and ArgMin."""

    def rule(at: Lowering) -> Value:
        axis = at.axis(at.integer("axis"), len(at.shape(0)))
        last = bool(at.integer("select_last_index"))
        keep = bool(at.integer("keepdims", 1))
        return at.emit(operation, at.tensor(0), axes=(axis,), keep_dims=keep, last=last)

    return rule


def along_axis(at: Lowering, build: Callable[[SSAValue, int], SSAValue]) -> SSAValue:
    """A function of whole rows; before operator set 13 these are all axes from ``axis`` on."""
    shape = at.shape(0)
    if not shape:
        raise at.misfit("it takes no scalar")
    axis = at.axis(at.integer("axis", -1 if at.version >= 13 else 1), len(shape))
    if at.version >= 13 or math.prod(shape[axis:]) == shape[axis]:
        return build(at.tensor(0), axis)
    flat = at.reshape(at.tensor(0), (math.prod(shape[:axis]), math.prod(shape[axis:])))
    return at.reshape(build(flat, 1), shape)


def hardmax(at: Lowering) -> Value:
    """1 at the first largest element along an axis, else 0."""

    def hot(x: SSAValue, axis: int) -> SSAValue:
        sizes = shape_of(x)
        best = at.emit("arg_max", x, axes=(axis,), keep_dims=True)
        ramp = np.arange(sizes[axis]).reshape([-1 if i == axis else 1 for i in range(len(sizes))])
        places = at.weight(ramp.astype(np.int64), f"{at.node.name}.ramp")
        return at.cast(at.emit("equal", best, places), at.dtype(0))

    return along_axis(at, hot)


def running(operation: str, neutral: int) -> Rule:
    """The rule of CumSum and CumProd: an exclusive one leaves out the element itself."""

    def rule(at: Lowering) -> Value:
        axes = at.integers_at(1, "axis")
        rank, x = len(at.shape(0)), at.tensor(0)
        if axes is None or len(axes) != 1:
            raise at.refuse("its axis is not one number")
        axis = at.axis(axes[0], rank)
        extent = at.shape(0)[axis]
        if at.integer("reverse"):
            x = reversed_along(at, x, axis)
        if at.integer("exclusive"):
            pads = [int(i == axis) for i in range(2 * rank)]
            x = at.emit("pad", x, pads=tuple(pads), mode="constant", value=float(neutral))
            x = stretch(at, x, axis, 0, extent)
        x = at.emit(operation, x, axis=axis)
        return reversed_along(at, x, axis) if at.integer("reverse") else x

    return rule

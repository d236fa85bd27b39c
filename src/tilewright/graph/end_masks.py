"""Masks of operands: elements that operations read in place of those after a run's ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from tilewright.graph.operation import Operation
from tilewright.ir.types import dtype_of, shape_of

if TYPE_CHECKING:
    from tilewright.graph.run_sizes import Following

Mask = Callable[["Following", Operation, list[list[int]], str], None]


def _extreme(op: Operation, *, low: bool) -> float:
    """The least or the largest number of the first operand's elements."""
    dtype = dtype_of(op.inputs[0])
    if dtype.kind == "b":
        return not low
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return limits.min if low else limits.max
    return -np.inf if low else np.inf


def _fold(neutral: Callable[[Operation], float]) -> Mask:
    """Every operand along the dim is neutral after its end."""

    def mask(at: Following, op: Operation, axes: list[list[int]], size: str) -> None:
        for number, along in enumerate(axes):
            for axis in along:
                at.masked(op, number, {axis: size}, neutral(op))

    return mask


def _sorted(op: Operation) -> float:
    """What lies after all others in order; of equal ones the first comes first, and NaN is last."""
    descending = bool(op.get("descending", False))
    if dtype_of(op.inputs[0]).kind not in "iub" and not descending:
        return np.nan
    return _extreme(op, low=descending)


def _mean(at: Following, op: Operation, axes: list[list[int]], size: str) -> None:
    """A mean as the sum of what is there, by the number of these."""
    if op.result in at.instead:
        return  # It ends along another axis, too.
    shape, ends = shape_of(op.inputs[0]), at.ends[op.inputs[0]]
    folded = [axis % len(shape) for axis in op.integers("axes")]
    others = np.prod([shape[axis] for axis in folded if axis not in ends], dtype=np.int64)
    count = at.weight(np.array(others), f"{at.node}.count")
    for axis in set(folded) & {*ends}:
        if (end := at.one_size(ends[axis])) is None:
            raise at.refusal("a mean along an axis that joins others whose sizes a run decides")
        at.masked(op, 0, {axis: end}, 0)
        count = at.emit("mul", count, at.size(end, 0))
    total = at.emit("reduce_sum", op.inputs[0], **op.values)
    whole = at.emit("cast", count, to=dtype_of(total).name)
    mean = at.computed(at.node, "div", (total, whole), {})
    op.result.replace_all_uses_with(mean)
    at.instead[op.result] = mean


def _gather(at: Following, op: Operation, axes: list[list[int]], size: str) -> None:
    """Negative indices count from where the axis ends."""
    places = op.inputs[1]
    rank = len(shape_of(places))
    wide = places if dtype_of(places) == np.int64 else at.emit("cast", places, to="int64")
    zero = at.weight(np.array(0, np.int64), f"{at.node}.zero")
    end = at.emit("add", wide, at.size(size, rank))
    wrapped = at.emit("select", at.emit("less", wide, zero), end, wide)
    at.ends[wrapped] = dict(at.ends.get(places, {}))
    op.operands[1] = wrapped


def _suppressed(at: Following, op: Operation, axes: list[list[int]], size: str) -> None:
    """Boxes after the end have no score."""
    at.masked(op, 1, {axes[1][0]: size}, -np.inf)


def _scatter(at: Following, op: Operation, axes: list[list[int]], size: str) -> None:
    """Updates after the end are for a row that does not exist."""
    if axes[0]:
        raise at.refusal("scatter into rows whose number a run decides")
    at.masked(op, 1, {axes[1][0]: size}, shape_of(op.inputs[0])[0])


def _padding(op: Operation) -> float:
    value = op.get("value", 0.0)  # Perhaps infinite.
    return value if isinstance(value, float) else 0.0


NEUTRAL: Mapping[str, Callable[[Operation], float]] = {
    "average_pool": lambda op: 0,
    "conv": lambda op: op.number("fill") if "fill" in op.values else 0,
    "max_pool": lambda op: _extreme(op, low=True),
    "pad": _padding,
}
"""Elements that windows read after the end of an image, by operation."""

REDUCTIONS = {"average_pool": "reduce_mean", "max_pool": "reduce_max"}
"""Reductions that pools over all of an image are."""

MASKS: Mapping[str, Mask] = {
    "reduce_sum": _fold(lambda op: 0),
    "reduce_product": _fold(lambda op: 1),
    "reduce_max": _fold(lambda op: _extreme(op, low=True)),
    "reduce_min": _fold(lambda op: _extreme(op, low=False)),
    "reduce_mean": _mean,
    "arg_max": _fold(lambda op: _extreme(op, low=True)),
    "arg_min": _fold(lambda op: _extreme(op, low=False)),
    "arg_sort": _fold(_sorted),
    "softmax": _fold(lambda op: -np.inf),
    "matmul": _fold(lambda op: 0),
    "running_sum": lambda at, op, axes, size: None,
    "running_product": lambda at, op, axes, size: None,
    "gather": _gather,
    "scatter": _scatter,
    "non_max_suppression": _suppressed,
}
"""The mask of each operation that folds indices of an axis: what it takes in place of those after
the end."""

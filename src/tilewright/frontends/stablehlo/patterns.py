"""Quotients and products that JAX writes out and that the graph has as one operation.

``1 / (1 + exp(-x))`` is a sigmoid, ``x`` times that a SiLU, ``e / sum(e)`` with ``e = exp(x -
max(x))`` a softmax, and a sum over the number of its elements a mean. Machines compute these as
they are; what has become of use to nobody is dropped by the passes.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from tilewright.frontends.stablehlo.lowering import Lowering
from tilewright.frontends.stablehlo.values import View, extents_of
from tilewright.graph.dialect import WeightOp
from tilewright.graph.operation import Operation
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, shape_of
from tilewright.numerics import reference


def divided(at: Lowering, x: View, y: View) -> View | None:
    """Return the function that x / y is a part of; None if no pattern matches."""
    if isinstance(y.core, SSAValue):
        return _sigmoid(at, x, y) if x.number is not None else _softmax(at, x, y)
    return _mean(at, x, y) or _average(at, x, y)


def multiplied(at: Lowering, x: View, y: View) -> View | None:
    """Return the function that x * y is a part of; None if no pattern matches."""
    for value, factor in ((x, y), (y, x)):
        sigmoid = _made_by(factor.core, "sigmoid")
        same = sigmoid is not None and sigmoid.inputs[0] is value.core
        if same and factor.axes == value.axes:
            return at.pointwise("silu", value)
    return None


def _mean(at: Lowering, x: View, y: View) -> View | None:
    """A sum over as many elements as it has; of whole images, their average pool."""
    core = _core(x)
    total = _made_by(core, "reduce_sum")
    if total is None or y.number is None:
        return None
    (inner,), axes = total.inputs, tuple(int(axis) for axis in total.get("axes"))
    sizes = shape_of(inner)
    if float(y.number) != math.prod(sizes[axis] for axis in axes):
        return None
    if len(sizes) == 4 and sorted(axes) == [2, 3] and x.dtype == np.float32:
        mean = at.emit("average_pool", inner, kernel=sizes[2:], strides=(1, 1))
    else:
        mean = at.emit("reduce_mean", inner, axes=axes, keep_dims=False)
    return _like(at, x, mean)


def _made_by(core: SSAValue | Array, operation: str) -> Operation | None:
    """The operation that makes a tensor, if it is of that name."""
    owner = core.owner if isinstance(core, SSAValue) else None
    matches = isinstance(owner, Operation) and owner.name == f"graph.{operation}"
    return cast(Operation, owner) if matches else None


def _constant(at: Lowering, value: SSAValue) -> float | None:
    """The one number that a weight of the network holds."""
    owner = value.owner
    if not isinstance(owner, WeightOp) or math.prod(shape_of(value)) != 1:
        return None
    return float(at.network.weights.get(owner.symbol.data).reshape(()))


def _sigmoid(at: Lowering, x: View, y: View) -> View | None:
    total = _made_by(y.core, "add")
    if total is None or x.number != 1:
        return None
    for addend, power in (total.inputs, tuple(total.inputs)[::-1]):
        exp = _made_by(power, "exp")
        negated = _made_by(exp.inputs[0], "neg") if exp is not None else None
        if negated is not None and _constant(at, addend) == 1:
            sigmoid = at.emit("sigmoid", negated.inputs[0])
            return View(sigmoid, y.axes, y.shape)
    return None


def _softmax(at: Lowering, x: View, y: View) -> View | None:
    exp = _made_by(x.core, "exp")
    less = _made_by(exp.inputs[0], "sub") if exp is not None else None
    if exp is None or less is None or not isinstance(y.core, SSAValue):
        return None
    inner, most = less.inputs
    total, largest = _unshaped(y.core), _unshaped(most)
    if _made_by(total, "reduce_sum") is None or _made_by(largest, "reduce_max") is None:
        return None
    summed, maximal = cast(Operation, total.owner), cast(Operation, largest.owner)
    axes = tuple(int(axis) for axis in summed.get("axes"))
    if summed.inputs[0] is not exp.result or maximal.inputs[0] is not inner or len(axes) != 1:
        return None
    # Both broadcast back along the axis that they lack, and along no other.
    axis, sizes = axes[0], shape_of(inner)
    along = [1 if i == axis else extent for i, extent in enumerate(sizes)]
    lies = [y.axes.index(a) for a in x.axes]
    back = [shape_of(y.core)[i] for i in lies]
    moving = [i for i in lies if shape_of(y.core)[i] != 1]
    if tuple(maximal.get("axes")) != axes or back != along or moving != sorted(moving):
        return None
    if list(shape_of(most)) != along:
        return None
    return View(at.emit("softmax", inner, axis=axis), x.axes, x.shape)


def _unshaped(value: SSAValue) -> SSAValue:
    """Return the value that reshapes were applied to."""
    while (op := _made_by(value, "reshape")) is not None:
        value = op.inputs[0]
    return value


def _average(at: Lowering, x: View, y: View) -> View | None:
    """The mean of windows, whose sum the importer made as their mean times their size."""
    scaled, known = _made_by(_core(x), "mul"), y.known
    if scaled is None or known is None or not isinstance(x.core, SSAValue):
        return None
    mean = _made_by(scaled.inputs[0], "average_pool")
    size = _constant(at, scaled.inputs[1])
    if mean is None or size is None or mean.node_name == "":
        return None
    if known.size == 1 and float(known.reshape(())) == size:
        return _like(at, x, mean.result)
    image = mean.inputs[0]
    kernel, strides, pads = (
        tuple(int(item) for item in mean.get(name, default))
        for name, default in (("kernel", ()), ("strides", (1, 1)), ("pads", (0, 0, 0, 0)))
    )
    n, c, height, width = shape_of(mean.result)
    # Counts that leave the padding out: the same for every image and channel.
    counts = reference.pool_counts(shape_of(image)[2:], kernel, strides, pads, (1, 1), (0, 0, 0, 0))
    # The value's axes as its tensor has them: those of the pool last.
    arranged = known.transpose(x.axes)
    pixels = (height, width)
    plane = (1,) * (arranged.ndim - 2) + pixels
    if extents_of(x.core) != tuple(x.shape[axis] for axis in x.axes) or counts.min() < 1:
        return None
    if extents_of(x.core)[-2:] != pixels or arranged.shape != plane or n * c == 0:
        return None
    if not np.array_equal(arranged.reshape(pixels), counts):
        return None
    pooled = at.emit("average_pool", image, kernel=kernel, strides=strides, pads=pads)
    return _like(at, x, pooled)


def _core(x: View) -> SSAValue | Array:
    """A view's tensor before the reshape that gave the pool its four axes back."""
    return _unshaped(x.core) if isinstance(x.core, SSAValue) else x.core


def _like(at: Lowering, x: View, value: SSAValue) -> View:
    return View(at.reshape(value, extents_of(x.core)), x.axes, x.shape)

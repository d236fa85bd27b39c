"""Normalisations and softmax, with their older versions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tilewright.frontends.onnx.lowering import Lowering, Value, dtype_of
from tilewright.frontends.onnx.numbers import SHORT
from tilewright.frontends.onnx.operators.reductions import along_axis, log_sum_exp
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of


def batch_normalization(at: Lowering) -> Value | Sequence[Value]:
    """Normalisation with stored statistics, or in training mode with those of the batch."""
    if at.integer("training_mode"):
        return _training(at)
    parameters = [at.tensor(index) for index in range(1, 5)]
    return _as_image(
        at,
        lambda image: at.emit("batch_norm", image, *parameters, epsilon=at.number("epsilon", 1e-5)),
    )


def _training(at: Lowering) -> Sequence[Value]:
    """The batch's own statistics, and the running ones moved towards them."""
    x, shape = at.tensor(0), at.shape(0)
    if len(shape) < 2 or shape[0] * math.prod(shape[2:]) < 1:
        raise at.misfit(f"its input of shape {list(shape)} has no channels")
    axes = (0, *range(2, len(shape)))
    mean = at.emit("reduce_mean", x, axes=axes, keep_dims=False)
    wide = (1, shape[1], *(1 for _ in shape[2:]))
    distance = at.emit("sub", x, at.reshape(mean, wide))
    square = at.emit("mul", distance, distance)
    variance = at.emit("reduce_mean", square, axes=axes, keep_dims=False)
    epsilon, keep = at.number("epsilon", 1e-5), at.number("momentum", 0.9)
    y = at.emit("batch_norm", x, at.tensor(1), at.tensor(2), mean, variance, epsilon=epsilon)
    results: list[Value] = [y]
    for index, now in ((3, mean), (4, variance)):
        old = at.apply("mul", at.tensor(index), keep)
        results.append(at.emit("add", old, at.apply("mul", now, 1 - keep)))
    return results[: len(at.node.outputs)]


def lrn(at: Lowering) -> Value:
    """Local response normalisation over channels."""
    size = at.integer("size")
    return _as_image(
        at,
        lambda image: at.emit(
            "lrn",
            image,
            size=size,
            alpha=at.number("alpha", 1e-4),
            beta=at.number("beta", 0.75),
            bias=at.number("bias", 1.0),
        ),
    )


def softmax(at: Lowering) -> SSAValue:
    """Softmax along an axis; before operator set 13, over all axes from it on, flattened."""
    return along_axis(at, partial(_softmax, at))


def _softmax(at: Lowering, x: SSAValue, axis: int) -> SSAValue:
    """Emit a softmax; of 16-bit floats every step is rounded, as ONNX's reference has it."""
    short = dtype_of(x)
    if short not in SHORT:
        return at.emit("softmax", x, axis=axis)

    def rounded(value: SSAValue) -> SSAValue:
        return at.cast(at.cast(value, short), np.float32)

    x = at.cast(x, np.float32)
    largest = at.emit("reduce_max", x, axes=(axis,), keep_dims=True)
    powers = rounded(at.emit("exp", rounded(at.emit("sub", x, largest))))
    total = rounded(at.emit("reduce_sum", powers, axes=(axis,), keep_dims=True))
    return at.cast(at.emit("div", powers, total), short)


def log_softmax(at: Lowering) -> Value:
    """x less the logarithm of the sum of exponentials; before operator set 13, flattened."""
    return along_axis(at, lambda x, axis: at.emit("sub", x, log_sum_exp(at, x, (axis,), True)))


def centred(
    at: Lowering, x: SSAValue, axes: Sequence[int], epsilon: float
) -> tuple[SSAValue, SSAValue, SSAValue]:
    """x less its mean over axes, over its deviation; the mean; 1 over the deviation."""
    mean, distance, variance = _moments(at, x, axes)
    root = at.emit("sqrt", at.apply("add", variance, epsilon))
    numerator = at.made(1, x, "one")
    return at.emit("div", distance, root), mean, at.emit("div", numerator, root)


def _moments(at: Lowering, x: SSAValue, axes: Sequence[int]) -> tuple[SSAValue, SSAValue, SSAValue]:
    """The mean over axes, x less the mean, and the variance."""
    mean = at.emit("reduce_mean", x, axes=tuple(axes), keep_dims=True)
    distance = at.emit("sub", x, mean)
    square = at.emit("mul", distance, distance)
    return mean, distance, at.emit("reduce_mean", square, axes=tuple(axes), keep_dims=True)


def layer_normalization(at: Lowering) -> Sequence[Value]:
    """Normalisation over the axes from ``axis`` on, a scale and a shift; mean and 1 / deviation."""
    x, rank = at.tensor(0), len(at.shape(0))
    axis = at.axis(at.integer("axis", -1), rank)
    y, mean, inverse = centred(at, x, range(axis, rank), at.number("epsilon", 1e-5))
    y = at.emit("mul", y, at.tensor(1))
    if at.has(2):
        y = at.emit("add", y, at.tensor(2))
    _same_shape(at, y)
    return [y, mean, inverse][: len(at.node.outputs)]


def rms_normalization(at: Lowering) -> Value:
    """x over the root of the mean of its squares over the axes from ``axis`` on, times a scale."""
    x, rank = at.tensor(0), len(at.shape(0))
    axes = range(at.axis(at.integer("axis", -1), rank), rank)
    y = at.emit("div", x, root_of_squares(at, x, axes, at.number("epsilon", 1e-5)))
    return _same_shape(at, at.emit("mul", y, at.tensor(1)))


def root_of_squares(at: Lowering, x: SSAValue, axes: Sequence[int], epsilon: float) -> SSAValue:
    """The root of the mean of squares over axes, and a little."""
    mean = at.emit("reduce_mean", at.emit("mul", x, x), axes=tuple(axes), keep_dims=True)
    return at.emit("sqrt", at.apply("add", mean, epsilon))


def _same_shape(at: Lowering, y: SSAValue) -> SSAValue:
    if shape_of(y) != at.shape(0):
        raise at.misfit("its scale or shift does not broadcast to its input")
    return y


def instance_normalization(at: Lowering) -> Value:
    """Normalisation over the spatial axes of each channel of each image."""
    return _by_groups(at, at.shape(0)[1] if len(at.shape(0)) > 1 else 0, per_channel=True)


def group_normalization(at: Lowering) -> Value:
    """Normalisation over groups of channels; before operator set 21, scales are by group."""
    return _by_groups(at, at.integer("num_groups"), per_channel=at.version >= 21)


def _by_groups(at: Lowering, groups: int, *, per_channel: bool) -> SSAValue:
    x, shape = at.tensor(0), at.shape(0)
    if len(shape) < 3 or groups < 1 or shape[1] % groups:
        raise at.misfit(f"{list(shape)} does not divide into {groups} groups")
    grouped = (shape[0], groups, shape[1] // groups, *shape[2:])
    x = at.reshape(x, grouped)
    y, _, _ = centred(at, x, range(2, len(grouped)), at.number("epsilon", 1e-5))
    ones = (1,) * len(shape[2:])
    parameters = (1, groups, shape[1] // groups if per_channel else 1, *ones)
    for index, operation in ((1, "mul"), (2, "add")):
        if math.prod(at.shape(index)) != math.prod(parameters):
            raise at.misfit(f"its input {index} does not fit {list(shape)}")
        y = at.emit(operation, y, at.reshape(at.tensor(index), parameters))
    return at.reshape(y, shape)


def lp_normalization(at: Lowering) -> Value:
    """x over its norm along an axis; where that is 0, so is the result."""
    x, order = at.tensor(0), at.integer("p", 2)
    axis = at.axis(at.integer("axis", -1), len(at.shape(0)))
    if order not in (1, 2):
        raise at.refuse(f"p = {order} is neither 1 nor 2")
    part = at.emit("abs", x) if order == 1 else at.emit("mul", x, x)
    norm = at.emit("reduce_sum", part, axes=(axis,), keep_dims=True)
    norm = norm if order == 1 else at.emit("sqrt", norm)
    zero = at.made(0, x, "zero")
    return at.emit("select", at.apply("equal", norm, 0.0), zero, at.emit("div", x, norm))


def mean_variance_normalization(at: Lowering) -> Value:
    """x less its mean, over its deviation and a little."""
    x, rank = at.tensor(0), len(at.shape(0))
    axes = sorted({at.axis(axis, rank) for axis in at.integers("axes") or (0, 2, 3)})
    _, distance, variance = _moments(at, x, axes)
    return at.emit("div", distance, at.apply("add", at.emit("sqrt", variance), 1e-9))


def _as_image(at: Lowering, build: Callable[[SSAValue], SSAValue]) -> SSAValue:
    """Apply an operation per channel on images to a tensor of any rank from 2."""
    x, shape = at.tensor(0), at.shape(0)
    if len(shape) < 2:
        raise at.misfit(f"its input of shape {list(shape)} has no channels")
    if len(shape) != 4:
        x = at.reshape(x, (*shape[:2], 1, math.prod(shape[2:])))
    result = build(x)
    assert shape_of(result) == shape_of(x)
    return at.reshape(result, shape)

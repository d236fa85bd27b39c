"""BatchNormalization, LRN, Softmax and ReduceMean."""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.frontends.onnx.lowering import Lowering, Value
from tilewright.ir import SSAValue
from tilewright.types import shape_of


def batch_normalization(at: Lowering) -> Value:
    """Normalisation with stored statistics; training is refused."""
    if at.integer("training_mode"):
        raise at.refuse(
            "it is in training mode", help="export the model for inference", code="onnx-attribute"
        )
    parameters = [at.tensor(index) for index in range(1, 5)]
    return _as_image(
        at,
        lambda image: at.emit("batch_norm", image, *parameters, epsilon=at.number("epsilon", 1e-5)),
    )


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


def softmax(at: Lowering) -> Value:
    """Softmax along an axis; before operator set 13, over all axes from it on, flattened."""
    shape = at.shape(0)
    if not shape:
        raise at.refuse("it takes no scalar", code="onnx-shape")
    axis = at.axis(at.integer("axis", -1 if at.version >= 13 else 1), len(shape))
    x = at.tensor(0)
    if at.version >= 13 or math.prod(shape[axis:]) == shape[axis]:
        return at.emit("softmax", x, axis=axis)
    flat = at.reshape(x, (math.prod(shape[:axis]), math.prod(shape[axis:])))
    return at.reshape(at.emit("softmax", flat, axis=1), shape)


def reduce_mean(at: Lowering) -> Value:
    """Mean over axes: an attribute before operator set 18, an operand since; all if none."""
    rank = len(at.shape(0))
    axes = at.integers_at(1, "axes") if at.version >= 18 else at.integers("axes")
    if not axes and at.integer("noop_with_empty_axes"):
        return at.tensor(0)
    found = sorted({at.axis(axis, rank) for axis in axes or range(rank)})
    if not found:
        return at.tensor(0)
    keep = bool(at.integer("keepdims", 1))
    return at.emit("reduce_mean", at.tensor(0), axes=tuple(found), keep_dims=keep)


def _as_image(at: Lowering, build: Callable[[SSAValue], SSAValue]) -> SSAValue:
    """Apply an operation per channel on images to a tensor of any rank from 2."""
    x, shape = at.tensor(0), at.shape(0)
    if len(shape) < 2:
        raise at.refuse(f"its input of shape {list(shape)} has no channels", code="onnx-shape")
    if len(shape) != 4:
        x = at.reshape(x, (*shape[:2], 1, math.prod(shape[2:])))
    result = build(x)
    assert shape_of(result) == shape_of(x)
    return at.reshape(result, shape)

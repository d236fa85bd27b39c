"""Normalisations that are spelled out, put together for machines that compute them at once."""

from __future__ import annotations

import numpy as np

from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import Rewriter, only_user, producer, users
from tilewright.ir import SSAValue, f32
from tilewright.ir.types import shape_of, tensor_type


def recognise_layer_norm(op: Operation, at: Rewriter) -> bool:
    """d / sqrt(mean(d * d) + epsilon) over the last axis, with d = x - mean(x), or d = x."""
    if tensor_type(op.result).element_type != f32:
        return False
    distance, root = op.inputs
    added = producer(root, "sqrt")
    total = producer(added.inputs[0], "add") if added is not None else None
    if total is None:
        return False
    for mean, least in (total.inputs, tuple(total.inputs)[::-1]):
        epsilon = at.constant(least)
        if epsilon is None or epsilon.size != 1 or _square_of_mean(mean) is not distance:
            continue
        x = _centred(distance)
        number = float(epsilon.reshape(-1)[0])
        source, centred = distance if x is None else x, x is not None
        return at.replace(at.make("layer_norm", source, epsilon=number, centred=centred))
    return False


def scale_layer_norm(op: Operation, at: Rewriter) -> bool:
    """layer_norm(x) * c, and layer_norm(x, scale) + c, with c along the last axis: operands."""
    for index in (0, 1):
        norm, array = producer(op.inputs[index], "layer_norm"), at.constant(op.inputs[1 - index])
        if array is None or norm is None:
            continue
        shape = shape_of(norm.result)
        if only_user(norm.result) is not op or shape_of(op.result) != shape:
            continue
        if array.ndim > 0 and any(extent != 1 for extent in array.shape[:-1]):
            continue
        count = len(norm.inputs)
        if count == 3 or (op.operation == "mul" and count != 1):
            continue
        operands, of_norm = list(norm.inputs), at.of(norm)
        if op.operation == "add" and count == 1:
            operands.append(of_norm.weight(np.ones(shape[-1], array.dtype), ".scale"))
        row = np.ascontiguousarray(np.broadcast_to(array.reshape(-1), shape[-1:]))
        operands.append(of_norm.weight(row, f".{op.operation}"))
        return at.replace(of_norm.make("layer_norm", *operands, **norm.values))
    return False


def recognise_softmax(op: Operation, at: Rewriter) -> bool:
    """e / sum(e) along an axis, with e = exp(x - max(x)), which nothing else reads: softmax(x)."""
    grown = producer(op.inputs[0], "exp")
    less = producer(grown.inputs[0], "sub") if grown is not None else None
    if grown is None or less is None or only_user(less.result) is not grown:
        return False
    x, total = less.inputs[0], _reduced(op.inputs[1], "reduce_sum")
    most = _reduced(less.inputs[1], "reduce_max")
    if most is None or most[0] is not x or total is None or total != (grown.result, most[1]):
        return False
    if len(users(grown.result)) != 2:  # The sum, and the quotient.
        return False
    return at.replace(at.make("softmax", x, axis=most[1]))


def _reduced(value: SSAValue, name: str) -> tuple[SSAValue, int] | None:
    """x and its axis, when a value is a reduction along one axis, which it keeps."""
    view = producer(value, "reshape")
    reduction = producer(value if view is None else view.inputs[0], name)
    if reduction is None or len(axes := reduction.integers("axes")) != 1:
        return None
    x = reduction.inputs[0]
    shape = shape_of(x)
    axis = axes[0] % len(shape)
    kept = (*shape[:axis], 1, *shape[axis + 1 :])
    return (x, axis) if shape_of(value) == kept else None


def _mean(value: SSAValue) -> SSAValue | None:
    """x, when a value is its mean over the last axis, which it keeps."""
    mean = producer(value, "reduce_mean")
    if mean is None:
        return None
    x = mean.inputs[0]
    shape = shape_of(x)
    kept = shape_of(value) == (*shape[:-1], 1)
    axes = tuple(axis % len(shape) for axis in mean.integers("axes"))
    return x if kept and axes == (len(shape) - 1,) else None


def _square_of_mean(value: SSAValue) -> SSAValue | None:
    """d, when a value is the mean of d * d."""
    square = _mean(value)
    product = producer(square, "mul") if square is not None else None
    if product is None or product.inputs[0] is not product.inputs[1]:
        return None
    return product.inputs[0]


def _centred(value: SSAValue) -> SSAValue | None:
    """x, when a value is x - mean(x)."""
    less = producer(value, "sub")
    if less is None or _mean(less.inputs[1]) is not less.inputs[0]:
        return None
    return less.inputs[0]

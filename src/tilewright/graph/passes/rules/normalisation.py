"""Normalisations that are spelled out, put together for machines that compute them at once."""

from __future__ import annotations

import numpy as np

from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import add_weight, constant, make, only_user, replace
from tilewright.ir import PythonValue, SSAValue, f32
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import shape_of, tensor_type


def recognise_layer_norm(op: Operation, ctx: CompilerContext) -> bool:
    """d / sqrt(mean(d * d) + epsilon) over the last axis, with d = x - mean(x), or d = x."""
    if op.operation != "div" or not ctx.machine.primitives_for("layer_norm"):
        return False
    if tensor_type(op.result).element_type != f32:
        return False
    distance, root = op.inputs
    added = _only(root, "sqrt")
    total = _only(added.inputs[0], "add") if added is not None else None
    if total is None:
        return False
    for mean, number in (total.inputs, tuple(total.inputs)[::-1]):
        epsilon = constant(number, ctx)
        if epsilon is None or epsilon.size != 1 or _square_of_mean(mean) is not distance:
            continue
        x = _centred(distance)
        values: dict[str, PythonValue] = {
            "epsilon": float(epsilon.reshape(-1)[0]),
            "centred": x is not None,
        }
        source = distance if x is None else x
        replace(op, make("layer_norm", [source], values, before=op, like=op).result)
        return True
    return False


def scale_layer_norm(op: Operation, ctx: CompilerContext) -> bool:
    """layer_norm(x) * c, and layer_norm(x, scale) + c, with c along the last axis: operands."""
    if op.operation not in ("mul", "add"):
        return False
    for index in (0, 1):
        norm, array = op.inputs[index].owner, constant(op.inputs[1 - index], ctx)
        if array is None or not isinstance(norm, Operation) or norm.operation != "layer_norm":
            continue
        shape = shape_of(norm.result)
        if only_user(norm.result) is not op or shape_of(op.result) != shape:
            continue
        if array.ndim > 0 and any(extent != 1 for extent in array.shape[:-1]):
            continue
        count = len(norm.inputs)
        if count == 3 or (op.operation == "mul" and count != 1):
            continue
        operands = list(norm.inputs)
        name = norm.node_name or "norm"
        if op.operation == "add" and count == 1:
            ones = np.ones(shape[-1], array.dtype)
            operands.append(add_weight(ctx, ones, op, f"{name}.scale"))
        row = np.ascontiguousarray(np.broadcast_to(array.reshape(-1), shape[-1:]))
        operands.append(add_weight(ctx, row, op, f"{name}.{op.operation}"))
        replace(op, make("layer_norm", operands, norm.values, before=op, like=norm).result)
        return True
    return False


def _only(value: SSAValue, name: str) -> Operation | None:
    """The operation of that name that computes a value."""
    owner = value.owner
    return owner if isinstance(owner, Operation) and owner.operation == name else None


def _mean(value: SSAValue) -> SSAValue | None:
    """x, when a value is its mean over the last axis, which it keeps."""
    mean = _only(value, "reduce_mean")
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
    product = _only(square, "mul") if square is not None else None
    if product is None or product.inputs[0] is not product.inputs[1]:
        return None
    return product.inputs[0]


def _centred(value: SSAValue) -> SSAValue | None:
    """x, when a value is x - mean(x)."""
    less = _only(value, "sub")
    if less is None or _mean(less.inputs[1]) is not less.inputs[0]:
        return None
    return less.inputs[0]

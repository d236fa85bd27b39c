"""Operations that do nothing, and chains of operations that only move values."""

from __future__ import annotations

from math import prod

import numpy as np

from tilewright.graph.operations import Operation
from tilewright.graph.operations.binary import BinaryOperation
from tilewright.graph.operations.pointwise import PointwiseOperation, PReluOp
from tilewright.graph.operations.views import SliceOp
from tilewright.graph.passes.editing import Rewriter, only_user, producer
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of


def drop_identity(op: Operation, at: Rewriter) -> bool:
    """Replace an operation by its first operand, if that is always its result."""
    same = _is_identity(op, at) and op.inputs[0].type == op.result.type
    return same and at.replace(op.inputs[0])


def _is_identity(op: Operation, at: Rewriter) -> bool:
    match op.operation:
        case "reshape" | "convert_layout":
            return True
        case "transpose":
            order = op.integers("permutation")
            return list(order) == sorted(order)
        case "slice":
            shape = shape_of(op.inputs[0])
            assert isinstance(op, SliceOp)
            return op.ranges(shape) == [range(extent) for extent in shape]
        case "concat" | "interleave":
            return len(op.inputs) == 1
        case "pad":
            return not any(op.integers("pads"))
        case "mul" | "div":
            return _is_constant(op, 1.0, at)
        case "add" | "sub":
            return _is_constant(op, 0.0, at)
        case "clip":
            return op.get("minimum", -np.inf) == -np.inf and op.get("maximum", np.inf) == np.inf
        case "relu":
            return getattr(op.inputs[0].owner, "name", "") == "graph.relu"
        case _:
            return False


def _is_constant(op: Operation, number: float, at: Rewriter) -> bool:
    array = at.constant(op.inputs[1])
    return array is not None and bool((array == number).all())


def merge_reshapes(op: Operation, at: Rewriter) -> bool:
    """Rewrite reshape(reshape(x)) to reshape(x); return True if it matched."""
    inner = producer(op.inputs[0], "reshape")
    if inner is None:
        return False
    return at.replace(at.make("reshape", inner.inputs[0], **op.values), inner)


def merge_transposes(op: Operation, at: Rewriter) -> bool:
    """transpose(transpose(x)) = transpose(x) by the composed permutation."""
    inner = producer(op.inputs[0], "transpose")
    if inner is None:
        return False
    first, second = inner.integers("permutation"), op.integers("permutation")
    order = tuple(first[axis] for axis in second)
    return at.replace(at.make("transpose", inner.inputs[0], permutation=order), inner)


def transpose_to_reshape(op: Operation, at: Rewriter) -> bool:
    """A transpose that moves only axes of extent 1 is a reshape."""
    shape, order = shape_of(op.inputs[0]), op.integers("permutation")
    wide = [axis for axis in order if shape[axis] != 1]
    if wide != sorted(wide):
        return False
    return at.replace(at.make("reshape", op.inputs[0], shape=shape_of(op.result)))


def recognise_shuffle(op: Operation, at: Rewriter) -> bool:
    """Channels split into groups, the two axes swapped, and joined again: a channel shuffle."""
    swap = producer(op.inputs[0], "transpose")
    split = producer(swap.inputs[0], "reshape") if swap is not None else None
    if swap is None or split is None:
        return False
    image, parts = shape_of(split.inputs[0]), shape_of(split.result)
    if len(image) != 4 or len(parts) != 5 or shape_of(op.result) != image:
        return False
    if (parts[0], *parts[3:]) != (image[0], *image[2:]):
        return False
    if swap.integers("permutation") != (0, 2, 1, 3, 4):
        return False
    return at.replace(at.of(swap).make("channel_shuffle", split.inputs[0], groups=parts[1]))


def sink_reshape(op: Operation, at: Rewriter) -> bool:
    """map(reshape(x)) = reshape(map(x)), so that a map can join what computes x."""
    if not isinstance(op, PointwiseOperation) or len(op.inputs) != 1:
        return False
    inner = producer(op.inputs[0], "reshape")
    if inner is None:
        return False
    if only_user(inner.result) is not op or only_user(inner.inputs[0]) is not inner:
        return False
    mapped = at.make(op.operation, inner.inputs[0], **op.values)
    return at.replace(at.of(inner).make("reshape", mapped, **inner.values), inner)


def sink_reshape_of_rows(op: Operation, at: Rewriter) -> bool:
    """map(reshape(x), y) = reshape(map(x, reshape(y))), where x is the rows of a matrix product.

    The map joins the product's kernel then. ``y`` has the map's shape, or is constant per column.
    """
    if not isinstance(op, BinaryOperation):
        return False
    for index, value in enumerate(op.inputs):
        inner, other = producer(value, "reshape"), op.inputs[1 - index]
        if inner is None:
            continue
        rows, shape = shape_of(inner.inputs[0]), shape_of(op.result)
        if len(rows) != 2 or rows[-1:] != shape[-1:] or shape_of(value) != shape:
            continue
        if only_user(value) is not op or only_user(inner.inputs[0]) is not inner:
            continue
        if not _computes_rows(inner.inputs[0]):
            continue
        extents = shape_of(other)
        if extents == shape:
            target = rows
        elif prod(extents) == (extents[-1] if extents else 1):
            target = (1, prod(extents))
        else:
            continue
        operands = [inner.inputs[0], at.reshaped(other, target)]
        mapped = at.make(op.operation, *operands[:: -1 if index else 1], **op.values)
        return at.replace(at.of(inner).make("reshape", mapped, **inner.values), inner)
    return False


def _computes_rows(value: SSAValue) -> bool:
    """Return True if a value is a matrix product, or maps of one."""
    owner = value.owner
    while isinstance(owner, BinaryOperation | PointwiseOperation) and owner.inputs:
        owner = owner.inputs[0].owner
    return isinstance(owner, Operation) and owner.operation == "matmul"


def lift_constant(op: Operation, at: Rewriter) -> bool:
    """A constant operand of a map gets the result's rank: leading extents of 1."""
    if not isinstance(op, BinaryOperation | PReluOp):
        return False
    rank = len(shape_of(op.result))
    for index, value in enumerate(op.inputs):
        array = at.constant(value)
        if array is None or array.ndim == rank:
            continue
        lifted = array.reshape((1,) * (rank - array.ndim) + array.shape)
        operands = list(op.inputs)
        operands[index] = at.weight(lifted, ".constant")
        return at.replace(at.make(op.operation, *operands, **op.values))
    return False

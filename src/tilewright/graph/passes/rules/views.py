"""Operations that do nothing, and chains of operations that only move values."""

from __future__ import annotations

from math import prod

import numpy as np

from tilewright.graph.operations import Operation
from tilewright.graph.operations.binary import BinaryOperation
from tilewright.graph.operations.pointwise import PointwiseOperation, PReluOp
from tilewright.graph.operations.views import SliceOp
from tilewright.graph.passes.editing import (
    add_weight,
    constant,
    erase,
    make,
    only_user,
    replace,
    reshaped,
)
from tilewright.ir import PythonValue, SSAValue
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import shape_of


def drop_identity(op: Operation, ctx: CompilerContext) -> bool:
    """An operation whose result is its first operand: gone."""
    if not _is_identity(op, ctx) or op.inputs[0].type != op.result.type:
        return False
    replace(op, op.inputs[0])
    return True


def _is_identity(op: Operation, ctx: CompilerContext) -> bool:
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
            return _is_constant(op, 1.0, ctx)
        case "add" | "sub":
            return _is_constant(op, 0.0, ctx)
        case "clip":
            return op.get("minimum", -np.inf) == -np.inf and op.get("maximum", np.inf) == np.inf
        case "relu":
            return getattr(op.inputs[0].owner, "name", "") == "graph.relu"
        case _:
            return False


def _is_constant(op: Operation, number: float, ctx: CompilerContext) -> bool:
    array = constant(op.inputs[1], ctx)
    return array is not None and bool((array == number).all())


def merge_reshapes(op: Operation, ctx: CompilerContext) -> bool:
    """Rewrite reshape(reshape(x)) to reshape(x); return True if it matched."""
    inner = op.inputs[0].owner if op.inputs else None
    if op.operation != "reshape" or not isinstance(inner, Operation):
        return False
    if inner.operation != "reshape":
        return False
    merged = make("reshape", [inner.inputs[0]], op.values, before=op, like=op)
    replace(op, merged.result)
    _erase_unused(inner)
    return True


def merge_transposes(op: Operation, ctx: CompilerContext) -> bool:
    """transpose(transpose(x)) = transpose(x) by the composed permutation."""
    inner = op.inputs[0].owner if op.inputs else None
    if op.operation != "transpose" or not isinstance(inner, Operation):
        return False
    if inner.operation != "transpose":
        return False
    first, second = inner.integers("permutation"), op.integers("permutation")
    order = tuple(first[axis] for axis in second)
    merged = make("transpose", [inner.inputs[0]], {"permutation": order}, before=op, like=op)
    replace(op, merged.result)
    _erase_unused(inner)
    return True


def transpose_to_reshape(op: Operation, ctx: CompilerContext) -> bool:
    """A transpose that moves only axes of extent 1 is a reshape."""
    if op.operation != "transpose":
        return False
    shape, order = shape_of(op.inputs[0]), op.integers("permutation")
    wide = [axis for axis in order if shape[axis] != 1]
    if wide != sorted(wide):
        return False
    reshaped = make("reshape", [op.inputs[0]], {"shape": shape_of(op.result)}, before=op, like=op)
    replace(op, reshaped.result)
    return True


def recognise_shuffle(op: Operation, ctx: CompilerContext) -> bool:
    """Channels split into groups, the two axes swapped, and joined again: a channel shuffle."""
    swap = op.inputs[0].owner if op.operation == "reshape" else None
    if not isinstance(swap, Operation) or swap.operation != "transpose":
        return False
    split = swap.inputs[0].owner
    if not isinstance(split, Operation) or split.operation != "reshape":
        return False
    image, parts = shape_of(split.inputs[0]), shape_of(split.result)
    if len(image) != 4 or len(parts) != 5 or shape_of(op.result) != image:
        return False
    if (parts[0], *parts[3:]) != (image[0], *image[2:]):
        return False
    if swap.integers("permutation") != (0, 2, 1, 3, 4):
        return False
    if not ctx.machine.primitives_for("channel_shuffle"):
        return False
    groups: dict[str, PythonValue] = {"groups": parts[1]}
    shuffle = make("channel_shuffle", [split.inputs[0]], groups, before=op, like=swap)
    replace(op, shuffle.result)
    return True


def sink_reshape(op: Operation, ctx: CompilerContext) -> bool:
    """map(reshape(x)) = reshape(map(x)), so that a map can join what computes x."""
    if not isinstance(op, PointwiseOperation) or len(op.inputs) != 1:
        return False
    inner = op.inputs[0].owner
    if not isinstance(inner, Operation) or inner.operation != "reshape":
        return False
    if only_user(inner.result) is not op or only_user(inner.inputs[0]) is not inner:
        return False
    mapped = make(op.operation, [inner.inputs[0]], op.values, before=op, like=op)
    reshaped = make("reshape", [mapped.result], inner.values, before=op, like=inner)
    replace(op, reshaped.result)
    _erase_unused(inner)
    return True


def sink_reshape_of_rows(op: Operation, ctx: CompilerContext) -> bool:
    """map(reshape(x), y) = reshape(map(x, reshape(y))), where x is the rows of a matrix product.

    The map joins the product's kernel then. ``y`` has the map's shape, or is constant per column.
    """
    if not isinstance(op, BinaryOperation):
        return False
    for index, value in enumerate(op.inputs):
        inner, other = value.owner, op.inputs[1 - index]
        if not isinstance(inner, Operation) or inner.operation != "reshape":
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
        operands = [inner.inputs[0], reshaped(other, target, op)]
        mapped = make(op.operation, operands[:: -1 if index else 1], op.values, before=op, like=op)
        sunk = make("reshape", [mapped.result], inner.values, before=op, like=inner)
        replace(op, sunk.result)
        erase(inner)
        return True
    return False


def _computes_rows(value: SSAValue) -> bool:
    """Return True if a value is a matrix product, or maps of one."""
    owner = value.owner
    while isinstance(owner, BinaryOperation | PointwiseOperation) and owner.inputs:
        owner = owner.inputs[0].owner
    return isinstance(owner, Operation) and owner.operation == "matmul"


def lift_constant(op: Operation, ctx: CompilerContext) -> bool:
    """A constant operand of a map gets the result's rank: extents 1 in front."""
    if not isinstance(op, BinaryOperation | PReluOp):
        return False
    rank = len(shape_of(op.result))
    for index, value in enumerate(op.inputs):
        array = constant(value, ctx)
        if array is None or array.ndim == rank:
            continue
        lifted = array.reshape((1,) * (rank - array.ndim) + array.shape)
        operands = list(op.inputs)
        operands[index] = add_weight(ctx, lifted, op, f"{op.node_name or op.operation}.constant")
        replace(op, make(op.operation, operands, op.values, before=op, like=op).result)
        return True
    return False


def _erase_unused(op: Operation) -> None:
    if op.result.first_use is None:
        erase(op)

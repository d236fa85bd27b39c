"""Multiplications and additions per channel after a convolution."""

from __future__ import annotations

import numpy as np

from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import Rewriter, only_user, per_channel, producer
from tilewright.graph.passes.fuse_batch_norm import LARGEST_FACTOR, scale_convolution
from tilewright.ir.types import Array, shape_of


def into_convolution(op: Operation, at: Rewriter) -> bool:
    """conv(x) * c, / c, + c, - c and c - conv(x) with c per channel: new weights and bias."""
    affine = affine_of(op, "conv", at)
    if affine is None:
        return False
    conv, factor, shift = affine
    scaled = scale_convolution(conv, factor, shift, at.ctx)
    return scaled is not None and at.replace(scaled, conv)


def affine_of(op: Operation, name: str, at: Rewriter) -> tuple[Operation, Array, Array] | None:
    """An operation as ``name(...) * factor + shift``, factor and shift per channel.

    Channels lie along axis 1 of images, and along the last axis of a product's result.

    None unless it is a map of a producer of that name, used nowhere else, and of a constant.
    """
    for index in (0, 1):
        source, array = producer(op.inputs[index], name), at.constant(op.inputs[1 - index])
        if array is None or source is None:
            continue
        shape = shape_of(op.result)
        if only_user(source.result) is not op or shape != shape_of(source.result):
            continue
        axis = len(shape) - 1 if name == "matmul" else 1
        value = per_channel(array, shape, axis)
        if value is None or not np.issubdtype(array.dtype, np.floating):
            continue
        ones, zero = np.ones(shape[axis]), np.zeros(shape[axis])
        match op.operation:
            case "mul":
                return _sane(source, value, zero)
            case "div" if index == 0 and bool((value != 0).all()):
                return _sane(source, 1.0 / value, zero)
            case "add":
                return _sane(source, ones, value)
            case "sub":
                return _sane(source, ones, -value) if index == 0 else _sane(source, -ones, value)
            case _:
                continue
    return None


def _sane(source: Operation, factor: Array, shift: Array) -> tuple[Operation, Array, Array] | None:
    usable = np.isfinite(factor) & np.isfinite(shift) & (np.abs(factor) <= LARGEST_FACTOR)
    return (source, factor, shift) if bool(usable.all()) else None

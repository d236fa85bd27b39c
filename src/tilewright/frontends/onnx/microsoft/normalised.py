"""Normalisations with a residual, a bias or embeddings in front."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.frontends.onnx.lowering import Lowering, Value
from tilewright.frontends.onnx.operators.normalisation import centred, root_of_squares
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of


def simplified(at: Lowering) -> Sequence[Value]:
    """x over the root of the mean of its squares, times a scale."""
    rank = len(at.shape(0))
    axis = at.axis(at.integer("axis", -1), rank)
    y, inverse = _root(at, at.tensor(0), range(axis, rank), at.number("epsilon", 1e-5))
    return [at.emit("mul", y, at.tensor(1)), inverse][: len(at.node.outputs)]


def skip_layer(at: Lowering) -> Sequence[Value]:
    """Layer normalisation of x + skip + bias: operands x, skip, gamma, beta, bias."""
    total = _sum(at, 4)
    axes = (len(shape_of(total)) - 1,)
    y, mean, inverse = centred(at, total, axes, at.number("epsilon", 1e-12))
    y = at.emit("mul", y, at.tensor(2))
    y = at.emit("add", y, at.tensor(3)) if at.has(3) else y
    return [y, mean, inverse, total][: len(at.node.outputs)]


def skip_simplified(at: Lowering) -> Sequence[Value]:
    """The same by the root of the mean of squares: operands x, skip, gamma, bias."""
    total = _sum(at, 3)
    axes = (len(shape_of(total)) - 1,)
    y, inverse = _root(at, total, axes, at.number("epsilon", 1e-12))
    y = at.emit("mul", y, at.tensor(2))
    return [y, inverse, inverse, total][: len(at.node.outputs)]


def _sum(at: Lowering, bias: int) -> SSAValue:
    x, skip = at.tensor(0), at.tensor(1)
    if len(at.shape(1)) < len(at.shape(0)):
        skip = at.reshape(skip, (1,) * (len(at.shape(0)) - len(at.shape(1))) + at.shape(1))
    total = at.emit("add", x, skip)
    total = at.emit("add", total, at.tensor(bias)) if at.has(bias) else total
    if shape_of(total) != at.shape(0):
        raise at.misfit("its skip or bias widens it")
    return total


def _root(
    at: Lowering, x: SSAValue, axes: Sequence[int], epsilon: float
) -> tuple[SSAValue, SSAValue]:
    root = root_of_squares(at, x, axes, epsilon)
    numerator = at.weight(np.ones((), np.float32), f"{at.node.name}.one")
    return at.emit("div", x, root), at.emit("div", numerator, root)


def embed_layer(at: Lowering) -> Sequence[Value]:
    """Word, position and segment embeddings, added and normalised.

    Operands: tokens [b, s], segments, the three tables (words, positions, segments), gamma, beta,
    a mask [b, s], positions. Results: embeddings [b, s, h], the number of ones of each row of the
    mask, and the sum before normalisation.
    """
    shape = at.shape(0)
    if len(shape) != 2:
        raise at.misfit(f"its tokens have shape {list(shape)}, not rank 2")
    batch, length = shape

    def rows(table: int, index: SSAValue) -> SSAValue:
        return at.emit("gather", at.tensor(table), at.cast(index, np.int64), axis=0)

    total = rows(2, at.tensor(0))
    if at.has(8):
        positions = at.tensor(8)
    else:
        positions = at.weight(np.arange(length)[None], f"{at.node.name}.positions")
    total = at.emit("add", total, rows(3, positions))
    if at.has(1) != at.has(4):
        raise at.refuse("it has segments without a table of them, or the other way round")
    if at.has(1):
        total = at.emit("add", total, rows(4, at.tensor(1)))
    y, _, _ = centred(at, total, (2,), at.number("epsilon", 1e-12))
    y = at.emit("add", at.emit("mul", y, at.tensor(5)), at.tensor(6))
    if at.has(7):
        mask = at.cast(at.tensor(7), np.int32)
        count = at.emit("reduce_sum", mask, axes=(1,), keep_dims=False)
    else:
        count = at.weight(np.zeros(batch, np.int32), f"{at.node.name}.mask")
    return [y, count, total][: len(at.node.outputs)]

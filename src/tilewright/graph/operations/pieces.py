"""Convolutions and matrix products whose numbers are pieces of bfloat16 (numerics/pieces.py).

Weights of bfloat16 were split into two pieces before; weights of float32 are split into three as
the kernel runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import numpy as np

from tilewright.graph.operation import Attributes, Operation, Type
from tilewright.graph.operations.base import definition
from tilewright.graph.operations.windows import (
    WindowOperation,
    check_images,
    check_scratch,
)
from tilewright.ir import bf16, f32
from tilewright.ir.types import Array, shape_of
from tilewright.numerics import pieces, reference
from tilewright.numerics.pieces import join_weights
from tilewright.planning.domain import Role, Stage

_ROLES: tuple[Role, ...] = ("input", "weight", "scratch", "bias")


def _weights_checked(op: Operation, types: Sequence[Type], channels: int, taps: int) -> int:
    """Output channels; raises VerifyException unless the operands' types fit."""
    w = types[1].get_shape()
    op.need(types[0].element_type == f32, "takes inputs of float32")
    op.need(types[1].element_type in (bf16, f32), "takes weights of bfloat16 or float32")
    parts = pieces.TWO if types[1].element_type == bf16 else 1
    size = pieces.groups(channels) * taps * parts * pieces.GROUP
    op.need(
        len(w) == 2 and w[0] >= 1 and w[1] == size,
        f"weights of {channels} channels and {taps} taps must be [co, {size}], are {list(w)}",
    )
    check_scratch(op, types, w[0])
    return w[0]


@definition
class PieceConvOp(WindowOperation):
    """A convolution without groups on numbers in pieces; inputs are split as it runs.

    Operands are images [n, c, h, w], weights as ``numerics.pieces.split_weights`` makes them,
    scratch [elements], and perhaps a bias [co]; ``window`` is [kh, kw], other attributes are a
    conv's. Choose-methods makes it of a conv.
    """

    name = "graph.piece_conv"
    DEFAULTS: ClassVar[Attributes] = {"window": (1, 1), **WindowOperation.DEFAULTS}
    ARITY: ClassVar[tuple[int, int]] = (3, 4)
    ROLES: ClassVar[tuple[Role, ...]] = _ROLES

    def infer(self, types: Sequence[Type]) -> Type:
        """As of a conv: oh = (h + top + bottom - ((kh - 1)*dilation + 1)) // stride + 1."""
        x, window = types[0].get_shape(), self.integers("window", 2, 1)
        check_images(self, x)
        co = _weights_checked(self, types, x[1], prod(window))
        oh, ow = self.slid(x, window)
        return self.result_of((x[0], co, oh, ow), f32)

    def evaluate(self, *arrays: Array) -> Array:
        """As a conv by the sums of the weights' pieces: sums of float32 are rounded once."""
        window = self.integers("window")
        weights = join_weights(arrays[1], arrays[0].shape[1], tuple(window))
        result = reference.conv2d(arrays[0], weights, *self.slide, 1).astype(np.float32)
        return result if len(arrays) == 3 else result + arrays[3][:, None, None]

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims n, co, oh, ow | ci, kh, kw.

        Weights are said to lie as if both pieces of each were side by side, or in the order of
        their channels: what of them is read is of that size, though not in that order.
        """
        (kh, kw), ci = self.integers("window"), shape_of(self.inputs[0])[1]
        parts = shape_of(self.inputs[1])[1] // (pieces.groups(ci) * kh * kw * pieces.GROUP)
        weight = f"ci*{parts * kh * kw}+kh*{parts * kw}+kw*{parts}"
        notation = f"n ci {self.pixel}, co {weight}, 0, co -> n co oh ow"
        return self.nest(operands, result, notation, {"kh": kh, "kw": kw})


@definition
class PieceMatMulOp(Operation):
    """Rows by a matrix of weights, in pieces; the rows are split as it runs.

    Operands are rows [..., m, k], weights as ``numerics.pieces.split_weights`` makes them of
    [n, k], scratch [elements], and perhaps a bias [n]. Choose-methods makes it of a matmul.
    """

    name = "graph.piece_matmul"
    ARITY: ClassVar[tuple[int, int]] = (3, 4)
    ROLES: ClassVar[tuple[Role, ...]] = _ROLES

    def infer(self, types: Sequence[Type]) -> Type:
        """Return the type of the product, [..., m, n]."""
        x = list(types[0].get_shape())
        self.need(len(x) >= 2 and min(x) >= 1, f"rows must have rank 2 at least, have {x}")
        co = _weights_checked(self, types, x[-1], 1)
        return self.result_of((*x[:-1], co), f32)

    def evaluate(self, *arrays: Array) -> Array:
        """By the sums of the weights' pieces: sums of float32 are rounded once."""
        weights = join_weights(arrays[1], arrays[0].shape[-1], ())
        result = reference.matmul(arrays[0], weights.T).astype(np.float32)
        return result if len(arrays) == 3 else result + arrays[3]

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims n, co | ci of rows of rank 2, else b0.., m, co | ci; weights as a piece_conv's."""
        rank, depth = len(shape_of(self.result)), shape_of(self.inputs[0])[-1]
        parts = shape_of(self.inputs[1])[1] // (pieces.groups(depth) * pieces.GROUP)
        rows = " ".join((*(f"b{axis}" for axis in range(rank - 2)), "n" if rank == 2 else "m"))
        return self.nest(operands, result, f"{rows} ci, co ci*{parts}, 0, co -> {rows} co")

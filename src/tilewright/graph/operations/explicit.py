"""Explicit convolution: the window's inputs are laid side by side, then it is a matrix product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tilewright.graph.operations.base import Type, definition
from tilewright.graph.operations.windows import WindowOperation, check_images, check_scratch
from tilewright.ir.types import Array
from tilewright.numerics import reference
from tilewright.planning.domain import Role, Stage


@definition
class ExplicitConvOp(WindowOperation):
    """A convolution without groups by way of scratch (im2col; swATOP, section 3).

    Operands are images [n, c, h, w], weights [co, c, kh, kw], scratch [elements], and perhaps a
    bias [co]; attributes are a conv's. float32 only; choose-methods makes it of a conv.
    """

    name = "graph.explicit_conv"
    ARITY: ClassVar[tuple[int, int]] = (3, 4)
    ROLES: ClassVar[tuple[Role, ...]] = ("input", "weight", "scratch", "bias")
    FIXED_POINT: ClassVar[bool] = False

    def infer(self, types: Sequence[Type]) -> Type:
        """As of a conv: oh = (h + top + bottom - ((kh - 1)*dilation + 1)) // stride + 1."""
        self.check_operands(types)
        x, w = types[0].get_shape(), types[1].get_shape()
        check_images(self, x)
        self.need(
            len(w) == 4 and w[1] == x[1] and min(w) >= 1,
            f"weights of {x[1]} channels must have shape [co, {x[1]}, kh, kw], have {list(w)}",
        )
        check_scratch(self, types, w[0])
        oh, ow = self.slid(x, w[2:])
        return self.result_of((x[0], w[0], oh, ow), self.common_element(types))

    def evaluate(self, *arrays: Array) -> Array:
        """As a conv: sums of float32 are rounded once."""
        result = reference.conv2d(arrays[0], arrays[1], *self.slide, 1).astype(arrays[0].dtype)
        return result if len(arrays) == 3 else result + arrays[3][:, None, None]

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims n, co, oh, ow | ci, kh, kw."""
        notation = f"n ci {self.pixel}, co ci kh kw, 0, co -> n co oh ow"
        return self.nest(operands, result, notation)

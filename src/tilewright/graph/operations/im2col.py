"""The windows of a convolution written side by side: the first step of the explicit method where it
is a kernel of its own. The second is a convolution of windows of one point on what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tilewright.graph.operations.base import Attributes, Type, definition
from tilewright.graph.operations.windows import WindowOperation, check_images
from tilewright.ir import f32, prop_def
from tilewright.ir.types import Array, shape_of
from tilewright.planning.domain import Stage


@definition
class Im2colOp(WindowOperation):
    """Every input of every window of images, as [n, c, kh, kw, oh, ow] (swATOP, section 3).

    The operand is [n, c, h, w] float32; ``kernel`` is the window's extent, and the other attributes
    are a conv's. Element (n, c, i, j, y, x) is the input (y*stride + i*dilation - top,
    x*stride + j*dilation - left), 0 where that is padding. Choose-methods makes it of a conv.
    """

    name = "graph.im2col"
    kernel = prop_def()
    DEFAULTS: ClassVar[Attributes] = {"kernel": None, **WindowOperation.DEFAULTS}

    @property
    def how(self) -> str:
        """Name the method and its sizes."""
        rows, columns = self.integers("kernel", 2, 1)
        return f"explicit method, windows of {rows}x{columns}"

    def infer(self, types: Sequence[Type]) -> Type:
        """[n, c, kh, kw, oh, ow], oh and ow as of a conv."""
        self.check_operands(types)
        x, taps = types[0].get_shape(), self.integers("kernel", 2, 1)
        self.need(types[0].element_type == f32, "takes images of float32")
        check_images(self, x)
        oh, ow = self.slid(x, taps)
        return self.result_of((*x[:2], *taps, oh, ow), f32)

    def evaluate(self, *arrays: Array) -> Array:
        """Copies of the inputs."""
        (sh, sw), (top, left, bottom, right), (dh, dw) = self.slide
        _, _, kh, kw, oh, ow = shape_of(self.result)
        padded = np.pad(arrays[0], ((0, 0), (0, 0), (top, bottom), (left, right)))
        result = np.empty(shape_of(self.result), arrays[0].dtype)
        for i in range(kh):
            for j in range(kw):
                rows = slice(i * dh, i * dh + (oh - 1) * sh + 1, sh)
                columns = slice(j * dw, j * dw + (ow - 1) * sw + 1, sw)
                result[:, :, i, j] = padded[:, :, rows, columns]
        return result

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims n, c, kh, kw, oh, ow: a copy, none of them reduces."""
        return self.nest(operands, result, f"n c {self.pixel} -> n c kh kw oh ow")

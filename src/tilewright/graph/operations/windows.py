"""Windows that slide over images [n, c, h, w]: sizes of results, and what a window reads.

Where the explicit method's first step is a kernel of its own, it writes windows side by side. The
second is a convolution of windows of one point on what it writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tilewright.graph.operation import Attributes, Operation, Type
from tilewright.graph.operations.base import STATED, definition
from tilewright.ir import f32
from tilewright.ir.types import Array, shape_of
from tilewright.planning.domain import Stage


class WindowOperation(Operation):
    """An operation on windows of images; ``pads`` are top, left, bottom, right."""

    DEFAULTS: ClassVar[Attributes] = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}

    @property
    def slide(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Strides, pads and dilations, checked; dilations of 1 for operations that have none."""
        strides, pads = self.integers("strides", 2, 1), self.integers("pads", 4, 0)
        dilated = "dilations" in self.DEFAULTS
        return strides, pads, self.integers("dilations", 2, 1) if dilated else (1, 1)

    def windowed(self, image: Sequence[int], window: Sequence[int]) -> tuple[int, int]:
        """Rows and columns of a result; below 1 where the window exceeds the padded image."""
        return windowed(image, window, *self.slide)

    def slid(self, x: Sequence[int], window: Sequence[int]) -> tuple[int, int]:
        """Rows and columns of the result for images of shape ``x``; raises VerifyException if no
        window fits."""
        rows, columns = self.windowed(x[2:], window)
        self.need(rows >= 1 and columns >= 1, "the window exceeds the padded image")
        return rows, columns

    @property
    def pixel(self) -> str:
        """The row and the column of a pixel that a window reads, in index notation.

        They are those of tap (kh, kw) of the window of the result's pixel (oh, ow).
        """
        (down, across), (top, left, _, _), (dh, dw) = self.slide
        return f"oh*{down}+kh*{dh}-{top} ow*{across}+kw*{dw}-{left}"


def windowed(
    image: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
) -> tuple[int, int]:
    """Rows and columns of a result; below 1 where the window exceeds the padded image."""
    rows, columns = (
        (image[i] + pads[i] + pads[2 + i] - (window[i] - 1) * dilations[i] - 1) // strides[i] + 1
        for i in range(2)
    )
    return rows, columns


def check_images(op: Operation, x: Sequence[int]) -> None:
    """Check that a shape is that of images, [n, c, h, w], with a pixel at least."""
    op.need(len(x) == 4, f"images must have rank 4, have shape {list(x)}")
    op.need(min(x) >= 1, f"empty images {list(x)}")


def check_scratch(op: Operation, types: Sequence[Type], channels: int) -> None:
    """Check operands after the first two: scratch, and perhaps a bias for each channel."""
    op.need(len(types[2].get_shape()) == 1, "scratch must have rank 1")
    op.need_shapes({"bias": (channels,)}, types[3:])


@definition
class Im2colOp(WindowOperation):
    """Every input of every window of images, as [n, c, kh, kw, oh, ow] (swATOP, section 3).

    The operand is [n, c, h, w] float32; ``kernel`` is the window's extent, and the other attributes
    are a conv's. Element (n, c, i, j, y, x) is the input (y*stride + i*dilation - top,
    x*stride + j*dilation - left), 0 where that is padding. Choose-methods makes it of a conv.
    """

    name = "graph.im2col"
    DEFAULTS: ClassVar[Attributes] = {"kernel": STATED, **WindowOperation.DEFAULTS}

    @property
    def how(self) -> str:
        """Name the method and its sizes."""
        rows, columns = self.integers("kernel", 2, 1)
        return f"explicit method, windows of {rows}x{columns}"

    def infer(self, types: Sequence[Type]) -> Type:
        """[n, c, kh, kw, oh, ow], oh and ow as of a conv."""
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

"""Windows that slide over images [n, c, h, w]: sizes of results, and what a window reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tilewright.graph.operations.base import Attributes, Operation, Type


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
        """The same for images of shape ``x``; raises VerifyException where no window fits."""
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
    op.need(len(x) == 4 and min(x) >= 1, f"images must have rank 4, have shape {list(x)}")


def check_scratch(op: Operation, types: Sequence[Type], channels: int) -> None:
    """Check operands after the first two: scratch, and perhaps a bias for each channel."""
    op.need(len(types[2].get_shape()) == 1, "scratch must have rank 1")
    fits = len(types) == 3 or types[3].get_shape() == (channels,)
    op.need(fits, f"bias must have shape [{channels}]")

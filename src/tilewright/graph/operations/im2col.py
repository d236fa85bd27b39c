"""The windows of a convolution written side by side: the first step of the explicit method where it
is a kernel of its own. The second is a convolution of windows of one point on what it writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from tilewright.graph.operations.base import Operation, Type, along, definition
from tilewright.graph.operations.convolution import windowed
from tilewright.ir import PythonValue, f32, prop_def
from tilewright.ir.types import Array, shape_of
from tilewright.planning.domain import Affine, Dim, Stage


@definition
class Im2colOp(Operation):
    """Every input of every window of images, as [n, c, kh, kw, oh, ow] (swATOP, section 3).

    The operand is [n, c, h, w] float32; ``kernel`` is the window's extent, and the other attributes
    are a conv's. Element (n, c, i, j, y, x) is the input (y*stride + i*dilation - top,
    x*stride + j*dilation - left), 0 where that is padding. Choose-methods makes it of a conv.
    """

    name = "graph.im2col"
    kernel = prop_def()
    DEFAULTS: ClassVar[Mapping[str, PythonValue | None]] = {
        "kernel": None,
        "strides": (1, 1),
        "pads": (0, 0, 0, 0),
        "dilations": (1, 1),
    }

    @property
    def how(self) -> str:
        """Name the method and its sizes."""
        rows, columns = self.integers("kernel", 2, 1)
        return f"explicit method, windows of {rows}x{columns}"

    def infer(self, types: Sequence[Type]) -> Type:
        """[n, c, kh, kw, oh, ow], oh and ow as of a conv."""
        self.check_operands(types)
        x, taps = types[0].get_shape(), self.integers("kernel", 2, 1)
        strides, pads = self.integers("strides", 2, 1), self.integers("pads", 4, 0)
        dilations = self.integers("dilations", 2, 1)
        self.need(types[0].element_type == f32, "takes images of float32")
        self.need(len(x) == 4 and min(x) >= 1, f"images must have rank 4, have shape {list(x)}")
        oh, ow = windowed(x[2:], taps, strides, pads, dilations)
        self.need(oh >= 1 and ow >= 1, "the window exceeds the padded image")
        return self.result_of((*x[:2], *taps, oh, ow), f32)

    def evaluate(self, *arrays: Array) -> Array:
        """Copies of the inputs."""
        (sh, sw), (dh, dw) = self.integers("strides"), self.integers("dilations")
        top, left, bottom, right = self.integers("pads")
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
        names = ("n", "c", "kh", "kw", "oh", "ow")
        dims = [Dim(d, e) for d, e in zip(names, shape_of(self.result), strict=True)]
        (sh, sw), (dh, dw) = self.integers("strides"), self.integers("dilations")
        top, left, _, _ = self.integers("pads")
        rows = Affine((("oh", sh), ("kh", dh)), -top)
        columns = Affine((("ow", sw), ("kw", dw)), -left)
        access = (along("n"), along("c"), rows, columns)
        target = [along(name) for name in names]
        return self.make_stage(dims, operands, [(access, "input")], result, target)

"""Explicit convolution: the window's inputs are laid side by side, then it is a matrix product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from tilewright.graph.operations.base import Operation, Type, along, definition
from tilewright.graph.operations.convolution import windowed
from tilewright.ir import PythonValue
from tilewright.ir.types import Array, shape_of
from tilewright.numerics import reference
from tilewright.planning.domain import Affine, Dim, Role, Stage


@definition
class ExplicitConvOp(Operation):
    """A convolution without groups by way of scratch (im2col; swATOP, section 3).

    Operands are images [n, c, h, w], weights [co, c, kh, kw], scratch [elements], and perhaps a
    bias [co]; attributes are a conv's. float32 only; choose-methods makes it of a conv.
    """

    name = "graph.explicit_conv"
    DEFAULTS: ClassVar[Mapping[str, PythonValue | None]] = {
        "strides": (1, 1),
        "pads": (0, 0, 0, 0),
        "dilations": (1, 1),
    }
    ARITY: ClassVar[tuple[int, int]] = (3, 4)
    FIXED_POINT: ClassVar[bool] = False

    def infer(self, types: Sequence[Type]) -> Type:
        """As of a conv: oh = (h + top + bottom - ((kh - 1)*dilation + 1)) // stride + 1."""
        self.check_operands(types)
        x, w = types[0].get_shape(), types[1].get_shape()
        strides, pads = self.integers("strides", 2, 1), self.integers("pads", 4, 0)
        dilations = self.integers("dilations", 2, 1)
        self.need(len(x) == 4 and min(x) >= 1, f"images must have rank 4, have shape {list(x)}")
        self.need(
            len(w) == 4 and w[1] == x[1] and min(w) >= 1,
            f"weights of {x[1]} channels must have shape [co, {x[1]}, kh, kw], have {list(w)}",
        )
        self.need(len(types[2].get_shape()) == 1, "scratch must have rank 1")
        self.need(
            len(types) == 3 or types[3].get_shape() == (w[0],), f"bias must have shape [{w[0]}]"
        )
        oh, ow = windowed(x[2:], w[2:], strides, pads, dilations)
        self.need(oh >= 1 and ow >= 1, "the window exceeds the padded image")
        return self.result_of((x[0], w[0], oh, ow), self.common_element(types))

    def evaluate(self, *arrays: Array) -> Array:
        """As a conv: sums of float32 are rounded once."""
        attributes = (self.integers("strides"), self.integers("pads"), self.integers("dilations"))
        result = reference.conv2d(arrays[0], arrays[1], *attributes, 1).astype(arrays[0].dtype)
        return result if len(arrays) == 3 else result + arrays[3][:, None, None]

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims n, co, oh, ow | ci, kh, kw."""
        n, _, _, _ = shape_of(self.inputs[0])
        co, ci, kh, kw = shape_of(self.inputs[1])
        _, _, oh, ow = shape_of(self.result)
        (sh, sw), (top, left, _, _) = self.integers("strides"), self.integers("pads")
        dh, dw = self.integers("dilations")
        rows = Affine((("oh", sh), ("kh", dh)), -top)
        columns = Affine((("ow", sw), ("kw", dw)), -left)
        dims = [Dim("n", n), Dim("co", co), Dim("oh", oh), Dim("ow", ow)]
        dims += [Dim(name, e, "reduction") for name, e in (("ci", ci), ("kh", kh), ("kw", kw))]
        accesses: list[tuple[Sequence[Affine], Role]] = [
            ((along("n"), along("ci"), rows, columns), "input"),
            ((along("co"), along("ci"), along("kh"), along("kw")), "weight"),
            ((Affine(),), "scratch"),
            ((along("co"),), "bias"),
        ]
        image = (along("n"), along("co"), along("oh"), along("ow"))
        return self.make_stage(dims, operands, accesses[: len(self.inputs)], result, image)

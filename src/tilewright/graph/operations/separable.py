"""Depthwise separable convolution: a window per channel, then a product over the channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from tilewright.graph.operations.base import Operation, Type, along, definition
from tilewright.ir import PythonValue
from tilewright.ir.types import Array, shape_of
from tilewright.numerics import pointwise, reference
from tilewright.numerics.operators import PARAMETERS, operators
from tilewright.planning.domain import Affine, Dim, Role, Stage

BETWEEN = ("", "clip", *(name for name in operators("activation") if not PARAMETERS.get(name)))
"""The maps allowed between both convolutions: none, or one without attributes but bounds."""


@definition
class SeparableConvOp(Operation):
    """A depthwise convolution, a map, and the 1x1 convolution after it, by way of scratch.

    Chollet, "Xception", 2017; Howard et al., "MobileNets", 2017, section 3.1. Operands are images
    [n, c, h, w], depthwise weights [c, 1, kh, kw], weights [co, c, 1, 1], scratch [elements], and
    both convolutions' biases [c] and [co]. ``strides``, ``pads`` and ``dilations`` are the
    depthwise one's; ``between`` is the map, ``minimum`` and ``maximum`` a clip's bounds. float32
    only; fuse-separable makes it of two kernels.
    """

    name = "graph.separable_conv"
    DEFAULTS: ClassVar[Mapping[str, PythonValue | None]] = {
        "strides": (1, 1),
        "pads": (0, 0, 0, 0),
        "dilations": (1, 1),
        "between": "",
        "minimum": None,
        "maximum": None,
    }
    ARITY: ClassVar[tuple[int, int]] = (6, 6)
    FIXED_POINT: ClassVar[bool] = False

    @property
    def how(self) -> str:
        """The text by which `tilewright explain` tells of the kernel."""
        return "depthwise and 1x1 convolution in one kernel, block by block"

    def infer(self, types: Sequence[Type]) -> Type:
        """[n, co, oh, ow] with oh and ow as of the depthwise convolution."""
        self.check_operands(types)
        x, window, w = (kind.get_shape() for kind in types[:3])
        strides, pads = self.integers("strides", 2, 1), self.integers("pads", 4, 0)
        dilations = self.integers("dilations", 2, 1)
        self.need(len(x) == 4 and min(x) >= 1, f"images must have rank 4, have shape {list(x)}")
        self.need(
            len(window) == 4 and window[:2] == (x[1], 1) and min(window) >= 1,
            f"depthwise weights must have shape [{x[1]}, 1, kh, kw], have {list(window)}",
        )
        self.need(
            len(w) == 4 and w[1:] == (x[1], 1, 1) and w[0] >= 1,
            f"weights must have shape [co, {x[1]}, 1, 1], have {list(w)}",
        )
        self.need(len(types[3].get_shape()) == 1, "scratch must have rank 1")
        for kind, channels in ((types[4], x[1]), (types[5], w[0])):
            self.need(kind.get_shape() == (channels,), f"a bias must have shape [{channels}]")
        self.need(
            str(self.get("between", "")) in BETWEEN, f"knows the maps {', '.join(BETWEEN[1:])}"
        )
        oh, ow = (
            (x[2 + i] + pads[i] + pads[2 + i] - (window[2 + i] - 1) * dilations[i] - 1)
            // strides[i]
            + 1
            for i in range(2)
        )
        self.need(oh >= 1 and ow >= 1, "the window exceeds the padded image")
        return self.result_of((x[0], w[0], oh, ow), self.common_element(types))

    def evaluate(self, *arrays: Array) -> Array:
        """As the convolutions and the map one after the other."""
        x, window, w, _, first, second = arrays
        attributes = self.integers("strides"), self.integers("pads"), self.integers("dilations")
        inner = reference.conv2d(x, window, *attributes, x.shape[1]).astype(x.dtype)
        inner = inner + first[:, None, None]
        between = str(self.get("between", ""))
        if between:
            bounds = {k: v for k, v in self.values.items() if k in ("minimum", "maximum")}
            inner = pointwise.evaluate(
                between, [inner], fractions=(0,), result_fraction=0, attributes=bounds, fixed=False
            )
        plain = (1, 1), (0, 0, 0, 0), (1, 1)
        result = reference.conv2d(inner, w, *plain, 1).astype(x.dtype)
        return result + second[:, None, None]

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims n, co, oh, ow | c, kh, kw."""
        n, c, _, _ = shape_of(self.inputs[0])
        _, _, kh, kw = shape_of(self.inputs[1])
        _, co, oh, ow = shape_of(self.result)
        (sh, sw), (top, left, _, _) = self.integers("strides"), self.integers("pads")
        dh, dw = self.integers("dilations")
        rows = Affine((("oh", sh), ("kh", dh)), -top)
        columns = Affine((("ow", sw), ("kw", dw)), -left)
        dims = [Dim("n", n), Dim("co", co), Dim("oh", oh), Dim("ow", ow)]
        dims += [Dim(name, e, "reduction") for name, e in (("c", c), ("kh", kh), ("kw", kw))]
        still = Affine()
        accesses: list[tuple[Sequence[Affine], Role]] = [
            ((along("n"), along("c"), rows, columns), "input"),
            ((along("c"), still, along("kh"), along("kw")), "weight"),
            ((along("co"), along("c"), still, still), "weight"),
            ((still,), "scratch"),
            ((along("c"),), "bias"),
            ((along("co"),), "bias"),
        ]
        image = (along("n"), along("co"), along("oh"), along("ow"))
        return self.make_stage(dims, operands, accesses, result, image)

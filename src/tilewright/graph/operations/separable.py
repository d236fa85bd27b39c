"""Depthwise separable convolution: a window per channel, then a product over the channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tilewright.graph.operation import Attributes, Type
from tilewright.graph.operations.base import definition
from tilewright.graph.operations.windows import WindowOperation, check_images
from tilewright.ir.types import Array
from tilewright.numerics import pointwise, reference
from tilewright.numerics.operators import PARAMETERS, operators
from tilewright.planning.domain import Role, Stage

BETWEEN = ("", "clip", *(name for name in operators("activation") if not PARAMETERS.get(name)))
"""The maps allowed between both convolutions: none, or one without attributes but bounds."""


@definition
class SeparableConvOp(WindowOperation):
    """A depthwise convolution, a map, and the 1x1 convolution after it, by way of scratch.

    Chollet, "Xception", 2017; Howard et al., "MobileNets", 2017, section 3.1. Operands are images
    [n, c, h, w], depthwise weights [c, 1, kh, kw], weights [co, c, 1, 1], scratch [elements], and
    both convolutions' biases [c] and [co]. ``strides``, ``pads`` and ``dilations`` are the
    depthwise one's; ``between`` is the map, ``minimum`` and ``maximum`` a clip's bounds. float32
    only; fuse-separable makes it of two kernels.
    """

    name = "graph.separable_conv"
    DEFAULTS: ClassVar[Attributes] = {
        **WindowOperation.DEFAULTS,
        "between": "",
        "minimum": None,
        "maximum": None,
    }
    ARITY: ClassVar[tuple[int, int]] = (6, 6)
    ROLES: ClassVar[tuple[Role, ...]] = ("input", "weight", "weight", "scratch", "bias", "bias")
    FIXED_POINT: ClassVar[bool] = False

    @property
    def how(self) -> str:
        """The text by which `tilewright explain` tells of the kernel."""
        return "depthwise and 1x1 convolution in one kernel, block by block"

    def infer(self, types: Sequence[Type]) -> Type:
        """[n, co, oh, ow] with oh and ow as of the depthwise convolution."""
        x, window, w = (kind.get_shape() for kind in types[:3])
        check_images(self, x)
        self.need(
            len(window) == 4 and window[:2] == (x[1], 1) and min(window) >= 1,
            f"depthwise weights must have shape [{x[1]}, 1, kh, kw], have {list(window)}",
        )
        self.need(
            len(w) == 4 and w[1:] == (x[1], 1, 1) and w[0] >= 1,
            f"weights must have shape [co, {x[1]}, 1, 1], have {list(w)}",
        )
        self.need(len(types[3].get_shape()) == 1, "scratch must have rank 1")
        self.need_shapes({"the first bias": x[1:2], "the second bias": w[:1]}, types[4:])
        self.need(
            str(self.get("between", "")) in BETWEEN, f"knows the maps {', '.join(BETWEEN[1:])}"
        )
        oh, ow = self.slid(x, window[2:])
        return self.result_of((x[0], w[0], oh, ow), self.common_element(types))

    def evaluate(self, *arrays: Array) -> Array:
        """As the convolutions and the map one after the other."""
        x, window, w, _, first, second = arrays
        inner = reference.conv2d(x, window, *self.slide, x.shape[1]).astype(x.dtype)
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
        notation = f"n c {self.pixel}, c 0 kh kw, co c 0 0, 0, c, co -> n co oh ow"
        return self.nest(operands, result, notation)

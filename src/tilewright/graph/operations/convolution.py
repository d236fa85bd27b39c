"""Convolution, with groups, dilation and asymmetric padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

import numpy as np

from tilewright.graph.operation import SHORT_FLOATS, Attributes, Operation, Type
from tilewright.graph.operations.base import definition
from tilewright.graph.operations.windows import WindowOperation, check_images
from tilewright.ir import (
    Attribute,
    f32,
    i8,
    i16,
    i32,
)
from tilewright.ir.types import UNSIGNED, Array, FixedType, shape_of
from tilewright.numerics import fixed, reference
from tilewright.numerics.element_types import widened
from tilewright.planning.domain import Role, Stage


@definition
class ConvOp(WindowOperation):
    """Cross-correlation of images [n, c, h, w] with weights [co, c/group, kh, kw].

    An optional third operand [co] is added. ``pads`` are top, left, bottom, right. In fixed point:
    16-bit images and weights, a 32-bit bias at the sum of their binary points, 32-bit result there.
    8-bit integers, of either sign: an int32 bias and result, exact modulo 2**32. Weights may be
    16-bit floats, of a float32 image or one of the same elements: the result is float32. So it is
    of a float32 image and weights of int16. ``fill`` is what the padding of 8-bit images holds,
    where that is not 0: a zero point.
    """

    name = "graph.conv"
    DEFAULTS: ClassVar[Attributes] = {**WindowOperation.DEFAULTS, "group": 1, "fill": None}
    ARITY: ClassVar[tuple[int, int]] = (2, 3)
    ROLES: ClassVar[tuple[Role, ...]] = ("input", "weight", "bias")

    def infer(self, types: Sequence[Type]) -> Type:
        """[n, co, oh, ow] with oh = (h + top + bottom - ((kh - 1)*dilation + 1)) // stride + 1."""
        x, w = types[0].get_shape(), types[1].get_shape()
        check_images(self, x)
        self.need(len(w) == 4, f"weights must have rank 4, have shape {list(w)}")
        self.need(min(w) >= 1, f"empty weights {list(w)}")
        (_, pads, dilations), group = self.slide, self.integer("group", 1, 2**24)
        self.need(
            x[1] == w[1] * group,
            f"{x[1]} input channels, but weights for {w[1]} channels in {group} groups",
        )
        self.need(w[0] % group == 0, f"{w[0]} output channels do not divide into {group} groups")
        self.need_shapes({"bias": w[:1]}, types[2:])
        oh, ow = self.windowed(x[2:], w[2:])
        self.need(
            oh >= 1 and ow >= 1,
            f"kernel {list(w[2:])} with dilations {list(dilations)} exceeds the padded image "
            f"{[x[2] + pads[0] + pads[2], x[3] + pads[1] + pads[3]]}",
        )
        self._check_fill(types[0])
        return self.result_of((x[0], w[0], oh, ow), product_element(self, types))

    def _check_fill(self, image: Type) -> None:
        if not self.get("fill", 0):
            return
        element = image.element_type
        limits = {i8: np.iinfo(np.int8), UNSIGNED[8]: np.iinfo(np.uint8)}
        kind = next((info for known, info in limits.items() if known == element), None)
        self.need(kind is not None, f"padding of {element} is 0")
        fill = self.integer("fill", -(2**31), 2**31)
        self.need(kind is None or kind.min <= fill <= kind.max, f"fill {fill} is no {element}")

    def evaluate(self, *arrays: Array) -> Array:
        """Sums of float32 are rounded once; fixed point is exact modulo 2**32.

        Plain integers are exact as long as sums stay below 2**53.
        """
        strides, pads, dilations = self.slide
        arrays = tuple(factors(arrays))
        fill = self.get("fill", 0)
        if fill:
            around = ((0, 0), (0, 0), pads[::2], pads[1::2])
            arrays = (np.pad(arrays[0], around, constant_values=cast(int, fill)), *arrays[1:])
            pads = (0, 0, 0, 0)
        attributes = strides, pads, dilations, self.integer("group", 1, 2**24)
        bias = arrays[2] if len(arrays) == 3 else None
        if self.is_fixed:
            return fixed.conv2d(arrays[0], arrays[1], bias, *attributes)
        dtype = np.dtype(np.int32) if arrays[0].dtype.itemsize == 1 else arrays[0].dtype
        result = reference.conv2d(arrays[0], arrays[1], *attributes).astype(dtype)
        return result if bias is None else result + bias[:, None, None]

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims n, [g], co, oh, ow | ci, kh, kw; depthwise: n, c, oh, ow | kh, kw."""
        group, channels = self.integer("group", 1, 2**24), shape_of(self.inputs[0])[1]
        co, ci, _, _ = shape_of(self.inputs[1])
        if group > 1 and group == channels == co:
            notation = f"n c {self.pixel}, c 0 kh kw, c -> n c oh ow"
            return self.nest(operands, result, notation, operation="depthwise_conv")
        source, target, extents = "ci", "co", dict[str, int]()
        if group > 1:
            source, target = f"g*{ci}+ci", f"g*{co // group}+co"
            extents = {"g": group, "co": co // group}
        notation = f"n {source} {self.pixel}, {target} ci kh kw, {target} -> n {target} oh ow"
        return self.nest(operands, result, notation, extents)


def factors(arrays: Sequence[Array]) -> list[Array]:
    """Floats of 16 bits as float32, and integers of 16 bits that float32 is multiplied with; all
    other arrays as they are."""
    wide = widened(arrays)
    if wide[0].dtype == np.float32:
        wide = [a.astype(np.float32) if a.dtype == np.int16 else a for a in wide]
    return wide


def product_element(operation: Operation, types: Sequence[Type]) -> Attribute:
    """Element type of a sum of products with an optional bias; raises VerifyException."""
    x = types[0].element_type
    if all(kind.element_type in (i8, UNSIGNED[8]) for kind in types[:2]):
        operation.need(
            len(types) == 2 or types[2].element_type == i32,
            "products of 8-bit integers take a bias of int32",
        )
        return i32
    elements = [kind.element_type for kind in types]
    if elements[:2] == [f32, i16]:
        operation.need(all(e == f32 for e in elements[2:]), "float32 images take such a bias")
        return f32
    if elements[1] in SHORT_FLOATS and x in (f32, elements[1]):
        operation.need(
            all(element in (f32, elements[1]) for element in elements[2:]),
            "products of 16-bit floats take a bias of float32, or of their own elements",
        )
        return f32
    if not isinstance(x, FixedType):
        return operation.common_element(types)
    left, right = operation.fixed(types[0]), operation.fixed(types[1])
    result = FixedType.of(32, left.fraction.data + right.fraction.data)
    if len(types) == 3:
        operation.need(
            types[2].element_type == result,
            f"bias has elements {types[2].element_type}, needs {result}",
        )
    return result

"""Pooling over windows of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tilewright.graph.operation import Attributes, Type
from tilewright.graph.operations.base import STATED, definition
from tilewright.graph.operations.windows import WindowOperation, check_images
from tilewright.ir.types import Array, shape_of
from tilewright.numerics import fixed, reference
from tilewright.numerics.element_types import widened
from tilewright.planning.domain import Stage


class PoolOperation(WindowOperation):
    """A reduction over windows of [n, c, h, w]; ``pads`` are top, left, bottom, right."""

    DEFAULTS: ClassVar[Attributes] = {"kernel": STATED, **WindowOperation.DEFAULTS}

    def infer(self, types: Sequence[Type]) -> Type:
        """[n, c, oh, ow]; every window must touch the image (or padding that counts)."""
        x = types[0].get_shape()
        check_images(self, x)
        kernel, (strides, pads, dilations) = self.integers("kernel", 2, 1), self.slide
        extents = self.windowed(x[2:], kernel)
        self.need(min(extents) >= 1, f"kernel {list(kernel)} exceeds the padded image")
        self.check_shape((x[0], x[1], *extents), "the result")
        counted = self.integers("counted", 4, 0) if "counted" in self.DEFAULTS else (0, 0, 0, 0)
        counts = reference.axis_counts(x[2:], kernel, strides, pads, dilations, counted)
        self.need(
            all(int(axis.min()) >= 1 for axis in counts),
            f"pads {list(pads)} leave a window wholly in the padding",
        )
        return self.result_of((x[0], x[1], *extents), types[0].element_type)

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims n, c, oh, ow | kh, kw."""
        kh, kw = self.integers("kernel")
        return self.nest(operands, result, f"n c {self.pixel} -> n c oh ow", {"kh": kh, "kw": kw})


@definition
class MaxPoolOp(PoolOperation):
    """The largest element of each window; padding takes no part."""

    name = "graph.max_pool"

    def evaluate(self, *arrays: Array) -> Array:
        """Exact for every element type."""
        (x,) = widened(arrays)
        result = reference.max_pool2d(x, self.integers("kernel"), *self.slide)
        return self.as_result(result.astype(x.dtype))


@definition
class AveragePoolOp(PoolOperation):
    """The mean of each window.

    The divisor counts the window's elements in the image and in ``counted``, the part of the
    padding (top, left, bottom, right) that counts. In fixed point a ``factor`` may stand for the
    division: (factor, shift) for sum * factor / 2**shift, rounded half up.
    """

    name = "graph.average_pool"
    DEFAULTS: ClassVar[Attributes] = {
        "kernel": STATED,
        "strides": (1, 1),
        "pads": (0, 0, 0, 0),
        "counted": (0, 0, 0, 0),
        "factor": None,
    }

    @property
    def counts_all(self) -> bool:
        """True if every window counts all of its elements."""
        kernel, counted = self.integers("kernel"), self.integers("counted")
        strides, pads, _ = self.slide
        shape = shape_of(self.inputs[0])[2:]
        counts = reference.axis_counts(shape, kernel, strides, pads, (1, 1), counted)
        return all(bool((axis == size).all()) for axis, size in zip(counts, kernel, strict=True))

    def evaluate(self, *arrays: Array) -> Array:
        """Float32 sums in float32; fixed point divides the exact sum, rounding half up."""
        strides, pads, _ = self.slide
        attributes = (self.integers("kernel"), strides, pads, self.integers("counted"))
        if self.is_fixed and "factor" in self.values:
            return fixed.scaled_pool2d(arrays[0], *attributes[:3], *self.integers("factor", 2, 0))
        if self.is_fixed:
            return fixed.average_pool2d(arrays[0], *attributes)
        (x,) = widened(arrays)
        return self.as_result(reference.average_pool2d(x, *attributes))

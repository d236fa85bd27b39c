"""Pooling over windows of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from tilewright.graph.operations.base import Operation, Type, along, definition
from tilewright.ir import PythonValue, prop_def
from tilewright.ir.types import Array, shape_of
from tilewright.numerics import fixed, reference
from tilewright.numerics.element_types import widened
from tilewright.planning.domain import Affine, Dim, Stage


class PoolOperation(Operation):
    """A reduction over windows of [n, c, h, w]; ``pads`` are top, left, bottom, right."""

    DEFAULTS: ClassVar[Mapping[str, PythonValue | None]] = {
        "kernel": None,
        "strides": (1, 1),
        "pads": (0, 0, 0, 0),
        "dilations": (1, 1),
    }

    @property
    def dilations_or_one(self) -> tuple[int, ...]:
        """Dilations; (1, 1) for pools that have none."""
        return self.integers("dilations", 2, 1) if "dilations" in self.DEFAULTS else (1, 1)

    def infer(self, types: Sequence[Type]) -> Type:
        """[n, c, oh, ow]; every window must touch the image (or padding that counts)."""
        self.check_operands(types)
        x = types[0].get_shape()
        self.need(len(x) == 4, f"images must have rank 4, have shape {list(x)}")
        self.need(min(x) >= 1, f"empty images {list(x)}")
        kernel, strides = self.integers("kernel", 2, 1), self.integers("strides", 2, 1)
        pads, dilations = self.integers("pads", 4, 0), self.dilations_or_one
        extents: list[int] = []
        for i in range(2):
            span = (kernel[i] - 1) * dilations[i] + 1
            padded = x[2 + i] + pads[i] + pads[2 + i]
            self.need(span <= padded, f"kernel {list(kernel)} exceeds the padded image")
            extents.append((padded - span) // strides[i] + 1)
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
        n, c, oh, ow = shape_of(self.result)
        (kh, kw), (sh, sw) = self.integers("kernel"), self.integers("strides")
        (top, left, _, _), (dh, dw) = self.integers("pads"), self.dilations_or_one
        dims = (
            Dim("n", n),
            Dim("c", c),
            Dim("oh", oh),
            Dim("ow", ow),
            Dim("kh", kh, "reduction"),
            Dim("kw", kw, "reduction"),
        )
        access = (
            along("n"),
            along("c"),
            Affine((("oh", sh), ("kh", dh)), -top),
            Affine((("ow", sw), ("kw", dw)), -left),
        )
        target = (along("n"), along("c"), along("oh"), along("ow"))
        return self.make_stage(dims, operands, [(access, "input")], result, target)


@definition
class MaxPoolOp(PoolOperation):
    """The largest element of each window; padding takes no part."""

    name = "graph.max_pool"
    kernel = prop_def()

    def evaluate(self, *arrays: Array) -> Array:
        """Exact for every element type."""
        (x,) = widened(arrays)
        result = reference.max_pool2d(
            x,
            self.integers("kernel"),
            self.integers("strides"),
            self.integers("pads"),
            self.integers("dilations"),
        )
        return self.as_result(result.astype(x.dtype))


@definition
class AveragePoolOp(PoolOperation):
    """The mean of each window.

    The divisor counts the window's elements in the image and in ``counted``, the part of the
    padding (top, left, bottom, right) that counts. In fixed point a ``factor`` may stand for the
    division: (factor, shift) for sum * factor / 2**shift, rounded half up.
    """

    name = "graph.average_pool"
    kernel = prop_def()
    DEFAULTS: ClassVar[Mapping[str, PythonValue | None]] = {
        "kernel": None,
        "strides": (1, 1),
        "pads": (0, 0, 0, 0),
        "counted": (0, 0, 0, 0),
        "factor": None,
    }

    @property
    def counts_all(self) -> bool:
        """True if every window counts all of its elements."""
        kernel, strides = self.integers("kernel"), self.integers("strides")
        pads, counted = self.integers("pads"), self.integers("counted")
        shape = shape_of(self.inputs[0])[2:]
        counts = reference.axis_counts(shape, kernel, strides, pads, (1, 1), counted)
        return all(bool((axis == size).all()) for axis, size in zip(counts, kernel, strict=True))

    def evaluate(self, *arrays: Array) -> Array:
        """Float32 sums in float32; fixed point divides the exact sum, rounding half up."""
        attributes = (
            self.integers("kernel"),
            self.integers("strides"),
            self.integers("pads"),
            self.integers("counted"),
        )
        if self.is_fixed and "factor" in self.values:
            return fixed.scaled_pool2d(arrays[0], *attributes[:3], *self.integers("factor", 2, 0))
        if self.is_fixed:
            return fixed.average_pool2d(arrays[0], *attributes)
        (x,) = widened(arrays)
        return self.as_result(reference.average_pool2d(x, *attributes))

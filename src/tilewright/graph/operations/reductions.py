"""Reductions over axes: sums, products, extremes, means, where an extreme lies, its gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from tilewright.graph.operation import Attributes, Operation, Type
from tilewright.graph.operations.base import STATED, define, definition
from tilewright.ir import i1, i64
from tilewright.ir.types import Array, FixedType, shape_of
from tilewright.numerics import fixed, reference
from tilewright.numerics.element_types import widened
from tilewright.planning.domain import Stage


class ReduceOperation(Operation):
    """A reduction over ``axes``, which stay as extent 1 if ``keep_dims``."""

    DEFAULTS: ClassVar[Attributes] = {"axes": STATED, "keep_dims": True}

    @property
    def keeps(self) -> bool:
        """True if the axes stay."""
        return bool(self.get("keep_dims", True))

    def reduced(self, rank: int) -> tuple[int, ...]:
        """The axes, ascending and not negative; raises VerifyException."""
        axes = self.integers("axes")
        self.need(
            all(-rank <= axis < rank for axis in axes)
            and len({axis % rank for axis in axes}) == len(axes) >= 1,
            f"axes {list(axes)} must name distinct axes of rank {rank}, one at least",
        )
        return tuple(sorted(axis % rank for axis in axes))

    def infer(self, types: Sequence[Type]) -> Type:
        """The shape without the axes, or with extent 1 there."""
        shape = types[0].get_shape()
        axes = self.reduced(len(shape))
        self.need(all(shape[axis] >= 1 for axis in axes), f"an axis of {list(shape)} is empty")
        kept = [
            1 if i in axes else extent
            for i, extent in enumerate(shape)
            if self.keeps or i not in axes
        ]
        return self.result_of(kept, types[0].element_type)

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims d{axis} of the kept axes | r{axis} of the reduced ones."""
        rank = len(shape_of(self.inputs[0]))
        axes = self.reduced(rank)
        reads = [f"r{i}" if i in axes else f"d{i}" for i in range(rank)]
        kept = ["0" if i in axes else f"d{i}" for i in range(rank) if self.keeps or i not in axes]
        return self.nest(operands, result, f"{' '.join(reads)} -> {' '.join(kept)}")


@definition
class ReduceMeanOp(ReduceOperation):
    """The mean over ``axes``, which stay as extent 1 if ``keep_dims``."""

    name = "graph.reduce_mean"

    def infer(self, types: Sequence[Type]) -> Type:
        """The shape without the axes, or with extent 1 there."""
        result = super().infer(types)
        if not isinstance(result.element_type, FixedType):
            self.need_float(result)
        return result

    def evaluate(self, *arrays: Array) -> Array:
        """Float32 sums in float32; fixed point divides the exact sum, rounding half up."""
        axes = self.reduced(arrays[0].ndim)
        if self.is_fixed:
            return fixed.reduce_mean(arrays[0], axes, self.keeps)
        (x,) = widened(arrays)
        mean = x.mean(axis=axes, keepdims=self.keeps, dtype=x.dtype)
        return self.as_result(np.asarray(mean))


class FoldOperation(ReduceOperation):
    """A reduction that folds elements into one of the same type; integers wrap around."""

    FOLD: ClassVar[Callable[..., Array]]
    ORDERED: ClassVar[bool] = False
    """True if the result is one of the elements, so that fixed point has it too."""

    def infer(self, types: Sequence[Type]) -> Type:
        """The shape without the axes, or with extent 1 there."""
        result = super().infer(types)
        fixed_point = isinstance(result.element_type, FixedType)
        self.need(self.ORDERED or not fixed_point, "is not defined on fixed point")
        self.need(self.ORDERED or result.element_type != i1, "is not defined on booleans")
        return result

    def evaluate(self, *arrays: Array) -> Array:
        """Floats in their own type; those of 16 bits in float32, rounded at the end."""
        (x,), axes = widened(arrays), self.reduced(arrays[0].ndim)
        more = {} if self.ORDERED else {"dtype": x.dtype}
        with np.errstate(all="ignore"):
            folded = type(self).FOLD(x, axis=axes, keepdims=self.keeps, **more)
            return self.as_result(np.asarray(folded))


for _name, _fold, _ordered, _meaning in (
    ("sum", np.sum, False, "The sum of the elements along ``axes``."),
    ("product", np.prod, False, "The product of the elements along ``axes``."),
    ("max", np.max, True, "The largest element over ``axes``."),
    ("min", np.min, True, "The smallest element over ``axes``."),
):
    define(
        FoldOperation,
        {f"reduce_{_name}": _meaning},
        FOLD=_fold,
        ORDERED=_ordered,
    )


class PlaceOperation(ReduceOperation):
    """The index, as int64, of an extreme along one axis; of equal ones the first, or the last.

    NaN is taken for the extreme, as NumPy has it.
    """

    DEFAULTS: ClassVar[Attributes] = {"axes": STATED, "keep_dims": True, "last": False}
    FIXED_POINT: ClassVar[bool] = False
    PLACE: ClassVar[reference.Place]

    def infer(self, types: Sequence[Type]) -> Type:
        """The shape without the axis, or with extent 1 there, of int64."""
        result = super().infer(types)
        self.need(len(self.integers("axes")) == 1, "takes one axis")
        return self.result_of(result.get_shape(), i64)

    def evaluate(self, *arrays: Array) -> Array:
        """Compute the result, which is exact."""
        (axis,) = self.reduced(arrays[0].ndim)
        last = bool(self.get("last", False))
        places = reference.place_of_extreme(arrays[0], axis, type(self).PLACE, last=last)
        return places if self.keeps else np.squeeze(places, axis)


for _name, _place, _which in (("max", np.argmax, "largest"), ("min", np.argmin, "smallest")):
    _meaning = f"The index of the {_which} element along the one axis in ``axes``."
    define(PlaceOperation, {f"arg_{_name}": _meaning}, PLACE=_place)


@definition
class MaximumGradientOp(Operation):
    """The gradients of values of which the greatest is taken: [n, j, p] of [n, j + 2, p].

    The operand holds j values, the greatest of them, and its gradient. The first value that is no
    less than the greatest takes the gradient, the last one if no other is; the rest get 0.
    """

    name = "graph.maximum_gradient"

    def infer(self, types: Sequence[Type]) -> Type:
        """Two steps fewer along the second axis."""
        shape = types[0].get_shape()
        self.need(len(shape) == 3, f"takes rank 3, has shape {list(shape)}")
        self.need(shape[1] >= 3, f"{shape[1]} steps hold no value, its greatest and its gradient")
        return self.result_of((shape[0], shape[1] - 2, shape[2]), types[0].element_type)

    def evaluate(self, *arrays: Array) -> Array:
        """Exact for every element type."""
        return reference.maximum_gradient(np.asarray(arrays[0]))

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Dims n, j, p | k: k runs through all that is given, j through the values."""
        return self.nest(operands, result, "n k p -> n j p")

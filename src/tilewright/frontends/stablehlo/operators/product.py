"""Matrix products: dot_general, with any batch and contracting axes, and dot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.frontends.stablehlo.lowering import Lowering
from tilewright.frontends.stablehlo.values import View
from tilewright.ir import SSAValue


def dot_general(at: Lowering) -> View:
    """Sums of products over the contracting axes, for each index of the batch axes."""
    numbers = at.dimensions("dot_dimension_numbers")

    def listed(name: str) -> tuple[int, ...]:
        return tuple(int(axis) for axis in numbers.get(name, ()))

    return _product(
        at,
        listed("lhs_batching_dimensions"),
        listed("rhs_batching_dimensions"),
        listed("lhs_contracting_dimensions"),
        listed("rhs_contracting_dimensions"),
    )


def dot(at: Lowering) -> View:
    """The product of two vectors, a matrix and a vector, or two matrices."""
    return _product(at, (), (), (at.views[0].rank - 1,), (0,))


@dataclass(frozen=True)
class _Side:
    """One operand, its axes sorted by their part in the product."""

    view: View
    batch: tuple[int, ...]
    free: tuple[int, ...]
    inner: tuple[int, ...]

    def sizes(self, axes: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.view.shape[axis] for axis in axes)

    def matrix(self, at: Lowering, *, inner_first: bool) -> tuple[SSAValue, bool]:
        """The operand as matrices [batch, free, inner], and whether they are transposed.

        Which of the last two comes first is ``inner_first`` for arrays known at import; tensors
        are taken as they lie, if they lie in one of the two orders.
        """
        first, second = (self.inner, self.free) if inner_first else (self.free, self.inner)
        turned = False
        if isinstance(self.view.core, SSAValue):
            lies = [a for a in self.view.axes if self.view.extent(a) != 1]
            other = [a for a in (*self.batch, *second, *first) if self.view.extent(a) != 1]
            turned = lies == other
        if turned:
            first, second = second, first
        value = at.full(self.view, (*self.batch, *first, *second))
        shape = (*self.sizes(self.batch), math.prod(self.sizes(first)))
        value = at.reshape(value, (*shape, math.prod(self.sizes(second))))
        return value, turned


def _product(
    at: Lowering,
    left_batch: tuple[int, ...],
    right_batch: tuple[int, ...],
    left_inner: tuple[int, ...],
    right_inner: tuple[int, ...],
) -> View:
    wide = _element(at)
    sides: list[_Side] = []
    for view, batch, inner in zip(
        at.views, (left_batch, right_batch), (left_inner, right_inner), strict=True
    ):
        free = tuple(axis for axis in range(view.rank) if axis not in (*batch, *inner))
        sides.append(_Side(at.converted(view, wide), batch, free, inner))
    left, right = sides
    shape = (*left.sizes(left.batch), *left.sizes(left.free), *right.sizes(right.free))
    if not left.inner:
        return _outer(at, left, right, shape)
    a, a_turned = left.matrix(at, inner_first=False)
    b, b_turned = right.matrix(at, inner_first=True)
    value = at.emit("matmul", a, b, transpose_a=a_turned, transpose_b=b_turned)
    return View.of(at.reshape(value, shape))


def _element(at: Lowering) -> np.dtype[Any]:
    """Products are taken in the result's type; short floats have become float32."""
    wanted, have = at.kind.dtype, at.views[0].dtype
    return have if wanted.itemsize < have.itemsize else wanted


def _outer(at: Lowering, left: _Side, right: _Side, shape: Sequence[int]) -> View:
    """Nothing is summed over: a product of elements."""
    count, lefts = len(left.batch), len(left.free)
    left_axes = {axis: i for i, axis in enumerate((*left.batch, *left.free))}
    right_axes = {axis: i for i, axis in enumerate(right.batch)}
    right_axes |= {axis: count + lefts + i for i, axis in enumerate(right.free)}
    x, y = at.placed(left.view, left_axes, shape), at.placed(right.view, right_axes, shape)
    return at.pointwise("mul", x, y)

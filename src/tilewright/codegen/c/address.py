"""The addresses of a tensor's elements as C expressions of windows, layouts and strides.

An address is linear in a dim wherever the tensor's layout does not cut it into blocks, and within
a block where it does; primitives ask for these strides, and get None where there is no such one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd

from tilewright.codegen.c.source import C_TYPES, plus
from tilewright.codegen.nest.value import Value, variable
from tilewright.planning.domain import Affine
from tilewright.planning.layout import Factor, Layout


@dataclass(frozen=True)
class Extent:
    """One dim where a primitive runs: its first index, and how many the primitive covers."""

    start: Value
    """0 for a dim without a loop."""
    size: int
    starts: tuple[int, ...] = (0,)
    """All values of ``start``, ascending."""
    first: Value = 0
    """The first value of ``start`` that this core has."""

    @cached_property
    def multiple(self) -> int:
        """A number that divides every start; 0 when the start is always 0."""
        return gcd(*self.starts)


@dataclass(frozen=True)
class Address:
    """An operand of a primitive: pointer, element type, window, layout and strides."""

    pointer: str
    element: str
    shape: tuple[int, ...]
    window: tuple[Affine, ...]
    layout: Layout
    strides: tuple[int, ...]
    """Strides in elements, one for each physical axis."""

    @property
    def c_type(self) -> str:
        """C's name of the element type."""
        return C_TYPES[self.element]

    @cached_property
    def axes(self) -> tuple[tuple[tuple[Factor, int], ...], ...]:
        """For each logical axis its (factor, stride), innermost first; dense blocks are joined."""
        axes: list[tuple[tuple[Factor, int], ...]] = []
        physical = self.layout.physical_shape(self.shape)
        for axis in range(len(self.shape)):
            parts = [
                (factor, stride)
                for factor, stride, extent in zip(
                    self.layout.factors, self.strides, physical, strict=True
                )
                if factor.axis == axis and (extent > 1 or not factor.modulus)
            ]
            parts.sort(key=lambda part: part[0].divisor)
            if not parts:
                parts = [(Factor(axis), 0)]
            step = parts[0][1]
            if all(stride == step * factor.divisor for factor, stride in parts) and (
                parts[0][0].divisor == 1
            ):
                parts = [(Factor(axis), step)]
            elif len(parts) == 2 and self.shape[axis] <= parts[1][0].divisor:
                # One block only: nothing beyond it is ever addressed.
                parts = [(Factor(axis), step)]
            axes.append(tuple(parts))
        return tuple(axes)

    def dims(self) -> tuple[str, ...]:
        """The dims on which the address depends, in the order of the axes."""
        return tuple(dict.fromkeys(name for axis in self.window for name in axis.dims))

    def stride(self, dim: str, count: int, dims: Mapping[str, Extent]) -> int | None:
        """Elements from one index of ``dim`` to the next within a tile of ``count``, or None."""
        step = 0
        for window, factors in zip(self.window, self.axes, strict=True):
            coefficient = dict(window.terms).get(dim, 0)
            if not coefficient or count == 1:
                continue
            inner, inner_stride = factors[0]
            if len(factors) == 1 and not inner.modulus and inner.divisor == 1:
                step += coefficient * inner_stride
                continue
            block = inner.modulus
            if inner.divisor != 1 or not block or coefficient != 1 or count > block:
                return None
            if not self._aligned(window, block, dims, dim) and not _within(
                window, block, dims[dim], count
            ):
                return None
            step += inner_stride
        return step

    def block_stride(
        self, dim: str, block: int, count: int, dims: Mapping[str, Extent]
    ) -> int | None:
        """Elements from a block of ``dim`` to the next in a tile of ``count`` indices, or None."""
        step = 0
        for window, factors in zip(self.window, self.axes, strict=True):
            coefficient = dict(window.terms).get(dim, 0)
            if not coefficient or count <= block:
                continue
            inner, inner_stride = factors[0]
            if len(factors) == 1 and not inner.modulus and inner.divisor == 1:
                step += coefficient * inner_stride * block
                continue
            if (
                inner.divisor == 1
                and coefficient == 1
                and (_within(window, inner.modulus, dims[dim], count))
            ):
                # All in one block of several vectors.
                step += inner_stride * block
                continue
            if inner.modulus != block or len(factors) != 2 or coefficient != 1:
                return None
            if not self._aligned(window, block, dims, dim):
                return None
            step += factors[1][1]
        return step

    def _aligned(
        self, window: Affine, block: int, dims: Mapping[str, Extent], dim: str = ""
    ) -> bool:
        """Return True if every tile starts at a multiple of ``block`` along this axis."""
        if window.offset % block:
            return False
        for name, coefficient in window.terms:
            extent = dims[name]
            if (coefficient * extent.multiple) % block:
                return False
            if name != dim and extent.size > 1 and coefficient % block:
                return False
        return True

    def padded(self, dim: str, block: int) -> bool:
        """Return True if memory holds whole blocks along ``dim``, maybe past the tensor's end."""
        for window, factor in ((self.window[f.axis], f) for f in self.layout.factors):
            if dim in window.dims and factor.modulus and factor.modulus % block == 0:
                return True
        return all(
            self.shape[axis] % block == 0
            for axis, window in enumerate(self.window)
            if dim in window.dims
        )

    def part(self, axis: int, index: int) -> int:
        """Elements from index 0 along an axis to another index."""
        return sum(
            index // factor.divisor % (factor.modulus or index + 1) * stride
            for factor, stride in self.axes[axis]
        )

    def offset(self, dims: Mapping[str, Extent], added: Mapping[str, str] | None = None) -> str:
        """C expression of the offset of the tile's first element.

        ``added`` puts further C expressions to dims; blocks are then taken apart at run time.
        """
        whole: Value = 0
        rest: list[str] = []
        for window, factors in zip(self.window, self.axes, strict=True):
            parts, fixed = _parts(window, dims, added or {})
            index = _sum(parts, fixed)
            linear = len(factors) == 1 and factors[0][0] == Factor(factors[0][0].axis)
            for factor, stride in factors:
                if not stride:
                    continue
                divisor = factor.divisor
                exact = not fixed % divisor and all(
                    not (coefficient * multiple) % divisor for coefficient, _, multiple in parts
                )
                block = divisor * (factor.modulus or 0)
                if block and not fixed % block and not any(c * m % block for c, _, m in parts):
                    continue
                if linear or (exact and not factor.modulus and not stride % divisor):
                    whole += index * stride // divisor
                    continue
                digit = f"({index})" if " " in str(index) else str(index)
                digit += f" / {divisor}" if divisor > 1 else ""
                digit += f" % {factor.modulus}" if factor.modulus else ""
                rest.append(f"{digit} * {stride}" if stride != 1 else digit)
        if not rest:
            return str(whole)
        return " + ".join([*([str(whole)] if whole != 0 else []), *(f"({r})" for r in rest)])

    def first(self, dims: Mapping[str, Extent], added: Mapping[str, str] | None = None) -> str:
        """C expression of a pointer to the tile's first element."""
        return plus(self.pointer, self.offset(dims, added))

    def index(self, axis: int, dims: Mapping[str, Extent], added: Mapping[str, str]) -> str:
        """C expression of the logical index along one axis."""
        return str(_sum(*_parts(self.window[axis], dims, added)))


def _within(window: Affine, block: int, extent: Extent, count: int) -> bool:
    """Return True if ``count`` indices from every start lie in one block of an axis of one dim."""
    return (
        block > 0
        and len(window.terms) == 1
        and all((window.offset + start) % block + count <= block for start in extent.starts)
    )


def _sum(parts: Sequence[tuple[int, Value, int]], constant: int) -> Value:
    return sum((value * factor for factor, value, _ in parts), constant)


def _parts(
    window: Affine, dims: Mapping[str, Extent], added: Mapping[str, str]
) -> tuple[list[tuple[int, Value, int]], int]:
    """Return an index's terms (coefficient, value, a divisor of it) and its constant."""
    parts: list[tuple[int, Value, int]] = []
    fixed = window.offset
    for name, coefficient in window.terms:
        extent = dims[name]
        if len(extent.starts) == 1:
            fixed += coefficient * extent.starts[0]
        else:
            parts.append((coefficient, extent.start, extent.multiple))
        if added.get(name, "0") != "0":
            parts.append((coefficient, variable(added[name]), 1))
    return parts, fixed

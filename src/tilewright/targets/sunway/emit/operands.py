"""Operands of a tile's code: where an element lies in LDM, as C."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tilewright.codegen.nest.value import Value, variable
from tilewright.planning.domain import Affine
from tilewright.targets.sunway.emit.transfers import Place


@dataclass(frozen=True)
class Operand:
    """An operand of a stage in LDM."""

    place: Place
    window: tuple[Affine, ...]

    @property
    def pointer(self) -> str:
        """C of its buffer."""
        return self.place.name

    @property
    def box(self) -> str:
        """C of its box, up to the member."""
        return f"{self.place.name}_b->"

    def moving(self, dim: str) -> list[tuple[int, int]]:
        """The axes that depend on a dim, with the coefficients."""
        return [
            (axis, dict(affine.terms)[dim])
            for axis, affine in enumerate(self.window)
            if dim in affine.dims and self.place.shape[axis] > 1
        ]

    def step(self, dim: str) -> Value:
        """The elements from one index of a dim to the next; 0 if there is one element."""
        return sum(self.step_of(axis) * factor for axis, factor in self.moving(dim))

    def step_of(self, axis: int) -> Value:
        """The elements from one index of an axis to the next."""
        step = self.place.steps(self.box)[axis]
        return step if isinstance(step, int) else variable(self.place.step_names[axis])

    def innermost(self, dim: str) -> bool:
        """Return True if successive indices of a dim are adjacent in memory."""
        moving = self.moving(dim)
        return len(moving) == 1 and moving[0][1] == 1 and self.step_of(moving[0][0]) == 1

    def offset(self, indices: Mapping[str, Value]) -> Value:
        """The offset of the element at indices of the dims."""
        return self.offset_along(range(len(self.window)), indices)

    def offset_along(self, axes: Iterable[int], indices: Mapping[str, Value]) -> Value:
        """The part of it that comes from some axes."""
        return sum(
            (self.index(axis, indices) - self.place.start(axis, self.box)) * self.step_of(axis)
            for axis in axes
            if self.place.shape[axis] > 1
        )

    def index(self, axis: int, indices: Mapping[str, Value]) -> Value:
        """The tensor's index along an axis."""
        affine = self.window[axis]
        return sum((indices[dim] * factor for dim, factor in affine.terms), affine.offset)

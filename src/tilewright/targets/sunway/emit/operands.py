"""Operands of a tile's code: where an element lies in LDM, as C."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.codegen.c.source import total
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

    def step(self, dim: str) -> str:
        """C of the elements from one index of a dim to the next; "0" if there is one element."""
        terms: list[tuple[int, str]] = []
        constant = 0
        for axis, coefficient in self.moving(dim):
            step = self.step_of(axis)
            if step.isdigit():
                constant += coefficient * int(step)
            else:
                terms.append((coefficient, step))
        return total(terms, constant)

    def step_of(self, axis: int) -> str:
        """C of the elements from one index of an axis to the next."""
        text = self.place.steps(self.box)[axis]
        return text if text.isdigit() else self.place.step_names[axis]

    def innermost(self, dim: str) -> bool:
        """Whether indices of a dim lie side by side."""
        moving = self.moving(dim)
        return len(moving) == 1 and moving[0][1] == 1 and self.step_of(moving[0][0]) == "1"

    def offset(self, indices: Mapping[str, str]) -> str:
        """C of the offset of the element at indices of the dims."""
        terms: list[tuple[int, str]] = []
        constant = 0
        for axis, affine in enumerate(self.window):
            if self.place.shape[axis] == 1:
                continue
            step, start = self.step_of(axis), self.place.start(axis, self.box)
            index = self.index(axis, indices)
            if step.isdigit():
                pieces, number = split_terms(affine, indices)
                terms += [(c * int(step), name) for name, c in pieces.items()]
                constant += number * int(step)
                if start.isdigit():
                    constant -= int(start) * int(step)
                else:
                    terms.append((-int(step), start))
            else:
                inside = index if start == "0" else f"{index} - {start}"
                wrapped = f"({inside})" if " " in inside else inside
                if inside != "0":
                    terms.append((1, f"{wrapped} * {step}"))
        return total(terms, constant)

    def index(self, axis: int, indices: Mapping[str, str]) -> str:
        """C of the tensor's index along an axis."""
        pieces, number = split_terms(self.window[axis], indices)
        return total([(c, name) for name, c in pieces.items()], number)


def split_terms(affine: Affine, indices: Mapping[str, str]) -> tuple[dict[str, int], int]:
    """Variables with their coefficients, and the rest."""
    pieces: dict[str, int] = {}
    number = affine.offset
    for dim, coefficient in affine.terms:
        text = indices[dim]
        if text.isdigit():
            number += coefficient * int(text)
        else:
            pieces[text] = pieces.get(text, 0) + coefficient
    return pieces, number

"""In which layout a primitive takes an operand, by what the operand's axes are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilewright.errors import TilewrightError
from tilewright.machine import Machine, Primitive
from tilewright.machine.model import MATRICES
from tilewright.planning.domain import Operand
from tilewright.planning.layout import Factor, Layout


def operand_layout(machine: Machine, primitive: Primitive, operand: Operand) -> str:
    """Layout of an operand in main memory: a layout, ``any``, or "" (row-major).

    A primitive names the layout of a product's weights by the dims of a matrix [co, ci]:
    ``OI16o``. An operand may be such a matrix, or its transpose [ci, co], or a batch of either;
    its layout keeps batch axes outermost: [b, ci, co] lies as [b, co / 16, ci, co % 16]. A layout
    of any rank (``...NM16m16n``) is that of the axes as they are, transposed or not.
    """
    rank = len(operand.shape)
    storage = primitive.operands.get(operand.role)
    if storage is not None and storage.layout.startswith(MATRICES):
        return machine.layout_of(primitive, operand.role, rank)
    matrix = machine.layout_of(primitive, operand.role, 2)
    if operand.role != "weight" or matrix in ("", "any") or rank < 2:
        return machine.layout_of(primitive, operand.role, rank)
    transposed = "ci" not in operand.access[-1].dims
    axes = [rank - 2, rank - 1]
    of = dict(enumerate(reversed(axes) if transposed else axes))
    batch = tuple(Factor(axis) for axis in range(rank - 2))
    cut = Layout.parse(matrix, 2).factors
    layout = Layout(rank, (*batch, *(Factor(of[f.axis], f.divisor, f.modulus) for f in cut)))
    return "" if layout.row_major else str(layout)


def takes_operand(machine: Machine, primitive: Primitive, operand: Operand) -> bool:
    """Return True if a primitive reads an operand: of its element, and, for dot products, in
    words."""
    words = primitive.own.weights_in_words() and operand.role == "weight"
    element = machine.element_of(operand.element, operand.role)
    return primitive.takes(operand.role, element) and (
        not words or bool(operand_layout(machine, primitive, operand))
    )


def lies_along(
    operand: Operand, layout: str, dims: Sequence[str], extents: Mapping[str, int]
) -> bool:
    """Return True if one of the dims runs along an operand's contiguous elements in a layout.

    Dims of one index ask for nothing.
    """
    rank = len(operand.shape)
    order = [factor.axis for factor in Layout.parse(layout, rank).factors]
    axes = [axis for axis in order if operand.shape[axis] > 1]
    several = {dim for dim in dims if extents.get(dim, 1) > 1}
    return not several or (bool(axes) and not several.isdisjoint(operand.access[axes[-1]].dims))


def layout_problems(machine: Machine) -> Iterator[tuple[str, str, str]]:
    """The invalid layouts of a machine: the key, the reason, and what would be valid."""
    named = [(f"layouts.{role}", text) for role, text in machine.layouts.items()]
    for primitive in machine.primitives:
        for role, storage in primitive.operands.items():
            named.append((f"primitive.{primitive.name}.operands.{role}.layout", storage.layout))
    for where, text in named:
        try:
            text = text.removeprefix(MATRICES)
            if text != "any":
                Layout.parse(text, sum(letter.isupper() for letter in text))
        except TilewrightError as error:
            yield where, error.problems[0].reason, error.problems[0].help

"""The element types of primitives: those of the machine, unless a primitive names its own.

So one machine multiplies int8 into int32 and computes a softmax in float32. Its own element is then
the float32 of the model, or a float of 16 bits, in which all that is not quantised stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilewright.numerics.element_types import ELEMENTS, Element

if TYPE_CHECKING:
    from tilewright.machine.model import Machine, Primitive

Finding = tuple[str, str, str]
"""Key, reason, and what would help."""

PRODUCTS = ("conv", "matmul")

MULTIPLIED = (*PRODUCTS, "depthwise_conv")
"""Products by the names that primitives have for them."""


def is_mixed(machine: Machine) -> bool:
    """Return True if primitives compute on elements of their own."""
    return any(primitive.element is not None for primitive in machine.primitives)


def seen_by(machine: Machine, primitive: Primitive) -> Machine:
    """The machine with the numbers of one of its primitives."""
    if primitive.element is None:
        return machine
    sums = ELEMENTS[primitive.element].accumulator
    return machine.model_copy(update={"element": primitive.element, "accumulator": sums})


def integers_of(machine: Machine) -> Element | None:
    """The integers, whose scales are operands, that its products multiply; None if they multiply
    none."""
    if machine.number.kind == "integer":
        return machine.number
    for primitive in machine.primitives:
        if primitive.element is not None and any(op in PRODUCTS for op in primitive.operations):
            number = ELEMENTS[primitive.element]
            if number.kind == "integer":
                return number
    return None


def multiplied_integers(machine: Machine) -> frozenset[str] | None:
    """The operations whose operands become integers where a network is quantised, while all others
    stay in floats; None where any operation may.

    A machine of short floats multiplies integers, and computes all else in its floats.
    """
    if not (machine.number.is_short_float and is_mixed(machine)):
        return None
    return frozenset(
        operation
        for primitive in machine.primitives
        if primitive.element is not None and ELEMENTS[primitive.element].kind == "integer"
        for operation in primitive.operations
        if operation in MULTIPLIED
    )


def number_problems(machine: Machine) -> Iterator[Finding]:
    """Elements of primitives that do not go with the machine's."""
    for primitive in machine.primitives:
        if primitive.element is None:
            continue
        where, number = f"primitive.{primitive.name}.element", ELEMENTS[primitive.element]
        if machine.number.kind != "float":
            yield (
                where,
                f"the machine's own numbers are {machine.element}, and primitives have others "
                "beside floats alone",
                'element = "float32" of the machine',
            )
        elif not (number.is_plain or number.kind == "integer"):
            yield where, f"is {number.name}; beside floats go integers with scales", "int8"

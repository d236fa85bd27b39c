"""Element types of a stage's operands and result, as instructions name them."""

from __future__ import annotations

from typing import Any

from tilewright.ir import Attribute
from tilewright.ir.types import FixedType, element_dtype, tensor_type
from tilewright.tile.dialect import StageOp


def fraction(element: Attribute) -> int:
    """Binary point of an element type; 0 if it is not fixed point."""
    return element.fraction.data if isinstance(element, FixedType) else 0


def is_wide(element: Attribute) -> bool:
    """Return True if elements are as wide as accumulators, 4 bytes."""
    return element_dtype(element).itemsize == 4


def elements(stage: StageOp) -> tuple[list[Attribute], Attribute]:
    """Element types of a stage's operands and of its result."""
    types: list[Attribute] = []
    for value in stage.inputs:
        kind: Any = value.type
        types.append((kind.of if hasattr(kind, "of") else kind).element_type)
    return types, tensor_type(stage.result).element_type

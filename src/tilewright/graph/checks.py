"""Checks of networks and kernels that go beyond those of single operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tilewright.ir import Attribute, Block, SSAValue, VerifyException, from_attribute
from tilewright.ir.types import tensor_type


def names_in(attribute: Attribute, subject: str) -> tuple[str, ...]:
    """The distinct names in an attribute; raises VerifyException."""
    try:
        value = from_attribute(attribute)
    except TypeError:
        value = None
    names = value if isinstance(value, tuple) else (None,)
    if not all(isinstance(name, str) for name in names):
        raise VerifyException(f"{subject} must be a list of names")
    if len(set(names)) != len(names):
        raise VerifyException(f"{subject} names one twice: {list(names)}")
    return cast("tuple[str, ...]", names)


def check_order(block: Block, where: str) -> None:
    """Every operand in a block is an argument of it or was computed before, in the block."""
    known: set[SSAValue] = set(block.args)
    for op in block.ops:
        for operand in op.operands:
            if operand not in known:
                raise VerifyException(
                    f"{where}: {op.name} uses a value before it is computed, or one from outside"
                )
        known.update(op.results)


def check_alike(outside: Sequence[SSAValue], inside: Sequence[SSAValue], where: str) -> None:
    """Values agree one by one in shape and element type (layouts may differ)."""
    if len(outside) != len(inside):
        raise VerifyException(f"{where}: {len(outside)} values outside, {len(inside)} inside")
    for left, right in zip(map(tensor_type, outside), map(tensor_type, inside), strict=True):
        if left.get_shape() != right.get_shape() or left.element_type != right.element_type:
            raise VerifyException(f"{where}: {left} outside is {right} inside")

"""From planning's operands to the tensors of a tile program."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tilewright.ir import Attribute, StringAttr, integer, to_attribute
from tilewright.ir.arenas import ACTIVATIONS, WEIGHTS
from tilewright.ir.types import FixedType, element_of, tensor
from tilewright.machine import Machine
from tilewright.memory import align_up
from tilewright.numerics.element_types import ELEMENTS
from tilewright.planning.domain import Kernel, Operand
from tilewright.planning.layout import Layout
from tilewright.tile.operations import BufferOp, TensorOp

Placement = tuple[str, int, Sequence[int]]
"""The placement of a tensor: arena, offset in bytes, strides in elements of its physical axes."""


def tensor_of(operand: Operand, placement: Placement | None = None) -> TensorOp:
    """The tensor of an operand, at its place in main memory."""
    properties: dict[str, Attribute] = {
        "symbol": StringAttr(operand.name),
        "role": StringAttr(operand.role),
    }
    if placement is not None:
        arena, offset, strides = placement
        properties["arena"] = StringAttr(arena)
        properties["offset"] = integer(offset)
        properties["strides"] = to_attribute([int(stride) for stride in strides])
    op = TensorOp.build(result_types=[type_of(operand)], properties=properties)
    op.result.name_hint = value_name(operand.name)
    return op


def holding_memory(owner: object, machine: Machine) -> str:
    """The memory of a tensor or of a buffer."""
    if isinstance(owner, BufferOp):
        return owner.memory
    home = owner.memory if isinstance(owner, TensorOp) else None
    return machine.main if home is None else home.data


def separate_placements(kernel: Kernel) -> dict[str, Placement]:
    """A place for each operand of a kernel that is timed alone, in the arena of its role, with the
    strides that the operand has (``Operand.strides``)."""
    return separate_arenas(kernel)[0]


def separate_arenas(kernel: Kernel) -> tuple[dict[str, Placement], dict[str, int]]:
    """As ``separate_placements``, with the bytes of the arenas."""
    placements: dict[str, Placement] = {}
    ends = {WEIGHTS: 0, ACTIVATIONS: 0}
    for operand in kernel.operands:
        arena = WEIGHTS if operand.is_constant else ACTIVATIONS
        layout, start = Layout.parse(operand.layout, len(operand.shape)), ends[arena]
        strides = operand.strides or layout.strides(operand.shape)
        steps = zip(layout.physical_shape(operand.shape), strides, strict=True)
        size = 1 + sum((extent - 1) * stride for extent, stride in steps)
        placements[operand.name] = (arena, start, strides)
        ends[arena] = start + align_up(size * operand.element_bytes)
    return placements, ends


def type_of(operand: Operand) -> Attribute:
    """The type of an operand's tensor: shape, elements, layout."""
    known = ELEMENTS[operand.element]
    element: Attribute = (
        FixedType.of(known.bits, operand.fraction)
        if known.kind == "fixed"
        else element_of(known.dtype)
    )
    return tensor(operand.shape, element, operand.layout)


def value_name(name: str) -> str:
    """A value's name in the text: letters, digits and underscores."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    return text if text and not text[0].isdigit() else f"t_{text}"

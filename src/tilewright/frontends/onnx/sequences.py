"""Sequences and optionals whose length, or presence, is known at import: lists of values.

They are nothing that a network computes: what is taken out of them is a tensor again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import TypeProto, helper

from tilewright.frontends.moves import cut
from tilewright.frontends.onnx.limits import MAX_OPERANDS
from tilewright.frontends.onnx.lowering import Lowering, Value, dtype_of_value, shape_of_value
from tilewright.frontends.onnx.tensors import Constant
from tilewright.ir import SSAValue


@dataclass(frozen=True)
class ValueList:
    """A sequence of tensors, known at import."""

    items: tuple[Value, ...]


@dataclass(frozen=True)
class Absent:
    """An optional that holds nothing; one that holds something is the value itself."""


Item = Value | ValueList | Absent
"""The value that a name denotes: a tensor or constant, a list of them, or an absent optional."""

Items = Sequence[Item | None]

Rule = Callable[[Lowering, Items], Item]


def type_of_list(value: ValueList) -> TypeProto:
    """ONNX's type of a sequence: the shape of its tensors is part of it if they share one."""
    kinds = {(dtype_of_value(item), shape_of_value(item)) for item in value.items}
    dtypes = {dtype for dtype, _ in kinds} or {np.dtype(np.float32)}
    shape = next(iter(kinds))[1] if len(kinds) == 1 else None
    number = helper.np_dtype_to_tensor_dtype(next(iter(dtypes)))
    return helper.make_sequence_type_proto(helper.make_tensor_type_proto(number, shape))


def _listed(at: Lowering, operands: Items) -> tuple[Value, ...]:
    value = operands[0] if operands else None
    if not isinstance(value, ValueList):
        raise at.refuse("its first input is no sequence", code="onnx-dtype")
    return value.items


def tensor_of(at: Lowering, item: Item | None, subject: str = "a result") -> Value:
    """An item that has to be a tensor."""
    if item is None or isinstance(item, ValueList | Absent):
        raise at.refuse(f"{subject} is no tensor", code="onnx-dtype")
    return item


def _tensor(at: Lowering, operands: Items, index: int) -> Value:
    item = operands[index] if index < len(operands) else None
    return tensor_of(at, item, f"its input {index}")


def _place(at: Lowering, operands: Items, index: int, count: int, last: int) -> int:
    """A position among ``count``, counted from the end if it is negative; ``last`` if absent.

    That may be ``count`` itself.
    """
    if index >= len(operands) or operands[index] is None:
        place = last
    else:
        position = at.like([_tensor(at, operands, index)]).integers_at(0, "position")
        if position is None or len(position) != 1:
            raise at.refuse("its position is not one number")
        (place,) = position
    if not -count <= place < max(count, last + 1):
        raise at.misfit(f"there is no position {place} among {count}")
    return place + count if place < 0 else place


def _construct(at: Lowering, operands: Items) -> Item:
    return ValueList(tuple(_tensor(at, operands, index) for index in range(len(operands))))


def _insert(at: Lowering, operands: Items) -> Item:
    items = _listed(at, operands)
    place = _place(at, operands, 2, len(items), len(items))
    if len(items) == MAX_OPERANDS:
        raise at.refuse(f"its sequence has more than {MAX_OPERANDS} tensors", code="onnx-too-large")
    return ValueList((*items[:place], _tensor(at, operands, 1), *items[place:]))


def _erase(at: Lowering, operands: Items) -> Item:
    items = _listed(at, operands)
    place = _place(at, operands, 1, len(items), -1)
    return ValueList((*items[:place], *items[place + 1 :]))


def _at(at: Lowering, operands: Items) -> Item:
    items = _listed(at, operands)
    return items[_place(at, operands, 1, len(items), -1)]


def _length(at: Lowering, operands: Items) -> Item:
    return Constant(np.array(len(_listed(at, operands)), np.int64), f"{at.node.name}.length")


def _concat(at: Lowering, operands: Items) -> Item:
    """The tensors joined along an axis, or along a new one."""
    items = _listed(at, operands)
    new = bool(at.integer("new_axis"))
    if not items:
        raise at.misfit("its sequence is empty")
    rank = len(shape_of_value(items[0])) + new
    axis = at.axis(at.integer("axis"), rank)
    return at.joined(items, axis, new=new)


def _split(at: Lowering, operands: Items) -> Item:
    """Parts along an axis: of one size, of listed sizes, or of size 1, whose axis may go."""
    given = at.like([_tensor(at, operands, 0), *map(_narrowed, operands[1:])])
    sizes = given.shape(0)
    axis = at.axis(at.integer("axis"), len(sizes))
    extent = sizes[axis]
    widths, scalar = given.integers_at(1, "sizes"), given.has(1) and not given.shape(1)
    keep = widths is not None or bool(at.integer("keepdims", 1))
    if widths is None or scalar:
        width = 1 if widths is None else widths[0]
        if width < 1 or extent > width * MAX_OPERANDS:
            raise at.refuse(f"parts of {width} do not cut {extent}, or in too many")
        widths = tuple(min(width, extent - start) for start in range(0, extent, width))
    if sum(widths) != extent or min(widths, default=0) < 0:
        raise at.misfit(f"sizes {list(widths)} do not split {extent}")
    parts: list[Value] = []
    start, array = 0, given.constant(0)
    for width in widths:
        shape = (*sizes[:axis], *((width,) if keep else ()), *sizes[axis + 1 :])
        if array is not None or not width:
            whole = np.zeros(sizes, given.dtype(0)) if array is None else array
            part = whole.take(range(start, start + width), axis).reshape(shape)
            parts.append(Constant(part, f"{at.node.name}.{len(parts)}"))
        else:
            value = cut(at, given.tensor(0), {axis: (start, start + width, 1)})
            parts.append(at.reshape(value, shape))
        start += width
    return ValueList(tuple(parts))


def _narrowed(value: Item | None) -> Value | None:
    return value if isinstance(value, SSAValue | Constant) else None


def _optional(at: Lowering, operands: Items) -> Item:
    del at
    return Absent() if not operands or operands[0] is None else operands[0]


def _has(at: Lowering, operands: Items) -> Item:
    present = bool(operands) and operands[0] is not None and not isinstance(operands[0], Absent)
    return Constant(np.array(present), f"{at.node.name}.there")


def _get(at: Lowering, operands: Items) -> Item:
    value = operands[0] if operands else None
    if value is None or isinstance(value, Absent):
        raise at.misfit("its optional holds nothing")
    return value


RULES: Mapping[str, Rule] = {
    "ConcatFromSequence": _concat,
    "Optional": _optional,
    "OptionalGetElement": _get,
    "OptionalHasElement": _has,
    "SequenceAt": _at,
    "SequenceConstruct": _construct,
    "SequenceEmpty": lambda at, operands: ValueList(()),
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SplitToSequence": _split,
}
"""Functions by operator; each is given its operands as they are."""

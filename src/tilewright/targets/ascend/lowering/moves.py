"""Stages that move elements and compute nothing: transposes, slices, copies, padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tilewright.planning.domain import Stage
from tilewright.planning.layout import Layout
from tilewright.targets.ascend.formats import heads, matrices
from tilewright.targets.ascend.isa import WIDTHS
from tilewright.targets.ascend.kernels.heads import split_heads
from tilewright.targets.ascend.kernels.moves import (
    Dim,
    launches_of,
    move_elements,
    pad_axis,
)
from tilewright.targets.ascend.kernels.shares import joined, total
from tilewright.targets.ascend.kernels.vectors import number
from tilewright.targets.ascend.lowering.conversions import convert
from tilewright.targets.ascend.lowering.launches import Launches, Value


def _plain(launches: Launches, stage: Stage, value: Value, result: Value) -> None:
    if value.layout or result.layout or value.element != result.element:
        raise launches.refusal(
            f"{stage.operation} from {value.element} in {value.layout or 'rows'} to "
            f"{result.element} in {result.layout or 'rows'} has no kernel"
        )


def move(
    launches: Launches, stage: Stage, operands: Sequence[Value], target: Value | None
) -> Value:
    """The launches of a stage whose access map says it all; see ``STAGES``."""
    (value,), (operand,) = operands, stage.inputs
    result = target or launches.buffer(stage.output.shape, value.element)
    _plain(launches, stage, value, result)
    strides = _strides(value.shape)
    offset = sum(access.offset * step for access, step in zip(operand.access, strides, strict=True))
    extents = launches.extents(stage.output)
    dims = [Dim(extent, step) for extent, step in zip(extents, steps_of(stage), strict=True)]
    return _moved(launches, stage.operation, value, result, dims, offset)


def steps_of(stage: Stage) -> list[int]:
    """Elements from index to index of each axis of the result, in the source row by row."""
    (operand,) = stage.inputs
    strides = _strides(operand.shape)
    steps: list[int] = []
    for access in stage.output.access:
        name = access.dims[0] if access.dims else ""
        axes = zip(operand.access, strides, strict=True)
        steps.append(sum(dict(axis.terms).get(name, 0) * stride for axis, stride in axes))
    return steps


def _strides(shape: Sequence[int]) -> list[int]:
    return [prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _moved(
    launches: Launches,
    operation: str,
    value: Value,
    result: Value,
    dims: list[Dim],
    offset: int = 0,
) -> Value:
    """The launches of a move of elements, the last of which writes the result."""
    size = prod(value.shape)
    parts = launches_of(dims, WIDTHS[value.element])
    for place, part in enumerate(parts):
        last = place == len(parts) - 1
        count = prod(total(dim.extent) for dim in part)
        name = launches.name(operation)
        program = move_elements(part, launches.core, value.element, offset, size=size, name=name)
        to = result if last else launches.buffer((count,), value.element)
        launches.launch(program, value, to)
        value, offset, size = to, 0, count
    return result


def relay(
    launches: Launches, stage: Stage, operands: Sequence[Value], target: Value | None
) -> Value:
    """The launches of a change of layout, or of a copy that changes none; see ``STAGES``."""
    (value,) = operands
    result = target or launches.buffer(value.shape, value.element, stage.output.layout)
    if not value.layout and not result.layout:
        return move(launches, stage, operands, result)
    short = False
    if not any(map(_is_special, (value, result))):
        rank = len(value.shape)
        short = rank > 1 and bool(launches.free.intersection(stage.inputs[0].access[-2].dims))
    if value.layout and result.layout:
        if value.lies_in(HEADS) and result.lies_in(HEADS):
            raise launches.refusal("there is no copy of heads")
        rows = launches.buffer(value.shape, value.element)
        _change(launches, stage, value, rows, short=short)
        value = rows
    _change(launches, stage, value, result, short=short)
    return result


HEADS = Layout.parse(heads(), 4)


def _is_special(value: Value) -> bool:
    """Return True if a value's matrices of heads are in Nz, or it is in Nz of its transposes."""
    return value.lies_in(HEADS) or value.in_blocks(turned=True)


def _change(launches: Launches, stage: Stage, source: Value, target: Value, *, short: bool) -> None:
    """From a format to rows, or from rows to a format."""
    back = bool(source.layout)
    blocked = source if back else target
    if blocked.lies_in(HEADS):
        _split(launches, stage, source, target, back=back)
    elif not blocked.in_blocks(turned=True):
        convert(launches, stage, source, target, short=short)
    elif back:
        rows = launches.buffer(_exchanged(source.shape), source.element)
        convert(launches, stage, _turned(source), rows)
        _transposed(launches, rows, target)
    else:
        rows = launches.buffer(_exchanged(source.shape), source.element)
        convert(launches, stage, _transposed(launches, source, rows), _turned(target))


def _turned(value: Value) -> Value:
    """The transposes of a value that is in Nz of them, where it lies."""
    layout = str(matrices(len(value.shape)))
    return replace(value, shape=_exchanged(value.shape), layout=layout)


def _exchanged(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2])


def _transposed(launches: Launches, value: Value, result: Value) -> Value:
    """Matrices row by row, transposed."""
    rows, columns = value.shape[-2:]
    dims = [Dim(prod(value.shape[:-2]), rows * columns), Dim(columns, 1), Dim(rows, columns)]
    return _moved(launches, "transpose", value, result, dims)


def _split(launches: Launches, stage: Stage, value: Value, result: Value, *, back: bool) -> None:
    if value.element != "half" or result.element != "half":
        raise launches.refusal(f"there is no change of format of {value.element}")
    batch, rows, count, _ = launches.extents(stage.output)
    name = launches.name("heads")
    program = split_heads(batch, rows, count, value.shape[3], launches.core, name, back=back)
    launches.launch(program, value, result)


def pad(launches: Launches, stage: Stage, operands: Sequence[Value], target: Value | None) -> Value:
    """The launches of a padding, one for each axis that has some; see ``STAGES``."""
    (value,) = operands
    result = target or launches.buffer(stage.output.shape, value.element)
    _plain(launches, stage, value, result)
    amounts = stage.attribute("pads")
    assert isinstance(amounts, tuple)
    rank = len(value.shape)
    text = number(float(str(stage.attribute("value", 0.0))))
    shape = list(value.shape)
    axes = [axis for axis in range(rank) if amounts[axis] or amounts[rank + axis]]
    if not axes:
        return move(launches, stage, operands, target)
    for axis in reversed(axes):
        inner = prod(shape[axis + 1 :])
        widths = int(amounts[axis]) * inner, int(amounts[rank + axis]) * inner
        # Between the outermost padded axis and this one none is padded yet.
        around = launches.extents(stage.output)[: axes[0]]
        outer = joined((*around, *shape[axes[0] : axis]))
        program = pad_axis(
            *(outer, widths, shape[axis] * inner, launches.core, text),
            element=value.element,
            name=launches.name("pad"),
        )
        shape[axis] += int(amounts[axis]) + int(amounts[rank + axis])
        to = result if axis == axes[0] else launches.buffer(tuple(shape), value.element)
        launches.launch(program, value, to)
        value = to
    return result

"""Sliding windows over an input with padding: what convolutions and pooling share.

The input's buffer holds rows 0 to ``rows`` - 1 and columns 0 to ``columns`` - 1 of the part that
exists. Position (oh, ow) of the result and (kh, kw) of the kernel meet at row
``row + oh*stride.h + kh*dilation.h`` and column ``column + ow*stride.w + kw*dilation.w``; what lies
outside is padding. The rows may lie in a circular buffer (circles.py).
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from tilewright.codegen.words import Column, Columns, Field
from tilewright.errors import refuse
from tilewright.machine import Machine, Primitive
from tilewright.simulate.accesses import Touch
from tilewright.targets.generic.circles import circle_fields, circle_touches, pieces
from tilewright.targets.generic.family import Unit
from tilewright.targets.generic.operands import (
    Values,
    element_bytes,
    element_dtype,
    memory_of,
    size_bits,
)

MAX_POINTS = 1 << 28
"""Elements that one instruction's windows see."""

STEP_BITS = 8
"""Bits of a stride or dilation of the window."""

MEETING = """\
The input's buffer holds rows 0 to `rows`-1 and columns 0 to `columns`-1. Position (oh, ow) of the
result and (kh, kw) of the kernel meet at row `row + oh*stride.h + kh*dilation.h` and column
`column + ow*stride.w + kw*dilation.w`; what lies outside the buffer is padding.
"""


FILL_BITS = 9
"""Bits of what padding holds, an integer of 8 bits of either sign."""


def window_fields(machine: Machine, part: Primitive) -> tuple[Field, ...]:
    """Fields of the window: its steps, the rows and columns in the buffer, their place in a
    circular buffer; and the value of padding, where instructions give it."""
    steps = step_fields(size_bits(machine, part), "that the buffer holds")
    fills = part.operands["input"].fills
    return *steps, *(fill_fields() if fills else ()), *circle_fields(machine, part)


def fill_fields() -> tuple[Field, ...]:
    """Return the field for the value that padding holds."""
    return (Field("fill", FILL_BITS, "what padding holds", signed=True),)


def step_fields(bits: int, place: str) -> tuple[Field, ...]:
    """Steps of the window, and the rows and columns of the image that are there; ``place`` says
    where, and ``bits`` how many a size has."""
    return (
        *(
            Field(f"{name}.{axis}", STEP_BITS, f"{name} along {axis}", default=1)
            for name in ("stride", "dilation")
            for axis in "hw"
        ),
        Field("row", bits + 1, "row at which oh = 0 and kh = 0 meet", signed=True),
        Field("rows", bits, f"rows {place}", default=1),
        Field("column", bits + 1, "column at which ow = 0 and kw = 0 meet", signed=True),
        Field("columns", bits, f"columns {place}", default=1),
    )


def _span(values: Any, axis: str, out: str, kernel: str) -> Any:
    return (
        (values[out] - 1) * values[f"stride.{axis}"]
        + (values[kernel] - 1) * values[f"dilation.{axis}"]
        + 1
    )


def windows(
    unit: Unit, part: Primitive, values: Values, outer: tuple[str, ...], dtype: Any, fill: float
) -> NDArray[Any]:
    """The input seen through the window: axes ``outer``, oh, ow, kh, kw, last the channel.

    ``outer`` names the axes before the pixels (``n``, ``g``); the channel's dim is ``c`` or ``ci``.
    """
    element = element_dtype(unit.machine, values, "input")
    memory = memory_of(part, "input")
    return window_of(unit, memory, "input", element, values, outer, dtype, fill)


def window_of(
    unit: Unit,
    memory: str,
    name: str,
    element: np.dtype[Any],
    values: Values,
    outer: tuple[str, ...],
    dtype: Any,
    fill: float,
) -> NDArray[Any]:
    """An image of ``element``s, the operand ``name`` in a memory, as ``windows`` of ``dtype``."""
    channel = "ci" if "ci" in values else "c"
    height, width = _span(values, "h", "oh", "kh"), _span(values, "w", "ow", "kw")
    row, column = values["row"], values["column"]
    top, bottom = max(row, 0), min(row + height, values["rows"])
    left, right = max(column, 0), min(column + width, values["columns"])
    sizes = [values[axis] for axis in outer]
    inside = bottom > top and right > left
    whole = (*sizes, height, width, values[channel])
    full = inside and (bottom - top, right - left) == (height, width)
    points = prod(values[name] for name in (*outer, "oh", "ow", "kh", "kw", channel))
    if max(prod(whole), points) > MAX_POINTS:
        raise refuse("simulate-size", f"a window of {points} elements in one instruction")
    # A plain C-contiguous array of its own: the view below relies on its strides.
    array = np.empty(whole, dtype) if full else np.full(whole, fill, dtype)
    for first, count, place in pieces(values, name, top, bottom - top) if inside else ():
        strides = [values[f"{name}.{axis}"] for axis in (*outer, "h", "w", "c")]
        address = values[f"{name}.address"] + place * strides[-3] + left * strides[-2]
        shape = (*sizes, count, right - left, values[channel])
        source = unit.memories.view(memory, address, element, shape, strides)
        to = top - row + first
        array[..., to : to + count, left - column : right - column, :] = source
    *lead, by_row, by_column, by_channel = array.strides
    return as_strided(
        array,
        (*sizes, *(values[name] for name in ("oh", "ow", "kh", "kw")), values[channel]),
        (
            *lead,
            by_row * values["stride.h"],
            by_column * values["stride.w"],
            by_row * values["dilation.h"],
            by_column * values["dilation.w"],
            by_channel,
        ),
    )


def input_touches(
    machine: Machine, part: Primitive, columns: Columns, outer: tuple[str, ...]
) -> list[Touch]:
    """The part of the input's buffer that the windows reach."""
    element = np.asarray(element_bytes(machine, columns, "input"), np.int64)
    box = seen_touch(memory_of(part, "input"), "input", element, columns, outer)
    return circle_touches(columns, "input", box, len(outer), np.maximum(columns["row"], 0))


def seen_touch(
    memory: str, name: str, element: Column, columns: Columns, outer: tuple[str, ...]
) -> Touch:
    """The part of an image, the operand ``name`` in a memory, that the windows reach."""
    channel = "ci" if "ci" in columns else "c"
    start: list[Column] = []
    size: list[Column] = []
    for axis, out, kernel, low, whole in (
        ("h", "oh", "kh", "row", "rows"),
        ("w", "ow", "kw", "column", "columns"),
    ):
        first = np.maximum(columns[low], 0)
        end = np.minimum(columns[low] + _span(columns, axis, out, kernel), columns[whole])
        start.append(first)
        size.append(np.maximum(end - first, 0))
    strides = tuple(columns[f"{name}.{axis}"] for axis in (*outer, "h", "w", "c"))
    return Touch(
        memory,
        False,
        columns[f"{name}.address"] + start[0] * strides[-3] + start[1] * strides[-2],
        (*(columns[axis] for axis in outer), *size, columns[channel]),
        strides,
        element,
    )

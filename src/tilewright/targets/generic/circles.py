"""Rows that turn in a circular buffer: an operand's rows lie at places 0 to ``circle`` - 1.

``turn`` is the place of the operand's first row; after the last place comes the first one. With
``circle`` 0 the rows follow one another, as those of every other buffer do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.words import Column, Columns, Field
from tilewright.machine import Machine, Primitive
from tilewright.simulate.accesses import Touch
from tilewright.targets.generic.family import Unit
from tilewright.targets.generic.operands import Values, memory_of, size_bits


def circle_fields(machine: Machine, part: Primitive) -> tuple[Field, ...]:
    """The fields of the operands whose buffers may be circular."""
    bits, fields = size_bits(machine, part), list[Field]()
    for role, storage in part.operands.items():
        if storage.circular:
            fields += [
                Field(
                    f"{role}.circle",
                    bits,
                    f"rows of {role}'s circular buffer: row i lies at (turn + i) mod circle; "
                    "0: rows follow one another",
                ),
                Field(f"{role}.turn", bits, f"place of {role}'s first row in a circular buffer"),
            ]
    return tuple(fields)


def pieces(values: Values, role: str, first: int, count: int) -> Iterator[tuple[int, int, int]]:
    """Runs of rows that follow one another: which of the rows, how many, and their place.

    The rows are ``first`` to ``first + count`` of an operand.
    """
    circle = values.get(f"{role}.circle", 0)
    if not circle:
        yield 0, count, first
        return
    done = 0
    while done < count:
        place = (values[f"{role}.turn"] + first + done) % circle
        size = min(count - done, circle - place)
        yield done, size, place
        done += size


def result_views(
    unit: Unit,
    part: Primitive,
    values: Values,
    dtype: Any,
    shape: Sequence[int],
    axes: Sequence[str],
) -> Iterator[tuple[tuple[slice, ...], NDArray[Any]]]:
    """The places of a result in its buffer, each with the part of the result that belongs there."""
    strides = [values[f"output.{axis}"] for axis in axes]
    rows = axes.index("h") if "h" in axes else 0
    whole = (slice(None),) * rows
    for first, size, place in pieces(values, "output", 0, shape[rows]):
        address = values["output.address"] + place * strides[rows]
        box = (*shape[:rows], size, *shape[rows + 1 :])
        memory = memory_of(part, "output")
        view = unit.memories.view(memory, address, dtype, box, strides)
        yield (*whole, slice(first, first + size)), view


def circle_touches(
    columns: Columns, role: str, box: Touch, rows: int, first: Column | int = 0
) -> list[Touch]:
    """A box in a circular buffer: its rows up to the last place, and those from place 0.

    ``rows`` is the axis of rows, ``first`` the row at which the box begins.
    """
    if f"{role}.circle" not in columns:
        return [box]
    circle = columns[f"{role}.circle"]
    size, stride = box.sizes[rows], box.strides[rows]
    base = box.address - first * stride
    place = np.where(circle > 0, (columns[f"{role}.turn"] + first) % np.maximum(circle, 1), first)
    near = np.where(circle > 0, np.minimum(size, circle - place), size)
    sizes = [(*box.sizes[:rows], part, *box.sizes[rows + 1 :]) for part in (near, size - near)]
    return [
        replace(box, address=base + place * stride, sizes=sizes[0]),
        replace(box, address=base, sizes=sizes[1]),
    ]

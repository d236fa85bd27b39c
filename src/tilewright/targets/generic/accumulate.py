"""Accumulation over several instructions: partial results in the output's buffer.

``first`` starts new accumulators; without ``last`` they are written back with full width; with
``last`` the epilogue follows and the result is written. Result and accumulators have the same
addresses and strides: a result narrower than its accumulator takes the low half of its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.words import Column, Columns, Field
from tilewright.machine import Machine, Primitive
from tilewright.numerics.element_types import rounded
from tilewright.simulate.accesses import Touch
from tilewright.targets.generic import epilogue
from tilewright.targets.generic.circles import circle_touches, result_views
from tilewright.targets.generic.family import Unit
from tilewright.targets.generic.operands import (
    Values,
    element_bytes,
    element_dtype,
    memory_of,
    operand_fields,
    touch,
)

TEXT = """\
With `first` the sum starts anew, else it continues from the accumulators at the output's place.
Without `last` the sum is written there as accumulators (4 bytes each); with `last` the steps
`then1`, `then2`, ... follow, and the result is written at the same addresses.
"""

FIELDS = (
    Field("first", 1, "starts a new sum", default=1),
    Field("last", 1, "ends the sum: the steps follow", default=1),
)


def bias_fields(machine: Machine, part: Primitive, axes: Sequence[str]) -> tuple[Field, ...]:
    """The fields of a bias along some axes of the result, where the primitive has one."""
    if "bias" not in part.operands:
        return ()
    operand = operand_fields(machine, "bias", memory_of(part, "bias"), axes)
    return (Field("bias", 1, "adds the bias"), *operand)


def finish(
    unit: Unit,
    part: Primitive,
    values: Values,
    total: NDArray[Any],
    axes: Sequence[str],
    biased: Sequence[str],
) -> None:
    """Add what is there, or a bias along the axes ``biased``, to products, and write them."""
    if not values["first"]:
        total = total + previous(unit, part, values, total.shape, axes)
    elif values.get("bias"):
        sizes = dict(zip(axes, total.shape, strict=True))
        shape = tuple(sizes[axis] for axis in biased)
        total = total + unit.sums(part, values, "bias", shape, biased)
    if values["last"]:
        total = epilogue.apply(unit, part, values, total, axes)
    write(unit, part, values, total, axes)


def sum_touches(
    machine: Machine,
    part: Primitive,
    columns: Columns,
    axes: Sequence[tuple[str, Column]],
    biased: Sequence[str],
) -> list[Touch]:
    """Bias, residual, accumulators and result of a sum of products."""
    touches: list[Touch] = []
    if "bias" in columns:
        sizes = dict(axes)
        used = (columns["bias"] > 0) & (columns["first"] > 0)
        sizes[biased[0]] = np.where(used, sizes[biased[0]], 0)
        bias = [(axis, sizes[axis]) for axis in biased]
        four = np.full_like(sizes[biased[0]], 4)
        memory = memory_of(part, "bias")
        touches.append(touch(machine, columns, "bias", memory, bias, element=four))
    touches += epilogue.touches(machine, part, columns, axes)
    return touches + output_touches(machine, part, columns, axes)


def previous(
    unit: Unit, part: Primitive, values: Values, shape: Sequence[int], axes: Sequence[str]
) -> NDArray[Any]:
    """The accumulators so far."""
    sums = np.empty(shape, unit.machine.sum.dtype)
    for index, view in result_views(unit, part, values, sums.dtype, shape, axes):
        sums[index] = view
    return sums


def write(
    unit: Unit, part: Primitive, values: Values, result: NDArray[Any], axes: Sequence[str]
) -> None:
    """Write the result, or the accumulators if this is not the last instruction of the sum.

    Floats are rounded to the nearest of the result's elements, of two to the even one.
    """
    machine = unit.machine
    last = values.get("last", 1)
    dtype = element_dtype(machine, values, "output") if last else machine.sum.dtype
    if machine.number.is_short_float and dtype == machine.number.dtype:
        result = rounded(result, machine.number, saturate=machine.overflow == "saturate")
    for index, view in result_views(unit, part, values, dtype, result.shape, axes):
        view[...] = result[index]


def output_touches(
    machine: Machine, part: Primitive, columns: Columns, axes: Sequence[tuple[str, Column]]
) -> list[Touch]:
    """Return the touches of a result: the box written, and the accumulators read."""
    memory = memory_of(part, "output")
    element = np.asarray(element_bytes(machine, columns, "output"), np.int64)
    if "last" in columns:
        element = np.where(columns["last"] > 0, element, 4)
    names = [axis for axis, _ in axes]
    rows = names.index("h") if "h" in names else 0
    box = touch(machine, columns, "output", memory, axes, write=True, element=element)
    touches = circle_touches(columns, "output", box, rows)
    if "first" in columns:
        # Instructions that start a sum read nothing: an axis of size 0 says so.
        reads = [(axes[0][0], np.where(columns["first"] > 0, 0, axes[0][1])), *axes[1:]]
        four = np.full_like(element, 4)
        box = touch(machine, columns, "output", memory, reads, element=four)
        touches += circle_touches(columns, "output", box, rows)
    return touches

"""Pooling: the maximum or the mean of windows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.words import Columns, Field, selector
from tilewright.machine import Machine, Primitive
from tilewright.simulate.accesses import Touch
from tilewright.targets.generic import accumulate, epilogue
from tilewright.targets.generic.families.window import (
    MEETING,
    input_touches,
    window_fields,
    windows,
)
from tilewright.targets.generic.family import Family, Unit
from tilewright.targets.generic.operands import (
    Values,
    memory_of,
    operand_fields,
    result_fields,
    size_bits,
    size_fields,
)

OUT = ("n", "h", "w", "c")


class Pool(Family):
    """Instructions for maximum and average pooling."""

    name = "pool"
    summary = "Takes the maximum or the mean of windows of every channel."
    operations = ("max_pool", "average_pool")
    text = f"""\
With function max_pool: for every n, oh, ow, c the maximum over kh, kw of the input, padding left
out. With function average_pool: the sum, which `last` divides by the number of kernel positions
whose row lies in [`count.top`, `count.bottom`) and whose column lies in [`count.left`,
`count.right`); the whole kernel has `window.h` x `window.w` positions and meets oh = ow = 0 at row
`window.row` and column `window.column`. Integers are divided with rounding half up.
{MEETING}{accumulate.TEXT}"""

    def fields(self, machine: Machine, part: Primitive) -> tuple[Field, ...]:
        """Fields of an instruction: sizes, window, divisor, operands, accumulation and steps."""
        bits = size_bits(machine, part)
        return (
            selector("function", self.operations, "what is taken of a window"),
            *size_fields(machine, part, ("n", "c", "oh", "ow", "kh", "kw")),
            *window_fields(machine, part),
            Field("window.h", bits, "rows of the whole kernel", default=1),
            Field("window.w", bits, "columns of the whole kernel", default=1),
            *(
                Field(f"{name}", bits + 1, meaning, signed=True)
                for name, meaning in (
                    ("window.row", "row of its first position for oh = 0"),
                    ("window.column", "column of its first position for ow = 0"),
                    ("count.top", "first row that counts"),
                    ("count.bottom", "row after the last that counts"),
                    ("count.left", "first column that counts"),
                    ("count.right", "column after the last that counts"),
                )
            ),
            *operand_fields(machine, "input", memory_of(part, "input"), OUT),
            *result_fields(machine, part, OUT),
            *accumulate.FIELDS,
            *epilogue.fields(machine, part, OUT),
        )

    def execute(self, unit: Unit, part: Primitive, values: Values) -> None:
        """Execute one instruction on the memories."""
        greatest = self.operations[values["function"]] == "max_pool"
        number: Any = np.int64 if unit.exact else np.float32
        fill: float = 0
        if greatest:
            fill = np.iinfo(unit.machine.number.dtype).min if unit.exact else -np.inf
        seen = windows(unit, part, values, ("n",), number, fill)
        total = seen.max(axis=(3, 4)) if greatest else seen.sum(axis=(3, 4))
        if not values["first"]:
            before = accumulate.previous(unit, part, values, total.shape, OUT)
            total = np.maximum(total, before) if greatest else total + before
        if values["last"]:
            if not greatest:
                total = _mean(unit, values, total)
            if unit.exact:
                total = total.astype(unit.machine.number.dtype)
            total = epilogue.apply(unit, part, values, total, OUT)
        accumulate.write(unit, part, values, total, OUT)

    def touches(self, machine: Machine, part: Primitive, columns: Columns) -> list[Touch]:
        """The memory that is touched: windows, residual, accumulators and result."""
        axes = list(zip(OUT, (columns[d] for d in ("n", "oh", "ow", "c")), strict=True))
        return [
            *input_touches(machine, part, columns, ("n",)),
            *epilogue.touches(machine, part, columns, axes),
            *accumulate.output_touches(machine, part, columns, axes),
        ]


def _counted(values: Values, axis: str, out: str, first: str, low: str, high: str) -> NDArray[Any]:
    """For each position of the result: how many kernel positions count along one axis."""
    start = values[first] + np.arange(values[out]) * values[f"stride.{axis}"]
    place = start[:, None] + np.arange(values[f"window.{axis}"]) * values[f"dilation.{axis}"]
    return ((place >= values[low]) & (place < values[high])).sum(axis=1)


def _mean(unit: Unit, values: Values, total: NDArray[Any]) -> NDArray[Any]:
    rows = _counted(values, "h", "oh", "window.row", "count.top", "count.bottom")
    columns = _counted(values, "w", "ow", "window.column", "count.left", "count.right")
    count = np.maximum(rows[:, None] * columns[None, :], 1)[None, :, :, None]
    if unit.exact:
        return (2 * total + count) // (2 * count)
    return total / count.astype(np.float32)

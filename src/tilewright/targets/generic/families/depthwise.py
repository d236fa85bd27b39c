"""Depthwise convolutions: every channel has a kernel of its own."""

from __future__ import annotations

import numpy as np

from tilewright.codegen.words import Columns, Field
from tilewright.errors import refuse
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
    size_fields,
    touch,
)

OUT = ("n", "h", "w", "c")
_WEIGHT = ("c", "kh", "kw")


class Depthwise(Family):
    """One kernel per channel, no sum over channels."""

    name = "depthwise"
    summary = "Multiplies windows of every channel by the channel's own kernel and accumulates."
    operations = ("depthwise_conv",)
    text = f"""\
For every n, oh, ow, c: the sum over kh, kw of input[n, row, column, c] times weight[c, kh, kw],
with `bias` added when `bias` is 1 and `first` is 1.
{MEETING}Padding counts as zero, or as `fill` where there is that field.
Fixed-point sums are modulo 2**32.
{accumulate.TEXT}"""

    def fields(self, machine: Machine, part: Primitive) -> tuple[Field, ...]:
        """The fields: sizes, window, operands, accumulation, steps."""
        if not {"input", "weight", "output"} <= part.operands.keys():
            raise refuse("isa-roles", f"{part.name} needs input, weight and output")
        return (
            *size_fields(machine, part, ("n", "c", "oh", "ow", "kh", "kw")),
            *window_fields(machine, part),
            *operand_fields(machine, "input", memory_of(part, "input"), OUT),
            *operand_fields(machine, "weight", memory_of(part, "weight"), _WEIGHT),
            *accumulate.bias_fields(machine, part, ("c",)),
            *result_fields(machine, part, OUT),
            *accumulate.FIELDS,
            *epilogue.fields(machine, part, OUT),
        )

    def execute(self, unit: Unit, part: Primitive, values: Values) -> None:
        """One instruction; the sums are exact in float64."""
        number = unit.working
        seen = windows(unit, part, values, ("n",), number, values.get("fill", 0))
        shape = tuple(values[axis] for axis in _WEIGHT)
        weight = unit.operand(part, values, "weight", shape, _WEIGHT).astype(number)
        result = np.einsum("nhwijc,cij->nhwc", seen, weight)
        total = result.astype(np.int64) if unit.exact else result
        accumulate.finish(unit, part, values, total, OUT, ("c",))

    def touches(self, machine: Machine, part: Primitive, columns: Columns) -> list[Touch]:
        """The memory that is touched: windows, weights, bias, residual, accumulators and result."""
        axes = list(zip(OUT, (columns[d] for d in ("n", "oh", "ow", "c")), strict=True))
        weight = [(axis, columns[axis]) for axis in _WEIGHT]
        return [
            *input_touches(machine, part, columns, ("n",)),
            touch(machine, columns, "weight", memory_of(part, "weight"), weight),
            *accumulate.sum_touches(machine, part, columns, axes, ("c",)),
        ]

"""Products: convolutions and matrix products."""

from __future__ import annotations

from math import prod

import numpy as np

from tilewright.codegen.words import Columns, Field
from tilewright.errors import refuse
from tilewright.machine import Machine, Primitive
from tilewright.simulate.accesses import Touch
from tilewright.targets.generic import accumulate, epilogue
from tilewright.targets.generic.families.window import (
    MAX_POINTS,
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

OUT = ("n", "g", "h", "w", "c")
"""Axes of the result."""

TAPS = ("n", "g", "oh", "ow", "kh", "kw", "ci")
"""Axes of windows that a move has gathered."""

_WEIGHT = ("g", "co", "kh", "kw", "ci")


class Product(Family):
    """Convolution; a matrix product is one of 1 x 1 pixels, its rows along n (or n, oh, ow)."""

    name = "product"
    summary = "Multiplies windows of the input by weights and accumulates."
    operations = ("conv", "matmul")
    text = f"""\
For every n, g, oh, ow, co: the sum over ci, kh, kw of input[n, g, row, column, ci] times
weight[g, co, kh, kw, ci], with `bias` added when `bias` is 1 and `first` is 1.
Where the input's windows are gathered, element (n, g, oh, ow, kh, kw, ci) lies at its own strides.
{MEETING}Padding counts as zero, or as `fill` where there is that field.
Fixed-point sums are modulo 2**32.
{accumulate.TEXT}"""

    def fields(self, machine: Machine, part: Primitive) -> tuple[Field, ...]:
        """The fields: sizes, window, operands, accumulation, steps."""
        roles = part.operands
        if not {"input", "weight", "output"} <= roles.keys():
            raise refuse("isa-roles", f"{part.name} needs input, weight and output")
        return (
            *size_fields(machine, part, ("n", "g", "co", "oh", "ow", "ci", "kh", "kw")),
            *(() if roles["input"].gathered else window_fields(machine, part)),
            *operand_fields(
                machine,
                "input",
                memory_of(part, "input"),
                TAPS if roles["input"].gathered else OUT,
            ),
            *operand_fields(machine, "weight", memory_of(part, "weight"), _WEIGHT),
            *accumulate.bias_fields(machine, part, OUT),
            *result_fields(machine, part, OUT),
            *accumulate.FIELDS,
            *epilogue.fields(machine, part, OUT),
        )

    def execute(self, unit: Unit, part: Primitive, values: Values) -> None:
        """One instruction; exact for integers: the products' sums stay below 2**53."""
        number = unit.working
        n, g, oh, ow, co = (values[name] for name in ("n", "g", "oh", "ow", "co"))
        kernel = tuple(values[name] for name in ("kh", "kw", "ci"))
        depth = prod(kernel)
        if max(n * g * oh * ow * co, g * co * depth) > MAX_POINTS:
            raise refuse("simulate-size", f"a product of {co} x {depth} x {n * g * oh * ow}")
        if part.operands["input"].gathered:
            shape = (n, g, oh, ow, *kernel)
            seen = unit.operand(part, values, "input", shape, TAPS).astype(number)
        else:
            seen = windows(unit, part, values, ("n", "g"), number, values.get("fill", 0))
        weight = unit.operand(part, values, "weight", (g, co, *kernel), _WEIGHT)
        left = seen.reshape(n, g, oh * ow, depth)
        right = weight.astype(number).reshape(g, co, depth).transpose(0, 2, 1)
        result = (left @ right).reshape(n, g, oh, ow, co)
        total = result.astype(np.int64) if unit.exact else result
        accumulate.finish(unit, part, values, total, OUT, OUT)

    def touches(self, machine: Machine, part: Primitive, columns: Columns) -> list[Touch]:
        """The memory that is touched: windows, weights, bias, residual, accumulators and result."""
        axes = list(zip(OUT, (columns[d] for d in ("n", "g", "oh", "ow", "co")), strict=True))
        weight = [(axis, columns[axis]) for axis in _WEIGHT]
        taps = [(axis, columns[axis]) for axis in TAPS]
        return [
            *(
                [touch(machine, columns, "input", memory_of(part, "input"), taps)]
                if part.operands["input"].gathered
                else input_touches(machine, part, columns, ("n", "g"))
            ),
            touch(machine, columns, "weight", memory_of(part, "weight"), weight),
            *accumulate.sum_touches(machine, part, columns, axes, OUT),
        ]

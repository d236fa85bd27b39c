"""Local response normalisation and softmax: a reduction kept whole, then a map."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.words import Columns, Field
from tilewright.errors import refuse
from tilewright.machine import Machine, Primitive
from tilewright.numerics import fixed, reference
from tilewright.simulate.accesses import Touch
from tilewright.targets.generic import accumulate, epilogue, functions
from tilewright.targets.generic.family import Family, Unit
from tilewright.targets.generic.operands import (
    Values,
    memory_of,
    operand_fields,
    result_fields,
    size_fields,
    touch,
)

POINT_BITS = 7
"""Bits of a binary point."""


def _read(unit: Unit, part: Primitive, values: Values, dims: tuple[str, ...]) -> NDArray[Any]:
    return unit.operand(part, values, "input", tuple(values[dim] for dim in dims), dims)


def _point_fields() -> tuple[Field, ...]:
    return (
        Field("point.in", POINT_BITS, "binary point of the input", signed=True),
        Field("point.out", POINT_BITS, "binary point of the result", signed=True),
    )


class Lrn(Family):
    """The family of local response normalisations across channels."""

    name = "lrn"
    summary = "Divides every element by a power of the sum of squares of neighbouring channels."
    operations = ("lrn",)
    text = """\
For every n, h, w, c: s is the sum of the squares of the `j` channels from c - (`j`-1)//2 (absent
ones count 0); the result is the input times t to the power -beta with t = bias + alpha/size * s.
On fixed point `alpha` has 30 and `bias` 20 fraction bits, and the power comes from three runs at
`table`: 257 mantissas and 64 factors of 16 bits, and 64 shifts of 16 bits (numerics.fixed.lrn
gives every step). On float32 `alpha`, `bias` and `beta` hold the bits of a float32.
"""
    DIMS = ("n", "c", "h", "w")

    def fields(self, machine: Machine, part: Primitive) -> tuple[Field, ...]:
        """The fields: sizes, parameters, operands, steps."""
        real = not machine.fixed_bits
        parameters = (
            Field("alpha", 33, "alpha / size", signed=True, real=real),
            Field("bias", 38, "bias", signed=True, real=real),
            *_point_fields(),
        )
        if machine.fixed_bits:
            bits = functions.table_bits(machine)
            power = Field("table", bits, "address of the power's tables")
        else:
            power = Field("beta", 32, "the exponent", signed=True, real=True)
        return (
            *size_fields(machine, part, (*self.DIMS, "j")),
            *parameters,
            power,
            *operand_fields(machine, "input", memory_of(part, "input"), self.DIMS),
            *result_fields(machine, part, self.DIMS),
            *epilogue.fields(machine, part, self.DIMS),
        )

    def execute(self, unit: Unit, part: Primitive, values: Values) -> None:
        """Execute one instruction on the memories."""
        x = _read(unit, part, values, self.DIMS)
        size = values["j"]
        if unit.fixed:
            total = self._fixed(unit, values, x, size)
        else:
            alpha, bias, beta = (
                np.float32(functions.float_of(values[name])) for name in ("alpha", "bias", "beta")
            )
            total = x / (bias + reference.channel_window_sum(np.square(x), size) * alpha) ** beta
        total = epilogue.apply(unit, part, values, total, self.DIMS)
        accumulate.write(unit, part, values, total, self.DIMS)

    def _fixed(self, unit: Unit, values: Values, x: NDArray[Any], size: int) -> NDArray[Any]:
        point_in, point_out = values["point.in"], values["point.out"]
        if not (-5 <= point_in <= 26 and abs(point_in - point_out) <= 40):
            raise refuse("simulate-point", f"lrn from binary point {point_in} to {point_out}")
        address = values["table"]
        view = unit.memories.view
        mantissas = view(functions.TABLES, address, np.uint16, (257,), (2,)).astype(np.int64)
        factors = view(functions.TABLES, address + 514, np.uint16, (64,), (2,)).astype(np.int64)
        shifts = view(functions.TABLES, address + 642, np.int16, (64,), (2,)).astype(np.int64)
        squares = reference.channel_window_sum(np.square(x.astype(np.int64)), size)
        down = 2 * point_in + 10
        total = (squares * values["alpha"] + ((1 << down) >> 1) >> down) + max(values["bias"], 1)
        return fixed.lrn_scale(x, total, (mantissas, factors, shifts), point_in, point_out)

    def touches(self, machine: Machine, part: Primitive, columns: Columns) -> list[Touch]:
        """The memory that is touched: input, tables and result."""
        axes = [(dim, columns[dim]) for dim in self.DIMS]
        accesses = [touch(machine, columns, "input", memory_of(part, "input"), axes)]
        if "table" in columns:
            size = np.full_like(columns["table"], LRN_TABLE_BYTES)
            ones = np.ones_like(size)
            accesses.append(
                Touch(functions.TABLES, False, columns["table"], (size,), (ones,), ones)
            )
        accesses += epilogue.touches(machine, part, columns, axes)
        return accesses + accumulate.output_touches(machine, part, columns, axes)


LRN_TABLE_BYTES = 2 * (257 + 64 + 64)


class Softmax(Family):
    """Instructions for softmax along one axis."""

    name = "softmax"
    summary = "Takes the exponential of every element over the sum of those along an axis."
    operations = ("softmax",)
    text = """\
For every position of d0 x d1 x d2 x d3: the exponentials along `axis` over their sum. On fixed
point as numerics.fixed.softmax states, from binary point `point.in` to `point.out`.
"""
    DIMS = ("d0", "d1", "d2", "d3", "axis")

    def fields(self, machine: Machine, part: Primitive) -> tuple[Field, ...]:
        """The fields: sizes, binary points, operands, steps."""
        return (
            *size_fields(machine, part, self.DIMS),
            *(_point_fields() if machine.fixed_bits else ()),
            *operand_fields(machine, "input", memory_of(part, "input"), self.DIMS),
            *result_fields(machine, part, self.DIMS),
            *epilogue.fields(machine, part, self.DIMS),
        )

    def execute(self, unit: Unit, part: Primitive, values: Values) -> None:
        """Execute one instruction on the memories."""
        x = _read(unit, part, values, self.DIMS)
        if unit.fixed:
            point_in, point_out = values["point.in"], values["point.out"]
            if not (-29 <= point_in <= 46 and 0 <= point_out <= 40):
                raise refuse("simulate-point", f"softmax from {point_in} to {point_out}")
            total = fixed.softmax(x, -1, point_in, point_out)
        else:
            total = reference.softmax(x, -1)
        total = epilogue.apply(unit, part, values, total, self.DIMS)
        accumulate.write(unit, part, values, total, self.DIMS)

    def touches(self, machine: Machine, part: Primitive, columns: Columns) -> list[Touch]:
        """Return the touches of the input, the epilogue's operands and the result."""
        axes = [(dim, columns[dim]) for dim in self.DIMS]
        accesses = [touch(machine, columns, "input", memory_of(part, "input"), axes)]
        accesses += epilogue.touches(machine, part, columns, axes)
        return accesses + accumulate.output_touches(machine, part, columns, axes)

"""Layer normalisation: rows by their mean and variance, scaled and shifted."""

from __future__ import annotations

from tilewright.codegen.words import Columns, Field
from tilewright.errors import refuse
from tilewright.machine import Machine, Primitive
from tilewright.numerics import reference
from tilewright.simulate.accesses import Touch
from tilewright.targets.generic import accumulate, epilogue
from tilewright.targets.generic.family import Family, Unit
from tilewright.targets.generic.functions import float_of
from tilewright.targets.generic.operands import (
    Values,
    memory_of,
    operand_fields,
    result_fields,
    size_fields,
    touch,
)

OTHERS = ("weight", "bias")
"""Roles of the operands along the axis, which multiply and are added: none, the first, or both."""


def _others(part: Primitive) -> tuple[str, ...]:
    """The roles of ``OTHERS`` that a primitive has: a bias only beside a weight."""
    if "weight" not in part.operands:
        return ()
    return OTHERS if "bias" in part.operands else OTHERS[:1]


class LayerNorm(Family):
    """Instructions for normalisation along one axis."""

    name = "layer_norm"
    summary = "Takes the mean off every row and divides it by its standard deviation."
    operations = ("layer_norm",)
    kinds = ("float",)
    text = """\
For every position of d0 x d1 x d2 x d3: the mean along `axis` is taken off if `centred` is set; the
row is divided by the square root of the mean of its squares plus `epsilon` (the bits of a float32).
If `others` is 1 or 2 it is multiplied by `weight`, and if it is 2 `bias` is added. Inside, numbers
are float64, and are rounded to float32 once (numerics.reference.layer_norm).
"""
    DIMS = ("d0", "d1", "d2", "d3", "axis")

    def fields(self, machine: Machine, part: Primitive) -> tuple[Field, ...]:
        """The fields: sizes, parameters, operands, steps."""
        operands: list[Field] = []
        for role in _others(part):
            operands += operand_fields(machine, role, memory_of(part, role), ("axis",))
        return (
            *size_fields(machine, part, self.DIMS),
            Field("epsilon", 32, "what is added to the mean of the squares", real=True),
            Field("centred", 1, "whether the mean is taken off"),
            Field("others", 2, "how many of weight and bias are read"),
            *operand_fields(machine, "input", memory_of(part, "input"), self.DIMS),
            *operands,
            *result_fields(machine, part, self.DIMS),
            *epilogue.fields(machine, part, self.DIMS),
        )

    def execute(self, unit: Unit, part: Primitive, values: Values) -> None:
        """Execute one instruction on the memories."""
        shape = [values[dim] for dim in self.DIMS]
        x = unit.operand(part, values, "input", shape, self.DIMS)
        count = values["others"]
        if count > len(_others(part)):
            raise refuse("simulate-operand", f"{part.name} has no {OTHERS[min(count, 2) - 1]}")
        others = [
            unit.operand(part, values, role, shape[-1:], ("axis",)) for role in OTHERS[:count]
        ]
        epsilon = float(float_of(values["epsilon"]))
        total = reference.layer_norm(x, others, epsilon, centred=bool(values["centred"]))
        total = epilogue.apply(unit, part, values, total, self.DIMS)
        accumulate.write(unit, part, values, total, self.DIMS)

    def touches(self, machine: Machine, part: Primitive, columns: Columns) -> list[Touch]:
        """The memory that is touched: input, scale, shift and result."""
        axes = [(dim, columns[dim]) for dim in self.DIMS]
        boxes = [touch(machine, columns, "input", memory_of(part, "input"), axes)]
        for number, role in enumerate(_others(part), 1):
            size = columns["axis"] * (columns["others"] >= number)
            boxes.append(touch(machine, columns, role, memory_of(part, role), [("axis", size)]))
        boxes += epilogue.touches(machine, part, columns, axes)
        return boxes + accumulate.output_touches(machine, part, columns, axes)

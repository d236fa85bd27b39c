"""Pointwise operations: one or two operands, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.words import Columns, Field, selector
from tilewright.errors import refuse
from tilewright.machine import Machine, Primitive
from tilewright.simulate.accesses import Touch
from tilewright.targets.generic import accumulate, epilogue, functions
from tilewright.targets.generic.family import Family, Unit
from tilewright.targets.generic.functions import FUNCTIONS
from tilewright.targets.generic.operands import (
    Values,
    elements_of,
    memory_of,
    operand_fields,
    result_fields,
    size_fields,
    touch,
)

AXES = ("d0", "d1", "d2", "d3")
"""Axes of the box."""


class Points(Family):
    """Instructions for vector operations on boxes."""

    name = "points"
    summary = "Applies a function to every element of one box, or of two."
    operations = tuple(FUNCTIONS)
    text = """\
For every element of a box of d0 x d1 x d2 x d3: the function of `input` and, if it takes two
operands, `other`; a stride of 0 repeats an element. Then the steps `then1`, `then2`, ... follow.
"""

    def fields(self, machine: Machine, part: Primitive) -> tuple[Field, ...]:
        """Function, sizes, operands, steps."""
        mine = [operation for operation in part.operations if operation in FUNCTIONS]
        memory, elements = memory_of(part, "input"), elements_of(machine, part, "input")
        fields = [
            selector("function", mine, "what is computed"),
            *epilogue.parameter_fields(machine, "function", mine),
            *size_fields(machine, part, AXES),
            *operand_fields(machine, "input", memory, AXES, wide=True, elements=elements),
        ]
        if any(FUNCTIONS[operation].binary for operation in mine):
            fields += operand_fields(machine, "other", memory, AXES, wide=True, elements=elements)
        return (
            *fields,
            *result_fields(machine, part, AXES),
            *epilogue.fields(machine, part, AXES),
        )

    def execute(self, unit: Unit, part: Primitive, values: Values) -> None:
        """Execute one instruction on the memories."""
        shape = tuple(values[axis] for axis in AXES)

        def read(name: str) -> NDArray[Any]:
            return unit.operand(part, values, name, shape, AXES, role="input")

        function = FUNCTIONS[_operation(part, values["function"])]
        other = read("other") if function.binary else None
        other = other.view(np.float32) if other is not None and function.scaled else other
        total = functions.evaluate(unit, function, values, "function", read("input"), other)
        total = epilogue.apply(unit, part, values, total, AXES)
        accumulate.write(unit, part, values, total, AXES)

    def touches(self, machine: Machine, part: Primitive, columns: Columns) -> list[Touch]:
        """Operands, table, residual and result."""
        axes = [(axis, columns[axis]) for axis in AXES]
        memory = memory_of(part, "input")
        accesses = [touch(machine, columns, "input", memory, axes)]
        mine = [operation for operation in part.operations if operation in FUNCTIONS]
        chosen = columns["function"]
        if "other.address" in columns:
            binary = [i for i, name in enumerate(mine) if FUNCTIONS[name].binary]
            used = np.where(np.isin(chosen, binary), columns[AXES[0]], 0)
            reads = [(AXES[0], used), *axes[1:]]
            accesses.append(touch(machine, columns, "other", memory, reads))
        if "function.table" in columns:
            tables = [
                i for i, name in enumerate(mine) if FUNCTIONS[name].reads_table(machine.number.kind)
            ]
            used = np.isin(chosen, tables)
            accesses.append(functions.table_touch(machine, columns["function.table"], used))
        accesses += epilogue.touches(machine, part, columns, axes)
        return accesses + accumulate.output_touches(machine, part, columns, axes)


def _operation(part: Primitive, chosen: int) -> str:
    mine = [operation for operation in part.operations if operation in FUNCTIONS]
    if chosen >= len(mine):
        raise refuse("isa-function", f"{part.name} has no function {chosen}")
    return mine[chosen]

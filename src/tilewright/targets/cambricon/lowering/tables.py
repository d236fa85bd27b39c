"""Function tables of a kernel: their contents as numerics has them."""

from __future__ import annotations

from tilewright.numerics import tables
from tilewright.targets.cambricon.lowering.context import Context
from tilewright.targets.generic.lowering.steps import elements, fraction
from tilewright.tile.dialect import StageOp


def table_of(stage: StageOp, c: Context) -> int:
    """The number of the table of a stage's function."""
    (operand, *_), result = elements(stage)
    name = stage.operation.data
    parameters = tuple(float(stage.parameters[key]) for key in tables.FUNCTIONS[name][1])
    entries = tables.table(name, fraction(operand), fraction(result), parameters)
    return c.table(entries.astype("<i2").tobytes())

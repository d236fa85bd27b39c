"""Comparisons, and choices by booleans."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.planning.domain import Stage
from tilewright.targets.ascend.kernels.choices import BOOLEAN, choose
from tilewright.targets.ascend.kernels.vectors import number
from tilewright.targets.ascend.lowering.launches import Launches, Value
from tilewright.targets.ascend.lowering.points import aligned, alike

CHOICES = ("less", "less_equal", "equal", "select")
"""The operations that compare or choose."""


def choice(
    launches: Launches, stage: Stage, operands: Sequence[Value], target: Value | None
) -> Value:
    """The launch of a comparison or a choice; see ``STAGES``."""
    selects = stage.operation == "select"
    names = ("c", "x", "y") if selects else ("x", "y")
    wanted = {"c": BOOLEAN, "x": "half", "y": "half"}
    values: dict[str, Value] = {}
    constants: dict[str, str] = {}
    for name, operand, value in zip(names, stage.inputs, operands, strict=True):
        constant = alike(launches, operand) if name != "c" else None
        if constant is not None:
            constants[name] = number(constant)
            continue
        if value.element != wanted[name] or value.layout:
            raise launches.refusal(f"{stage.operation} takes rows of halves, by booleans")
        if not aligned(operand, stage.output):
            raise launches.refusal(f"{stage.operation} reads {operand.name} in another order")
        values[name] = value
    shape = stage.output.shape
    result = target or launches.buffer(shape, "half" if selects else BOOLEAN)
    if not values or result.layout or result.element != ("half" if selects else BOOLEAN):
        raise launches.refusal(f"{stage.operation} gives rows of halves, or booleans")
    program = choose(
        stage.operation,
        launches.extents(stage.output),
        {name: value.shape for name, value in values.items()},
        launches.core,
        constants=constants,
        name=launches.name(stage.operation),
    )
    launches.launch(program, *values.values(), result)
    return result

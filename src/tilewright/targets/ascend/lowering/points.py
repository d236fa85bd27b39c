"""Elementwise stages: one launch each, on values of one shape, element and layout."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tilewright.planning.domain import Stage
from tilewright.planning.layout import Layout
from tilewright.targets.ascend.kernels.elementwise import RECIPES, elementwise
from tilewright.targets.ascend.lowering.launches import Launches, Value


def points(
    launches: Launches, stage: Stage, operands: Sequence[Value], target: Value | None
) -> Value:
    """The launch of an elementwise stage; see ``STAGES``."""
    operation = "clamp" if stage.operation == "clip" else stage.operation
    if operation not in RECIPES or operation in ("cast", "gelu"):
        raise launches.refusal(f"there is no kernel for {stage.operation}")
    shape, element, layout = stage.output.shape, operands[0].element, operands[0].layout
    if any(value.shape != shape for value in operands):
        raise launches.refusal(f"{stage.operation} broadcasts an operand")
    if any((value.element, value.layout) != (element, layout) for value in operands):
        raise launches.refusal(f"{stage.operation} has operands of several forms")
    scalars: tuple[str, ...] = ()
    if operation == "clamp":
        bounds = (stage.attribute("minimum", "-inf"), stage.attribute("maximum", "inf"))
        scalars = tuple(_scalar(bound) for bound in bounds)
    # Blocks are computed with what pads them.
    count = prod(Layout.parse(layout, len(shape)).physical_shape(shape))
    name = launches.name(operation)
    program = elementwise(operation, element, count, launches.core, scalars=scalars, name=name)
    result = target or launches.buffer(shape, element, layout)
    if (result.element, result.layout) != (element, layout):
        raise launches.refusal(f"{stage.operation} changes the form of its operand")
    launches.launch(program, *operands, result)
    return result


def _scalar(bound: object) -> str:
    """A bound as C."""
    value = np.float32(float(str(bound)))
    if np.isinf(value):
        return "-1.0f / 0.0f" if value < 0 else "1.0f / 0.0f"
    return f"{float(value)!r}f"

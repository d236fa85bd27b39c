"""Elementwise kernels, from their tile programs: one launch each.

A constant of one number comes as a block of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tilewright.planning.domain import Operand, Stage
from tilewright.targets.ascend.kernels.recipes import (
    NAMES,
    RECIPES,
    is_power,
    recipe_of,
    scalars_of,
)
from tilewright.targets.ascend.kernels.vectors import BOOLEAN, number
from tilewright.targets.ascend.lowering.elements import Elements, Function
from tilewright.targets.ascend.lowering.launches import Launches, Value
from tilewright.targets.ascend.lowering.tiled import tiled_kernel
from tilewright.targets.ascend.machine import BLOCK
from tilewright.tile.dialect import ProgramOp

POWERS = {1.0: "copy", 2.0: "square", 3.0: "cube", 0.5: "root", -1.0: "reciprocal"}
"""Exponents that have a recipe."""


def points(launches: Launches, program: ProgramOp) -> None:
    """The launch of an elementwise kernel: its tile program."""
    kernel, anchor = launches.kernel, launches.kernel.anchor
    if not kernel.anchor.extents.keys() & {"e", "c", "w"}:
        raise launches.refusal(f"{anchor.operation} has operands of several forms, or orders")
    output = launches.result()
    read = [launches.operand(operand) for operand in anchor.inputs]
    functions = [_function(launches, anchor, read, output)]
    for stage in kernel.stages[1:]:
        # What stages compute here is of half precision already.
        if stage.operation != "cast":
            functions.append(_function(launches, stage, [output], output))
    values: list[Value] = []
    for operand in kernel.inputs:
        number = alike(launches, operand)
        value = launches.operand(operand)
        if number is not None and not operand.shape:
            kind = np.float16 if value.element == "half" else np.float32
            block = np.full(BLOCK // kind().itemsize, launches.known[operand.name].flat[0], kind)
            value = launches.constant(block)
        values.append(value)
    name = launches.name(NAMES.get(anchor.operation, anchor.operation))
    core, ends = launches.core, (launches.ends, launches.longest)
    made = tiled_kernel(program, core, name, partial(Elements, core, functions), *ends)
    launches.launch(made, *values, output)


def _function(
    launches: Launches, stage: Stage, operands: Sequence[Value], output: Value
) -> Function:
    """The function that a stage computes of some operands; refuses what there is no recipe for."""
    operation = NAMES.get(stage.operation, stage.operation)
    names = ("c", "x", "y") if operation == "select" else ("x", "y")
    elements = {n: o.element for n, o in zip(names, operands, strict=False)}
    if operation == "pow":
        exponent = alike(launches, stage.inputs[1])
        if exponent is None or exponent not in POWERS:
            raise launches.refusal(
                "there is no kernel for powers of other exponents than 1, 2, 3, 0.5 and -1",
                "write the power as exponentials and logarithms",
            )
        operation, elements = POWERS[exponent], {"x": elements["x"]}
    if operation == "cast" and elements["x"] == output.element:
        operation = "copy"
    if operation == "quantise" and is_power(float(str(stage.attribute("scale")))):
        operation = "quantise_power"
    if operation == "dequantise" and alike(launches, stage.inputs[1]) is None:
        raise launches.refusal("there is no kernel for several scales")
    if operation not in RECIPES:
        raise launches.refusal(f"there is no kernel for {stage.operation}")
    recipe = recipe_of(operation, launches.core)
    if recipe is None:
        raise launches.refusal(
            f"{launches.core.name} has no division, and its reciprocals are right for finite "
            "divisors alone"
        )
    element = elements["x"]
    wanted = {"select": {"c": BOOLEAN}, "dequantise": {"y": "float"}}.get(operation, {})
    if recipe.types.get(element) != output.element or any(
        kind != wanted.get(n, element) for n, kind in elements.items()
    ):
        raise launches.refusal(f"{stage.operation} has operands of several forms")
    numbers = frozenset(
        name
        for name, operand in zip(names, stage.inputs, strict=False)
        if name in elements and not operand.shape and alike(launches, operand) is not None
    )
    scalars = tuple(map(number, scalars_of(stage.operation, dict(stage.attributes))))
    return Function(recipe, scalars, tuple(elements), numbers)


def alike(launches: Launches, operand: Operand) -> float | None:
    """The number that all elements of a constant are."""
    data = launches.known.get(operand.name)
    if data is None or not data.size or not np.issubdtype(data.dtype, np.floating):
        return None
    first = data.flat[0]
    return float(first) if bool((data == first).all()) else None

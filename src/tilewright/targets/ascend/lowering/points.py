"""Elementwise stages, comparisons, choices by booleans, and look-ups: one launch each.

Operands of one shape, element and layout are taken as they lie; those of several shapes broadcast,
as floats row by row. Constants whose elements are all alike are no operands of a function, but part
of its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tilewright.planning.domain import Operand, Stage
from tilewright.targets.ascend.isa import WIDTHS
from tilewright.targets.ascend.kernels.broadcast import SHORT_PORTION, Short, broadcast, elementwise
from tilewright.targets.ascend.kernels.look_up import look_up
from tilewright.targets.ascend.kernels.recipes import NAMES, RECIPES, recipe_of, scalars_of
from tilewright.targets.ascend.kernels.shares import joined, total
from tilewright.targets.ascend.kernels.vectors import BOOLEAN, number
from tilewright.targets.ascend.lowering.launches import Launches, Value
from tilewright.targets.ascend.machine import BLOCK, CUBE
from tilewright.targets.ascend.program import Program

POWERS = {1.0: "copy", 2.0: "square", 3.0: "cube", 0.5: "sqrt", -1.0: "reciprocal"}
"""Exponents that have a recipe."""


def points(
    launches: Launches, stage: Stage, operands: Sequence[Value], target: Value | None
) -> Value:
    """The launch of an elementwise stage, a comparison or a choice; see ``STAGES``."""
    operation = NAMES.get(stage.operation, stage.operation)
    names = ("c", "x", "y") if operation == "select" else ("x", "y")
    numbers = [
        None if name == "c" else alike(launches, operand)
        for name, operand in zip(names, stage.inputs, strict=False)
    ]
    if operation == "pow":
        exponent = numbers[1]
        if exponent is None or exponent not in POWERS:
            raise launches.refusal(
                "there is no kernel for powers of other exponents than 1, 2, 3, 0.5 and -1",
                "write the power as exponentials and logarithms",
            )
        operation, operands, numbers = POWERS[exponent], operands[:1], numbers[:1]
    if operation == "cast" and target is not None and operands[0].element == target.element:
        operation = "copy"
    if operation not in RECIPES:
        raise launches.refusal(f"there is no kernel for {stage.operation}")
    recipe = recipe_of(operation, launches.core)
    if recipe is None:
        raise launches.refusal(
            f"{launches.core.name} has no division, and its reciprocals are right for finite "
            "divisors alone"
        )
    shape = stage.output.shape
    values = {
        name: value
        for name, value, constant in zip(names, operands, numbers, strict=False)
        if constant is None
    }
    if not values:
        # All operands are constant: one of them is read, all the same.
        numbers, values = [None, *numbers[1:]], {"x": operands[0]}
    constants = {
        name: number(constant)
        for name, constant in zip(names, numbers, strict=False)
        if constant is not None
    }
    element = next((value.element for n, value in values.items() if n != "c"), "half")
    scalars = tuple(map(number, scalars_of(stage.operation, dict(stage.attributes))))
    name = launches.name(operation)
    forms = {(value.shape, value.element, value.layout) for value in values.values()}
    layout = next(iter(values.values())).layout
    result = target or launches.buffer(shape, recipe.types.get(element, element), layout)
    if forms == {(shape, element, result.layout)} and result.element == recipe.types.get(element):
        # Blocks are computed with what pads them.
        program = elementwise(
            *(operation, element, launches.elements(stage.output, result.layout), launches.core),
            scalars=scalars,
            constants=constants,
            name=name,
            short=_short(launches, stage.output, result),
        )
    else:
        program = _broadcast(
            *(launches, stage, operation, element, {**values, "out": result}),
            *(scalars, constants, name),
        )
    launches.launch(program, *values.values(), result)
    return result


def _short(launches: Launches, output: Operand, result: Value) -> Short | None:
    """Return what a launch's length counts of a result; None where runs are too few elements to be
    cut, or no whole blocks."""
    shape, rank = result.shape, len(result.shape)
    free = [
        n
        for n, axis_of_output in enumerate(output.access)
        if launches.free.intersection(axis_of_output.dims)
    ]
    if len(free) != 1:
        return None
    (axis,) = free
    extents = launches.extents(output)
    if not result.layout:
        inner = prod(shape[axis + 1 :])
        short = Short(joined(extents[:axis]), extents[axis], inner, shape[axis])
    elif result.in_blocks() and axis == rank - 2:
        columns = launches.extent(output.access[-1], shape[-1], CUBE)
        rows = joined((launches.extent(output.access[-2], shape[-2], CUBE), CUBE))
        short = Short(joined((*extents[:-2], columns)), rows, CUBE, shape[-2])
    else:
        return None
    run = total(short.run)
    whole = run * WIDTHS[result.element] % BLOCK == 0 or total(short.outer) == 1
    return short if whole and run > SHORT_PORTION else None


def _broadcast(
    launches: Launches,
    stage: Stage,
    operation: str,
    element: str,
    values: dict[str, Value],
    scalars: tuple[str, ...],
    constants: dict[str, str],
    name: str,
) -> Program:
    chooses = operation in CHOICES
    blocks = [n for n, value in values.items() if value.in_blocks() and not chooses]
    wanted = {"c": BOOLEAN}
    if chooses:
        wanted["out"] = RECIPES[operation].types["half"]
    if any(
        value.element != wanted.get(n, element) or (value.layout and n not in blocks)
        for n, value in values.items()
    ):
        raise launches.refusal(f"{stage.operation} has operands of several forms")
    for operand in stage.inputs:
        if not aligned(operand, stage.output):
            raise launches.refusal(f"{stage.operation} reads {operand.name} in another order")
    named = dict(zip(RECIPES[operation].scalars, scalars, strict=True))
    return broadcast(
        operation,
        launches.extents(stage.output),
        {n: value.shape for n, value in values.items() if n != "out"},
        launches.core,
        scalars={**named, **constants},
        name=name,
        element=element,
        blocks=blocks,
    )


def aligned(operand: Operand, result: Operand) -> bool:
    """Return True if axes are those of the result from the last on, or broadcast."""
    axes = zip(
        reversed(operand.shape), reversed(operand.access), reversed(result.access), strict=False
    )
    return all(extent == 1 or first == other for extent, first, other in axes)


def alike(launches: Launches, operand: Operand) -> float | None:
    """The number that all elements of a constant are."""
    data = launches.known.get(operand.name)
    if data is None or not data.size or not np.issubdtype(data.dtype, np.floating):
        return None
    first = data.flat[0]
    return float(first) if bool((data == first).all()) else None


CHOICES = ("less", "less_equal", "equal", "select")
"""The operations that compare or choose."""


def rows_by_index(
    launches: Launches, stage: Stage, operands: Sequence[Value], target: Value | None
) -> Value:
    """The launch of a gather; see ``STAGES``. Of a launch's own length nothing depends: indices
    behind it are cut to the table like any other."""
    table, indices = operands
    shape = stage.output.shape
    result = target or launches.buffer(shape, table.element)
    if any(value.layout for value in (table, indices, result)) or table.element != result.element:
        raise launches.refusal("look-ups take rows of one element")
    reduced = (any(dim in stage.reduction for dim in axis.dims) for axis in stage.inputs[0].access)
    axis = list(reduced).index(True)
    extents, rank = launches.extents(stage.output), len(indices.shape)
    program = look_up(
        joined(extents[:axis]),
        table.shape[axis],
        joined(extents[axis + rank :]),
        joined(extents[axis : axis + rank]),
        launches.core,
        index=indices.element,
        name=launches.name("gather"),
        element=table.element,
    )
    launches.launch(program, table, indices, result)
    return result

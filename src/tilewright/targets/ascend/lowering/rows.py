"""Stages over whole rows: softmax, layer normalisation, and reductions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import prod

from tilewright.planning.domain import Operand, Stage
from tilewright.targets.ascend.kernels.normal import (
    Norm,
    Rows,
    layer_norm,
    softmax,
    softmax_across,
)
from tilewright.targets.ascend.kernels.portions import portions
from tilewright.targets.ascend.kernels.reductions import reduce_across, reduce_rows
from tilewright.targets.ascend.kernels.shares import joined, total
from tilewright.targets.ascend.lowering.launches import Launches, Value

FOLD_OF = {
    "reduce_mean": "add",
    "reduce_sum": "add",
    "reduce_product": "mul",
    "reduce_max": "max",
    "reduce_min": "min",
}
"""Reduction -> its fold."""


def _plain(launches: Launches, stage: Stage, *values: Value) -> str:
    """The element of all values. Refuses all but floats or halves row by row."""
    element = values[0].element
    if element not in ("float", "half") or any(
        (value.element, value.layout) != (element, "") for value in values
    ):
        raise launches.refusal(f"{stage.operation} takes rows of floats or of halves alone")
    return element


def _reduced(stage: Stage, operand: Operand) -> list[bool]:
    """Return, for each axis, True if it is reduced, False if it is kept whole."""
    return [any(dim in stage.reduction for dim in axis.dims) for axis in operand.access]


def normal(
    launches: Launches, stage: Stage, operands: Sequence[Value], target: Value | None
) -> Value:
    """The launch of a softmax or layer normalisation; see ``STAGES``."""
    shape = stage.output.shape
    first = operands[0]
    result = target or launches.buffer(shape, first.element, first.layout)
    blocks = all(value.in_blocks() for value in (first, result))
    plain = operands[1:] if blocks else (*operands, result)
    element = _plain(launches, stage, *plain) if plain else first.element
    flags = _reduced(stage, stage.inputs[0])
    axis = flags.index(True)
    count, inner = shape[axis], prod(shape[axis + 1 :])
    if blocks and (inner > 1 or axis < len(shape) - 1):
        raise launches.refusal(f"{stage.operation} of matrices in Nz is along their rows alone")
    free = [
        n for n, access in enumerate(stage.output.access) if launches.free.intersection(access.dims)
    ]
    short = free == [len(shape) - 2] and (blocks or prod(shape[:-2]) == 1)
    extents = launches.extents(stage.output)
    if not blocks and inner == 1:
        rows = Rows(1, joined(extents[:axis]), count, element, short=short)
    else:
        rows = Rows(joined(extents[:-2]), joined(extents[-2:-1]), count, element, blocks, short)
    name = launches.name(stage.operation)
    core = launches.core
    if stage.operation == "softmax" and inner > 1:
        columns = joined(extents[axis + 1 :])
        program = softmax_across(joined(extents[:axis]), count, columns, core, name, element)
    elif stage.operation == "softmax":
        program = softmax(rows, core, name)
    else:
        of = Norm(
            float(str(stage.attribute("epsilon", 1e-5))),
            bool(stage.attribute("centred", True)),
            len(operands) > 1,
            len(operands) > 2,
        )
        program = layer_norm(rows, core, of, name)
    launches.launch(program, *operands, result)
    return result


def reduction(
    launches: Launches, stage: Stage, operands: Sequence[Value], target: Value | None
) -> Value:
    """The launches of a reduction, one for each run of neighbouring axes; see ``STAGES``."""
    (value,) = operands
    result = target or launches.buffer(stage.output.shape, value.element)
    element = _plain(launches, stage, value, result)
    fold, mean = FOLD_OF[stage.operation], stage.operation == "reduce_mean"
    extents = launches.extents(stage.inputs[0])
    axes = zip(extents, _reduced(stage, stage.inputs[0]), strict=True)
    runs = [
        (joined([extent for extent, _ in run]), reduced)
        for reduced, run in groupby((axis for axis in axes if axis[0] != 1), lambda pair: pair[1])
    ]
    left = sum(reduced for _, reduced in runs)
    if not left:
        name = launches.name("copy")
        count = joined(extents)
        program = portions("copy", element, count, launches.core, name=name)
        launches.launch(program, value, result)
        return result
    while left:
        number = max(n for n, (_, reduced) in enumerate(runs) if reduced)
        count = total(runs[number][0])
        outer = joined([extent for extent, _ in runs[:number]])
        inner = joined([extent for extent, _ in runs[number + 1 :]])
        name = launches.name(stage.operation)
        if total(inner) > 1:
            program = reduce_across(
                *(fold, outer, count, inner, launches.core), mean=mean, name=name, element=element
            )
        else:
            program = reduce_rows(
                *(fold, outer, count, launches.core), mean=mean, name=name, element=element
            )
        del runs[number]
        left -= 1
        to = launches.buffer((total(outer) * total(inner),), element) if left else result
        launches.launch(program, value, to)
        value = to
    return result

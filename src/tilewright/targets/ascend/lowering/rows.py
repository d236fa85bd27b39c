"""Lowering of reductions over axes of a tensor: sums, means, largest and least elements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from tilewright.planning.domain import Operand, Stage
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

"""Stages between halves and integers of 8 bits.

Blocks of integers have twice as many columns, so a format changes on the way: matrices of whole
blocks come from rows or Nz to the Nz of integers in one kernel (kernels/quantise.py); others are
computed row by row, with changes of format around that.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.planning.domain import Operand, Stage
from tilewright.planning.layout import Layout
from tilewright.targets.ascend.formats import matrices
from tilewright.targets.ascend.kernels.elementwise import elementwise
from tilewright.targets.ascend.kernels.quantise import PAIR, Matrices, quantise
from tilewright.targets.ascend.kernels.recipes import recipe_of
from tilewright.targets.ascend.kernels.shares import joined
from tilewright.targets.ascend.kernels.vectors import number
from tilewright.targets.ascend.lowering.functions import NAMES, scalars_of
from tilewright.targets.ascend.lowering.launches import Launches, Value
from tilewright.targets.ascend.lowering.moves import relay
from tilewright.targets.ascend.lowering.points import alike
from tilewright.targets.ascend.machine import CUBE


def takes_blocks(source: Operand, result: Operand) -> bool:
    """Whether one kernel quantises a tensor: from rows or Nz to Nz, in whole blocks."""
    shape, rank = result.shape, len(result.shape)
    if rank < 2 or shape[-1] % PAIR or (source.element, result.element) != ("float16", "int8"):
        return False
    given, wanted = (Layout.parse(operand.layout, rank) for operand in (source, result))
    if wanted != matrices(rank, element_bytes=1):
        return False
    return given == matrices(rank) or (given.row_major and shape[-2] % CUBE == 0)


def quantised(
    launches: Launches, stage: Stage, operands: Sequence[Value], target: Value | None
) -> Value:
    """The launches of a stage that quantises or dequantises; see ``STAGES``."""
    x, operation = operands[0], NAMES[stage.operation]
    recipe = recipe_of(operation, launches.core)
    if recipe is None:
        raise launches.refusal(
            f"{launches.core.name} has no division, and quotients by the scale have to be exact"
        )
    kind = recipe.types.get(x.element)
    if kind is None or (target is not None and target.element != kind):
        raise launches.refusal(f"there is no kernel for {stage.operation} of {x.element}")
    scalars = [number(value) for value in scalars_of(stage.operation, dict(stage.attributes))]
    result = target or launches.buffer(x.shape, kind)
    if len(stage.inputs) == 1 and takes_blocks(stage.inputs[0], stage.output):
        *outer, rows, columns = zip(stage.output.access, x.shape, strict=True)
        of = Matrices(
            joined([launches.extent(axis, size) for axis, size in outer]),
            launches.extent(*rows, CUBE),
            launches.extent(*columns, PAIR),
            plain=not x.layout,
        )
        program = quantise(of, scalars, launches.core, launches.name(operation))
        launches.launch(program, x, result)
        return result
    for operand in stage.inputs[1:]:
        factor = alike(launches, operand)
        if factor is None:
            raise launches.refusal("there is no kernel for several scales")
        scalars.append(number(factor))
    if x.layout:
        x = relay(launches, stage, [x], launches.buffer(x.shape, x.element))
    rows_of = launches.buffer(x.shape, kind) if result.layout else result
    program = elementwise(
        *(operation, x.element, launches.elements(stage.output, ""), launches.core),
        scalars=tuple(scalars),
        name=launches.name(operation),
        even=launches.cores > 1 and prod(x.shape) > 1,
    )
    launches.launch(program, x, rows_of)
    return relay(launches, stage, [rows_of], result) if result.layout else result

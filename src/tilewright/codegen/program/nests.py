"""A compute as a nest of loops, for machines whose instructions or C functions are such nests.

Every operand has an address, and a step in bytes for each loop of the nest. Along a loop in which
the result does not move, products are summed, or the largest value is taken. Windows of images have
the positions of their first row and column beside: rows and columns that are not there are padding.

    fields, steps = nest_fields(computed, {"oh": 0, "ow": 1, "kh": 2, "kw": 3, "co": 4, "ci": 5})
    fields["n4"], fields["w.4"]     # output channels of a tile, and bytes from one's weights on
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.codegen.program.elements import elements, fraction, is_wide
from tilewright.codegen.program.operands import Computed, Fields
from tilewright.errors import refuse
from tilewright.numerics.pointwise import clip_bounds
from tilewright.tile.dialect import BufferOp, StageOp

WINDOW = ("oh", "ow", "kh", "kw")
"""Dims whose steps in the input are those of its rows and columns."""


@dataclass(frozen=True)
class Step:
    """A function of each element: of the sums, or of what a map reads."""

    operation: str
    first: int
    """The binary point of what it changes; of a clip, the least value."""
    second: int
    """The binary point of its other operand, or of its result; of a clip, the greatest value."""


def nest_fields(
    nest: Computed, loops: Mapping[str, int], *, reduces: bool
) -> tuple[Fields, list[Step]]:
    """The fields of a compute's nest, and the functions that follow it.

    ``loops`` has the number of each dim's loop; ``reduces`` says that the first stage sums or takes
    the largest, and is otherwise a function as those after it are. Fields are ``n0``, ``n1``, ...,
    for operands x, w, b (the bias), r (what a later stage adds) and y their ``address`` and steps
    (``x.0``), ``bias`` (1 if there is one), ``first`` and ``last`` part of a reduction, and those
    of ``Operand.window_fields``. Raises TilewrightError for what is no nest of 16-bit elements.
    """
    anchor, windowed = nest.anchor, "oh" in nest.extents
    lacking = ", ".join(nest.extents.keys() - loops.keys())
    if lacking:
        raise refuse("lower-rank", f"no loop of the machine's nest is for {lacking}", nest.where)
    if any(is_wide(kind) for kind in elements(anchor)[0][:2]):
        raise refuse("lower-element", "operands have 16 bits", nest.where)
    dims = {str(loops[dim]): dim for dim in nest.extents}
    fields: Fields = {f"n{loop}": nest.size(dim) for loop, dim in dims.items()}
    still = {n: dim for n, dim in dims.items() if not windowed or dim not in WINDOW}
    x = nest.operand(anchor, 0)
    fields |= x.fields("x", still)
    fields |= x.window_fields("x") if windowed else {}
    for index, name in zip(range(1, len(anchor.inputs)), "wb", strict=False):
        fields |= nest.operand(anchor, index).fields(name, dims)
    fields |= nest.output.fields("y", dims)
    first, last = nest.order.reduction(nest.op)
    fields |= {"first": first.astype(np.int64), "last": last.astype(np.int64)}
    fields["bias"] = int(len(anchor.inputs) == 3)
    steps = [] if reduces else [_step(anchor, turned=False)]
    for stage in nest.op.stages[1:]:
        others = [n for n, value in enumerate(stage.inputs) if isinstance(value.owner, BufferOp)]
        for index in others:
            fields |= nest.operand(stage, index).fields("r", dims)
        steps.append(_step(stage, turned=others == [0]))
    return fields, steps


def _step(stage: StageOp, *, turned: bool) -> Step:
    """A stage as a function; ``turned`` if its other operand comes first."""
    name, (kinds, result) = stage.operation.data, elements(stage)
    if name == "clip":
        wide = np.dtype(np.int32)
        return Step(name, *clip_bounds(stage.parameters, fraction(kinds[0]), wide))
    points = fraction(kinds[0]), fraction((*kinds, result)[1])
    return Step(name, *(points[::-1] if turned else points))

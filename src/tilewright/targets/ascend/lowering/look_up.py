"""The kernel of look-ups: rows by index."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.planning.domain import Stage
from tilewright.targets.ascend.kernels.look_up import look_up
from tilewright.targets.ascend.kernels.shares import joined
from tilewright.targets.ascend.lowering.launches import Launches, Value


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

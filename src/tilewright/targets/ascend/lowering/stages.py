"""The operations that have kernels: the registry of a kernel's stages.

``STAGES`` maps an operation of the graph to a function that adds its launches. A function is given
the stage's operands as values (what an earlier stage left, or an operand of the kernel), in the
stage's order, and where the result is to go; it may be asked for any shape, element and layout, and
raises ``launches.refusal(reason)`` for what it has no kernel for. Where ``target`` is None it takes
a buffer of its choice, and says with its result what that is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.planning.domain import Stage
from tilewright.targets.ascend.lowering.choices import CHOICES, choice
from tilewright.targets.ascend.lowering.launches import Launches, Value
from tilewright.targets.ascend.lowering.look_up import rows_by_index
from tilewright.targets.ascend.lowering.moves import move, pad, relay
from tilewright.targets.ascend.lowering.points import points
from tilewright.targets.ascend.lowering.pools import pooling
from tilewright.targets.ascend.lowering.quantised import quantised
from tilewright.targets.ascend.lowering.rows import FOLD_OF, normal, reduction
from tilewright.targets.ascend.vector_primitives import POINTS

StageLowering = Callable[[Launches, Stage, Sequence[Value], Value | None], Value]
"""Launches, stage, operands, target -> where the result is."""

STAGES: dict[str, StageLowering] = {
    **dict.fromkeys((*POINTS, "cast"), points),
    **dict.fromkeys(("quantise_linear", "dequantise_linear"), quantised),
    **dict.fromkeys(("softmax", "layer_norm"), normal),
    **dict.fromkeys(FOLD_OF, reduction),
    **dict.fromkeys(("transpose", "slice"), move),
    "pad": pad,
    **dict.fromkeys(("max_pool", "average_pool"), pooling),
    "convert_layout": relay,
    "gather": rows_by_index,
    **dict.fromkeys(CHOICES, choice),
}
"""Operation -> what lowers it. Products (products.py) are anchors with stages of their own."""


def operand_of(launches: Launches, stage: Stage, number: int) -> Value:
    """An operand of the kernel that a stage reads; indices of look-ups are integers."""
    operand = stage.inputs[number]
    if stage.operation == "gather" and number == 1:
        return launches.indices(operand)
    return launches.operand(operand)

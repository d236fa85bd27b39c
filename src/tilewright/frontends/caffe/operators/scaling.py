"""Scale and Bias: a factor or a summand per channel, or per element of some axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.frontends.caffe.lowering import Lowering
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of


def scale(at: Lowering) -> Sequence[SSAValue]:
    """x times a parameter or a second bottom, plus a bias if ``bias_term`` is set."""
    settings = at.settings("scale_param")
    factor, reached, drawn = _operand(at, settings, "scale")
    result = at.emit("mul", at.x, factor)
    if settings.bias_term:
        result = at.emit("add", result, at.parameter(reached, "bias", drawn=drawn))
    return [result]


def bias(at: Lowering) -> Sequence[SSAValue]:
    """x plus a parameter or a second bottom."""
    return [at.emit("add", at.x, _operand(at, at.settings("bias_param"), "bias")[0])]


def _operand(
    at: Lowering, settings: Any, kind: str
) -> tuple[SSAValue, tuple[int, ...], tuple[int, ...]]:
    """The second operand shaped to broadcast, the axes it covers, and its shape for broadcasting.

    A parameter covers ``num_axes`` axes from ``axis`` on (all if -1); a bottom as many as it has.
    """
    if len(at.values) not in (1, 2) or len(at.layer.tops) != 1:
        raise at.refuse("it takes one or two bottoms and one top")
    rank = len(at.shape)
    covered = len(shape_of(at.values[1])) if len(at.values) == 2 else int(settings.num_axes)
    if covered < -1:
        raise at.refuse(f"num_axes {covered} is less than -1")
    axis = 0 if covered == 0 else at.axis(settings.axis, rank)
    end = rank if covered == -1 else axis + covered
    if end > rank:
        raise at.refuse(f"{covered} axes from axis {axis} on leave a blob of rank {rank}")
    reached = at.shape[axis:end]
    drawn = reached + (1,) * (rank - end)
    if len(at.values) == 1:
        return at.parameter(reached, kind, drawn=drawn), reached, drawn
    if shape_of(at.values[1]) != reached:
        raise at.misfit(
            f"its second bottom has shape {list(shape_of(at.values[1]))}, where {list(reached)} "
            "is covered"
        )
    return at.reshape(at.values[1], drawn), reached, drawn

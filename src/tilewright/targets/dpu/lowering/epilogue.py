"""The steps after a kernel's sums: activation, and the shift to the result's binary point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.errors import TilewrightError, refuse
from tilewright.ir.types import fraction_of
from tilewright.numerics.pointwise import bound
from tilewright.numerics.power_of_two import RELU6_LIMIT
from tilewright.targets.dpu.machine import ROUNDING
from tilewright.tile.dialect import ComputeOp, StageOp


@dataclass(frozen=True)
class Epilogue:
    """The activation and the binary points of one kernel."""

    activation: str
    """The activation's name in instructions."""
    sums: int
    """Binary point of the anchor's results."""
    result: int
    """Binary point of the kernel's."""

    @property
    def shift(self) -> int:
        """Right shift from sums to results."""
        return self.sums - self.result

    @classmethod
    def of(cls, op: ComputeOp) -> Epilogue:
        """The epilogue of a compute; refuses (``lower-activation``) what no instruction does."""
        anchor, *stages = op.stages
        sums, result = fraction_of(anchor.result.type), fraction_of(op.stages[-1].result.type)
        activation = "none"
        for stage in stages:
            name = stage.operation.data
            if name == "relu":
                activation = "relu"
            elif name == "clip":
                activation = _clip(stage, sums, result)
            elif name == "leaky_relu":
                if tuple(stage.parameters.get("factor", ())) != ROUNDING.slope:
                    raise _refuse(stage, "its slope is not 26/256", "a slope of 0.1, as 26/256")
                activation = "leaky"
            elif name != "requantise":
                raise _refuse(stage, f"{name} cannot follow sums")
        return cls(activation, sums, result)


def _clip(stage: StageOp, sums: int, result: int) -> str:
    """``relu`` or ``relu6``: whichever gives the same as clipping sums to their bounds."""
    values: dict[str, Any] = stage.parameters
    wide = np.dtype(np.int32)
    if "minimum" not in values or bound(values["minimum"], sums, wide) != 0:
        raise _refuse(stage, "its lower bound is not 0")
    if "maximum" not in values:
        return "relu"
    most, shift = bound(values["maximum"], sums, wide), sums - result
    if most >= 127 << shift:  # beyond it results are cut to 127 anyway
        return "relu"
    if most == RELU6_LIMIT << shift:
        return "relu6"
    raise _refuse(
        stage,
        f"its upper bound is {most / 2**shift:g} units of the result, and ReLU6 cuts at "
        f"{RELU6_LIMIT}: 6 at a binary point of 4, not of {result}",
    )


def _refuse(
    stage: StageOp, reason: str, help: str = "ReLU, or ReLU6 at a binary point of 4"
) -> TilewrightError:
    node = stage.node.data if stage.node is not None else ""
    return refuse("lower-activation", f"{stage.operation.data}: {reason}", node, help)

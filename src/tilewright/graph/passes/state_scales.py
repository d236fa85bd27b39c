"""state-scales: scales and zero points become attributes, which instructions carry."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.graph.dialect import network_of
from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import Rewriter, compiler, operations_of, sweep
from tilewright.ir import Context, ModuleOp, ModulePass, StringAttr
from tilewright.ir.types import element_name, tensor_type


@dataclass(frozen=True)
class StateScales(ModulePass):
    """Write the constant scale and zero point of what the accelerator quantises as attributes.

    Before::

        %2 = graph.quantise_linear %1, %scale, %zero
        %4 = graph.dequantise_linear %3, %scales, %zeros

    After::

        %2 = graph.quantise_linear %1 {scale = 0.05, zero = 3, to = "int8"}
        %4 = graph.dequantise_linear %3, %scales {zero = 0}

    Generated loops read them like any other operand; instructions have fields for numbers, and one
    second operand, which the scales of channels are. Where there is no one scale, or zero points
    differ or are computed, the operation goes to the host, and says so.
    """

    name = "state-scales"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        context = compiler(ctx)
        for step in operations_of(op):
            if step.engine is None or step.engine.data != "accelerator":
                continue
            if step.operation not in ("quantise_linear", "dequantise_linear"):
                continue
            if len(step.inputs) == 3 and not _stated(step, Rewriter(context, step)):
                step.engine = StringAttr("host")
                step.reason = StringAttr(
                    "its scale or zero point is computed, or there are several (instructions "
                    "carry one)"
                )
        sweep(network_of(op))


def _stated(step: Operation, at: Rewriter) -> bool:
    """Rewrite an operation with scale and zero point as attributes, if possible; True if it was."""
    scale, zero = (at.constant(value) for value in step.inputs[1:])
    if scale is None or zero is None or np.unique(zero).size != 1:
        return False
    origin = int(zero.reshape(-1)[0])
    if step.operation == "dequantise_linear":
        return at.replace(at.make(step.operation, *step.inputs[:2], zero=origin))
    if np.unique(scale).size > 1:
        return False
    to, number = element_name(tensor_type(step.result).element_type), float(scale.reshape(-1)[0])
    stated = at.make(step.operation, step.inputs[0], scale=number, zero=origin, to=str(to))
    return at.replace(stated)

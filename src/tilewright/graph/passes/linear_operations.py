"""Quantising and dequantising in a graph, by the operations that quantised models come in as."""

from __future__ import annotations

import numpy as np

from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import add_weight, make
from tilewright.ir import Operation as AnyOperation
from tilewright.ir import SSAValue
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import Array, dtype_of


def quantised(
    value: SSAValue,
    scale: Array,
    dtype: np.dtype[np.generic],
    ctx: CompilerContext,
    before: AnyOperation,
    like: Operation | None,
) -> SSAValue:
    """value / scale to the nearest integer, of two the even one, saturated to ``dtype``."""
    operands = [value, add_weight(ctx, scale, before, "scale")]
    operands.append(add_weight(ctx, np.zeros((), dtype), before, "zero"))
    return make("quantise_linear", operands, before=before, like=like).result


def dequantised(
    value: SSAValue,
    scale: Array,
    ctx: CompilerContext,
    before: AnyOperation,
    like: Operation | None,
) -> SSAValue:
    """Integers times a scale that broadcasts to them, in float32."""
    dtype = dtype_of(value)
    operands = [value, add_weight(ctx, scale, before, "scale")]
    operands.append(add_weight(ctx, np.zeros((), dtype), before, "zero"))
    return make("dequantise_linear", operands, before=before, like=like).result

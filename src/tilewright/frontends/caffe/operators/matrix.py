"""The layer InnerProduct, a matrix product."""

from __future__ import annotations

import math

from tilewright.frontends.caffe.lowering import Lowering
from tilewright.frontends.limits import MAX_EXTENT
from tilewright.ir import SSAValue


def inner_product(at: Lowering) -> SSAValue:
    """Everything from ``axis`` on, as one vector, times weights [n, k] ([k, n] if transposed)."""
    settings = at.settings("inner_product_param")
    axis = at.axis(settings.axis, len(at.shape))
    outputs, depth = int(settings.num_output), math.prod(at.shape[axis:])
    if not 1 <= outputs < MAX_EXTENT:
        raise at.refuse(f"num_output {outputs} must lie in [1, {MAX_EXTENT})")
    rows = at.reshape(at.x, (math.prod(at.shape[:axis]), depth))
    transposed = bool(settings.transpose)
    shape = (depth, outputs) if transposed else (outputs, depth)
    operands = [at.parameter(shape, "weight", depth)]
    if settings.bias_term:
        operands.append(at.parameter((outputs,), "bias"))
    product = at.emit("matmul", rows, *operands, transpose_b=not transposed)
    return at.reshape(product, (*at.shape[:axis], outputs))

"""Operations that move elements and change none, and maxima: the integers move in their place."""

from __future__ import annotations

import numpy as np

from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import Rewriter
from tilewright.graph.passes.integers.reals import Ending, Real, plain_bytes
from tilewright.ir import SSAValue
from tilewright.numerics import affine


def keeping(op: Operation, ending: Ending, at: Rewriter) -> SSAValue | None:
    """f(x) = f(integers of x), with the same scale, then that of the result."""
    real = plain_bytes(op.inputs[0], at.ctx)
    if real is None:
        return None
    moved = at.make(op.operation, real.value, *op.inputs[1:], **op.values)
    return ending.rescaled(Real(moved, real.scale, real.zero))


def pad(op: Operation, ending: Ending, at: Rewriter) -> SSAValue | None:
    """Padding with a number that the scale has."""
    real = plain_bytes(op.inputs[0], at.ctx)
    if real is None:
        return None
    values = dict(op.values)
    if op.get("mode", "constant") == "constant":
        number = np.float32(op.get("value", 0.0))
        if not np.isfinite(number):
            return None
        scale, zero = real.scale.reshape(()), real.zero.reshape(()).astype(real.dtype)
        filled = affine.quantise(np.asarray(number), scale, zero)
        if affine.dequantise(filled, scale, zero) != number:
            return None
        values["value"] = float(filled)
    padded = at.make("pad", real.value, **values)
    return ending.rescaled(Real(padded, real.scale, real.zero))


def join(op: Operation, ending: Ending, at: Rewriter) -> SSAValue | None:
    """Each part takes on the result's scale first."""
    parts: list[SSAValue] = []
    for value in op.inputs:
        real = plain_bytes(value, at.ctx)
        if real is None:
            return None
        parts.append(ending.rescaled(real))
    return at.make(op.operation, *parts, **op.values)

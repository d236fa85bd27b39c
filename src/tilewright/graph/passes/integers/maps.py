"""Maps: sums and products of two tensors, and any function of one 8-bit number."""

from __future__ import annotations

import numpy as np

from tilewright.graph.operations import Operation
from tilewright.graph.operations.pointwise import PointwiseOperation
from tilewright.graph.passes.editing import Rewriter, constant, only_user, producer
from tilewright.graph.passes.integers.reals import Ending, Real, plain_bytes, table
from tilewright.ir import PythonValue, SSAValue
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import Array, shape_of
from tilewright.numerics import affine, pointwise

_STEPS = 32
"""Operations that a function of one number may consist of."""


def pair(op: Operation, ending: Ending, at: Rewriter) -> SSAValue | None:
    """x + y, x - y and x * y of tensors with a scale each."""
    first, second = (plain_bytes(value, at.ctx) for value in op.inputs)
    if first is None or second is None:
        return None
    attributes = ending.attributes
    attributes |= {"first_zero": first.origin, "second_zero": second.origin}
    name = "mul_linear"
    with np.errstate(all="ignore"):
        if op.operation == "mul":
            factors = {"factor": first.factor * second.factor / ending.scale}
        else:
            name = "add_linear"
            sign = np.float32(-1 if op.operation == "sub" else 1)
            factors = {
                "first_factor": first.factor / ending.scale,
                "second_factor": sign * second.factor / ending.scale,
            }
    if not all(np.isfinite(factor) for factor in factors.values()):
        return None
    attributes |= {key: float(factor) for key, factor in factors.items()}
    return at.make(name, first.value, second.value, **attributes)


def function_of_one(value: SSAValue, ending: Ending, ctx: CompilerContext) -> SSAValue | None:
    """Any maps of one quantised tensor and of numbers: a table."""
    search = _Function(ctx)
    entries_ = search.entries(value)
    if entries_ is None or search.source is None:
        return None
    source = search.source
    if shape_of(source.value) != shape_of(value):
        return None
    entries = ending.quantised(np.broadcast_to(entries_, (256,)))
    limits = np.iinfo(source.dtype)
    numbers = np.arange(limits.min, limits.max + 1).astype(source.dtype)
    if entries.dtype == source.dtype and bool((entries == numbers).all()):
        return source.value
    return table(source.value, entries, ending.quantise)


_ENDING = ("requantise_linear", "add_linear", "mul_linear")
"""Operations with limits of their own."""


def into_limits(op: Operation, ctx: CompilerContext) -> None:
    """A table that only cuts its numbers, or changes their sign bit: its producer does both."""
    source = producer(op.inputs[0], *_ENDING)
    if source is None or only_user(source.result) is not op:
        return
    values, to = source.values, str(op.get("to", ""))
    low, high = affine.limits(values)
    numbers = np.arange(low, high + 1)
    first = int(np.iinfo(str(values["to"])).min)
    entries = np.asarray(op.integers("table"))[numbers - first]
    least, most = int(entries.min()), int(entries.max())
    for shift in (0, int(np.iinfo(to).min) - first):
        if not bool((entries == np.clip(numbers + shift, least, most)).all()):
            continue
        zero = source.integer("zero", -(2**15), 2**16) + shift
        cut: dict[str, PythonValue] = {"zero": zero, "to": to, "minimum": least, "maximum": most}
        at = Rewriter(ctx, op, source)
        at.replace(at.make(source.operation, *source.inputs, **{**values, **cut}), source)
        return


class _Function:
    """Evaluates maps on the 256 numbers of the one quantised tensor that they all read."""

    def __init__(self, ctx: CompilerContext) -> None:
        self.ctx = ctx
        self.source: Real | None = None
        self.steps = 0

    def entries(self, value: SSAValue) -> Array | None:
        """A value for each of the 256 numbers; None if it depends on anything else."""
        array = constant(value, self.ctx)
        if array is not None:
            return array.reshape(()) if array.size == 1 else None
        op = value.owner
        self.steps += 1
        if not isinstance(op, Operation) or self.steps > _STEPS:
            return None
        real = plain_bytes(value, self.ctx)
        if real is not None:
            if self.source is not None and self.source.value is not real.value:
                return None
            self.source = real
            limits = np.iinfo(real.dtype)
            numbers = np.arange(limits.min, limits.max + 1).astype(real.dtype)
            return affine.dequantise(numbers, real.scale.reshape(-1), real.zero.reshape(-1))
        if not isinstance(op, PointwiseOperation):
            return None
        operands: list[Array] = []
        for operand in op.inputs:
            inner = self.entries(operand)
            if inner is None:
                return None
            operands.append(inner)
        try:
            with np.errstate(all="ignore"):
                return np.asarray(pointwise.evaluate(op.operation, operands, attributes=op.values))
        except KeyError:
            return None

"""Reading a quantised network: which floats are integers with a scale, and how a result ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import Rewriter, constant, make, only_user, producer
from tilewright.ir import PythonValue, SSAValue
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import Array, dtype_of
from tilewright.machine.numbers import integers_of
from tilewright.numerics import affine
from tilewright.numerics.operators import has

BYTES = (np.dtype(np.int8), np.dtype(np.uint8))


@dataclass(frozen=True)
class Real:
    """A float tensor that is (integers - zero) * scale."""

    value: SSAValue
    """The tensor of integers."""
    scale: Array
    """float32; it broadcasts to the tensor."""
    zero: Array
    """int32; it broadcasts to the tensor."""

    @property
    def plain(self) -> bool:
        """True if one scale and one zero point hold for the whole tensor."""
        return self.scale.size == self.zero.size == 1

    @property
    def factor(self) -> np.float32:
        """The one scale of all elements."""
        return np.float32(self.scale.reshape(-1)[0])

    @property
    def origin(self) -> int:
        """The one zero point."""
        return int(self.zero.reshape(-1)[0])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type of the integers."""
        return dtype_of(self.value)


def real_of(value: SSAValue, ctx: CompilerContext) -> Real | None:
    """The integers of a float, if it is dequantised from 8 or 32 bits by constants."""
    op = producer(value, "dequantise_linear")
    if op is None:
        return None
    scale, zero = (constant(operand, ctx) for operand in op.inputs[1:])
    if scale is None or zero is None or dtype_of(op.inputs[0]) not in (*BYTES, np.dtype(np.int32)):
        return None
    if not (np.isfinite(scale) & (scale > 0)).all():
        return None
    return Real(op.inputs[0], scale.astype(np.float32), zero.astype(np.int32))


def plain_bytes(value: SSAValue, ctx: CompilerContext) -> Real | None:
    """The 8-bit integers of a float, if they have one scale and one zero point."""
    real = real_of(value, ctx)
    return real if real is not None and real.plain and real.dtype in BYTES else None


@dataclass(frozen=True)
class Ending:
    """The quantisation of a float result: one scale and zero point, 8 bits, perhaps an
    activation."""

    quantise: Operation
    """The operation ``quantise_linear`` itself."""
    scale: np.float32
    zero: int
    dtype: np.dtype[Any]
    low: int
    high: int

    @property
    def clipped(self) -> bool:
        """True if an activation narrows the type's range."""
        limits = np.iinfo(self.dtype)
        return (self.low, self.high) != (limits.min, limits.max)

    @property
    def attributes(self) -> dict[str, PythonValue]:
        """As the attributes of an operation that ends so."""
        attributes: dict[str, PythonValue] = {"zero": self.zero, "to": self.dtype.name}
        if self.clipped:
            attributes |= {"minimum": self.low, "maximum": self.high}
        return attributes

    def quantised(self, x: Array) -> Array:
        """Floats as they end."""
        whole = affine.quantise(
            np.asarray(x, np.float32), np.asarray(self.scale), np.asarray(self.zero, self.dtype)
        )
        return np.clip(whole, self.low, self.high).astype(self.dtype)

    def same(self, real: Real) -> bool:
        """Return True if integers that pass through unchanged end so."""
        return (real.factor, real.origin, real.dtype, self.clipped) == (
            self.scale,
            self.zero,
            self.dtype,
            False,
        )

    def rescaled(self, real: Real) -> SSAValue:
        """Integers of a plain tensor as they end: through a table unless they stay the same."""
        if self.same(real):
            return real.value
        limits = np.iinfo(real.dtype)
        numbers = np.arange(limits.min, limits.max + 1).astype(real.dtype)
        floats = affine.dequantise(numbers, real.scale.reshape(-1), real.zero.reshape(-1))
        return table(real.value, self.quantised(floats), self.quantise)


def ending_of(op: Operation, ctx: CompilerContext) -> tuple[SSAValue, Ending] | None:
    """Return the value that a ``quantise_linear`` quantises, before its activations, and the
    quantisation; None for other operations."""
    scale, zero = (constant(operand, ctx) for operand in op.inputs[1:])
    if scale is None or zero is None or scale.size != 1 or zero.size != 1:
        return None
    number = np.float32(scale.reshape(-1)[0])
    if zero.dtype not in BYTES or not np.isfinite(number) or number <= 0:
        return None
    limits = np.iinfo(zero.dtype)
    ending = Ending(
        op, number, int(zero.reshape(-1)[0]), zero.dtype, int(limits.min), int(limits.max)
    )
    value, low, high = op.inputs[0], ending.low, ending.high
    while isinstance(value.owner, Operation) and has(value.owner.operation, "saturates"):
        step = value.owner
        relu = step.operation == "relu"
        if only_user(step.result) is None:
            break
        if relu or "minimum" in step.values:
            bound = 0.0 if relu else step.number("minimum")
            least = int(ending.quantised(np.array(bound)))
            low, high = max(low, least), max(high, least)
        if not relu and "maximum" in step.values:
            most = int(ending.quantised(np.array(step.number("maximum"))))
            low, high = min(low, most), min(high, most)
        value = step.inputs[0]
    if only_user(value) is None:
        return None
    return value, Ending(op, number, ending.zero, zero.dtype, low, high)


def table(value: SSAValue, entries: Array, before: Operation) -> SSAValue:
    """8-bit integers through a table of 256 8-bit integers."""
    attributes: dict[str, PythonValue] = {
        "table": tuple(int(entry) for entry in entries),
        "to": entries.dtype.name,
    }
    return make("look_up", [value], attributes, before=before, like=before).result


def activation_dtype(ctx: CompilerContext) -> np.dtype[Any]:
    """The 8-bit integers that the machine's products take: int8 where it computes on integers,
    uint8 where a processor's instructions multiply those by int8."""
    number = integers_of(ctx.machine)
    return np.dtype(np.uint8) if number is None else number.dtype


def activations(real: Real, at: Rewriter) -> tuple[SSAValue, int]:
    """A plain tensor's integers as products take them, and their zero point."""
    wanted = activation_dtype(at.ctx)
    if real.dtype == wanted:
        return real.value, real.origin
    least = int(np.iinfo(wanted).min)
    numbers = (np.arange(256) + least).astype(wanted)
    return table(real.value, numbers, at.op), real.origin + least - int(np.iinfo(real.dtype).min)

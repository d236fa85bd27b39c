"""Convolutions and matrix products of bytes with zero points: uint8 by int8 into int32.

sum (x - zx) * w = sum x * w - zx * sum w, and the last term joins the int32 bias; images are padded
with their zero point, which stands for 0. Weights with zero points of their own take the sums of
x as a further term (Jacob et al., "Quantization and training of neural networks for efficient
integer-arithmetic-only inference", CVPR 2018, section 2.3). All of it is exact modulo 2**32, and
holds for a zero point that is known only at run time, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import Rewriter
from tilewright.ir import PythonValue, SSAValue
from tilewright.ir.types import Array, shape_of


@dataclass(frozen=True)
class Bytes:
    """A computed tensor of bytes that stand for their differences from one zero point."""

    value: SSAValue
    zero: int | SSAValue
    """One number; where it is computed, a byte of the same kind."""


@dataclass(frozen=True)
class ByteWeights:
    """Constant int8 weights [co, ...], with a zero point for each output channel."""

    array: Array
    zero: Array
    """The zero point of each output channel, int32 [co]."""

    @property
    def sums(self) -> Array:
        """The sums of the weights less their zero points, int64 [co]."""
        axes = tuple(range(1, self.array.ndim))
        count = prod(self.array.shape[1:])
        return self.array.sum(axis=axes, dtype=np.int64) - self.zero.astype(np.int64) * count


Bias = Array | SSAValue
"""The bias of the sums, [co]: integers of any size, or computed int32."""


def convolved(op: Operation, x: Bytes, weights: ByteWeights, bias: Bias, at: Rewriter) -> SSAValue:
    """The int32 sums of a convolution, whose windows are those of ``op``."""
    attributes = dict(op.values)
    image, attributes["pads"] = padded(x, op.integers("pads"), at)
    weight = at.weight(weights.array, ".weight")
    total = at.make("conv", image, weight, *_moved(bias, weights, x, at), **attributes)
    if not weights.zero.any():
        return total
    # One channel of ones for each group: the sums of what every window covers.
    group = op.integer("group", 1, 2**24)
    ones = np.ones((group, *weights.array.shape[1:]), np.int8)
    sums = at.make("conv", image, at.weight(ones, ".sums.weight"), **attributes)
    if group > 1:
        count = weights.array.shape[0] // group
        index = np.repeat(np.arange(group), count).astype(np.int64)
        sums = at.make("gather", sums, at.weight(index, ".groups"), axis=1)
    return _less(total, sums, weights.zero.reshape(1, -1, 1, 1), at)


def multiplied(x: Bytes, weights: ByteWeights, bias: Bias, at: Rewriter) -> SSAValue:
    """The int32 sums of a product of a matrix and constant weights, which are of rank 2."""
    weight = at.weight(weights.array, ".weight")
    more = _moved(bias, weights, x, at)
    total = at.make("matmul", x.value, weight, *more, transpose_b=True)
    if not weights.zero.any():
        return total
    ones = at.weight(np.ones((1, weights.array.shape[1]), np.int8), ".ones")
    sums = at.make("matmul", x.value, ones, transpose_b=True)
    lead = (1,) * (len(shape_of(total)) - 1)
    return _less(total, sums, weights.zero.reshape(*lead, -1), at)


def padded(x: Bytes, pads: tuple[int, ...], at: Rewriter) -> tuple[SSAValue, tuple[int, ...]]:
    """An image padded with its zero point, unless that is 0, which operations pad with anyway."""
    if x.zero == 0 or not any(pads):
        return x.value, pads
    top, left, bottom, right = pads
    attributes: dict[str, PythonValue] = {"pads": (0, 0, top, left, 0, 0, bottom, right)}
    operands = [x.value]
    if isinstance(x.zero, int):
        attributes["value"] = float(x.zero)
    else:
        operands.append(x.zero)
    return at.of(at.op).make("pad", *operands, **attributes), (0, 0, 0, 0)


def _moved(bias: Bias, weights: ByteWeights, x: Bytes, at: Rewriter) -> list[SSAValue]:
    """The int32 bias of sums over bytes as they are, modulo 2**32; none where it is 0."""
    sums, plain = weights.sums, at.of(at.op)
    if isinstance(x.zero, int) and not isinstance(bias, SSAValue):
        moved = (bias - x.zero * sums).astype(np.int32)
        return [at.weight(moved, ".bias")] if moved.any() else []
    if isinstance(x.zero, int):
        moved = (x.zero * sums).astype(np.int32)
        subtrahend = at.weight(moved, ".sums") if moved.any() else None
    else:
        sums = at.weight(sums.astype(np.int32), ".sums")
        subtrahend = plain.make("mul", sums, plain.make("cast", x.zero, to="int32"))
    if not isinstance(bias, SSAValue):
        bias = at.weight(bias.astype(np.int32), ".bias")
    return [bias if subtrahend is None else plain.make("sub", bias, subtrahend)]


def _less(total: SSAValue, sums: SSAValue, zeros: Array, at: Rewriter) -> SSAValue:
    """total - zeros * sums, in int32; zeros that are all the same are one."""
    if bool((zeros == zeros.reshape(-1)[0]).all()):
        zeros = zeros.reshape(-1)[0]
    weight = at.weight(zeros.astype(np.int32), ".zeros")
    return at.make("sub", total, at.make("mul", sums, weight))

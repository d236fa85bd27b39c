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
from tilewright.graph.passes.editing import add_weight, make
from tilewright.ir import PythonValue, SSAValue
from tilewright.ir.passes import CompilerContext
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


def convolved(
    op: Operation,
    x: Bytes,
    weights: ByteWeights,
    bias: Bias,
    before: Operation,
    ctx: CompilerContext,
) -> SSAValue:
    """The int32 sums of a convolution, whose windows are those of ``op``."""
    attributes, name = dict(op.values), op.node_name or "conv"
    image, attributes["pads"] = padded(x, op.integers("pads"), before)

    def conv(*operands: SSAValue) -> SSAValue:
        return make("conv", [image, *operands], attributes, before=before, like=op).result

    weight = add_weight(ctx, weights.array, before, f"{name}.weight")
    total = conv(weight, *_moved(bias, weights, x, name, before, ctx))
    if not weights.zero.any():
        return total
    # One channel of ones for each group: the sums of what every window covers.
    group = op.integer("group", 1, 2**24)
    ones = np.ones((group, *weights.array.shape[1:]), np.int8)
    sums = conv(add_weight(ctx, ones, before, f"{name}.sums.weight"))
    if group > 1:
        count = weights.array.shape[0] // group
        index = np.repeat(np.arange(group), count).astype(np.int64)
        places = add_weight(ctx, index, before, f"{name}.groups")
        sums = make("gather", [sums, places], {"axis": 1}, before=before, like=op).result
    return _less(total, sums, weights.zero.reshape(1, -1, 1, 1), before, op, ctx)


def multiplied(
    op: Operation,
    x: Bytes,
    weights: ByteWeights,
    bias: Bias,
    before: Operation,
    ctx: CompilerContext,
) -> SSAValue:
    """The int32 sums of a product of a matrix and constant weights, which are of rank 2."""
    flags: dict[str, PythonValue] = {"transpose_b": True}
    name = op.node_name or "matmul"
    operands = [x.value, add_weight(ctx, weights.array, before, f"{name}.weight")]
    operands += _moved(bias, weights, x, name, before, ctx)
    total = make("matmul", operands, flags, before=before, like=op).result
    if not weights.zero.any():
        return total
    ones = np.ones((1, weights.array.shape[1]), np.int8)
    column = add_weight(ctx, ones, before, f"{name}.ones")
    sums = make("matmul", [x.value, column], flags, before=before, like=op).result
    lead = (1,) * (len(shape_of(total)) - 1)
    return _less(total, sums, weights.zero.reshape(*lead, -1), before, op, ctx)


def padded(x: Bytes, pads: tuple[int, ...], before: Operation) -> tuple[SSAValue, tuple[int, ...]]:
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
    return make("pad", operands, attributes, before=before, like=before).result, (0, 0, 0, 0)


def _moved(
    bias: Bias, weights: ByteWeights, x: Bytes, name: str, before: Operation, ctx: CompilerContext
) -> list[SSAValue]:
    """The int32 bias of sums over bytes as they are, modulo 2**32; none where it is 0."""
    sums = weights.sums
    if isinstance(x.zero, int) and not isinstance(bias, SSAValue):
        moved = (bias - x.zero * sums).astype(np.int32)
        return [add_weight(ctx, moved, before, f"{name}.bias")] if moved.any() else []
    if isinstance(x.zero, int):
        moved = (x.zero * sums).astype(np.int32)
        subtrahend = add_weight(ctx, moved, before, f"{name}.sums") if moved.any() else None
    else:
        sums = add_weight(ctx, sums.astype(np.int32), before, f"{name}.sums")
        zero = make("cast", [x.zero], {"to": "int32"}, before=before, like=before).result
        subtrahend = make("mul", [sums, zero], before=before, like=before).result
    if not isinstance(bias, SSAValue):
        bias = add_weight(ctx, bias.astype(np.int32), before, f"{name}.bias")
    if subtrahend is None:
        return [bias]
    return [make("sub", [bias, subtrahend], before=before, like=before).result]


def _less(
    total: SSAValue,
    sums: SSAValue,
    zeros: Array,
    before: Operation,
    like: Operation,
    ctx: CompilerContext,
) -> SSAValue:
    """total - zeros * sums, in int32; zeros that are all the same are one."""
    if bool((zeros == zeros.reshape(-1)[0]).all()):
        zeros = zeros.reshape(-1)[0]
    weight = add_weight(ctx, zeros.astype(np.int32), before, f"{like.node_name or 'sums'}.zeros")
    product = make("mul", [sums, weight], before=before, like=like).result
    return make("sub", [total, product], before=before, like=like).result

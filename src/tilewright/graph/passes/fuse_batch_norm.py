"""fuse-batch-norm: batch normalisation becomes part of a convolution's weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.graph.dialect import network_of
from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import (
    Rewriter,
    compiler,
    constant,
    finite,
    only_user,
    operations_of,
    producer,
    sweep,
)
from tilewright.ir import Context, ModuleOp, ModulePass, SSAValue
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import Array, shape_of
from tilewright.machine import Machine

LARGEST_FACTOR = 1e12
"""A channel scaled by more than this is left alone: its variance is as good as zero."""


@dataclass(frozen=True)
class FuseBatchNorm(ModulePass):
    """Fold batch normalisation into the convolution before it, or after it where that is exact.

    Before::

        %1 = graph.conv %x, %w {...}
        %2 = graph.batch_norm %1, %scale, %shift, %mean, %variance {epsilon = 1e-05}

    After (factor = scale / sqrt(variance + epsilon), computed in float64)::

        %2 = graph.conv %x, %w_times_factor, %shift_minus_mean_times_factor {...}

    A normalisation before a convolution is folded into its input channels if the convolution
    has no padding (the padding's zeros are not normalised). Any other one becomes a depthwise 1x1
    convolution on machines that have one but cannot apply any map to results as they are written,
    else a multiplication and an addition per channel. Normalisations with negative variance, or
    whose factor is not a sane number, stay as they are.
    """

    name = "fuse-batch-norm"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        context = compiler(ctx)
        for step in operations_of(op):
            if step.operation != "batch_norm":
                continue
            affine = _factor_and_shift(step, context)
            if affine is None:
                continue
            for way in (_into_producer, _into_consumer, _alone):
                if way(step, *affine, context):
                    break
        sweep(network_of(op))


def _factor_and_shift(op: Operation, ctx: CompilerContext) -> tuple[Array, Array] | None:
    """The normalisation as x * factor + shift, in float64."""
    arrays = [constant(value, ctx) for value in op.inputs[1:]]
    known = [array.astype(np.float64) for array in arrays if array is not None]
    if len(known) != 4:
        return None
    scale, shift, mean, variance = known
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + float(op.get("epsilon", 1e-5)))
        shift = shift - mean * factor
    if not finite(factor, shift) or bool((np.abs(factor) > LARGEST_FACTOR).any()):
        return None
    return factor, shift


def scale_convolution(
    conv: Operation, factor: Array, shift: Array, ctx: CompilerContext
) -> SSAValue | None:
    """A convolution before ``conv`` that gives its result * factor + shift per channel.

    None if its weights are not constant or the new ones are not finite in float32.
    """
    weight = constant(conv.inputs[1], ctx)
    bias = constant(conv.inputs[2], ctx) if len(conv.inputs) == 3 else np.zeros(len(factor))
    if weight is None or bias is None:
        return None
    with np.errstate(over="ignore"):
        scaled = (weight.astype(np.float64) * factor[:, None, None, None]).astype(np.float32)
        moved = (bias.astype(np.float64) * factor + shift).astype(np.float32)
    if not finite(scaled, moved):
        return None
    return _with_weights(Rewriter(ctx, conv), conv.inputs[0], scaled, moved)


def _with_weights(at: Rewriter, x: SSAValue, weight: Array, bias: Array) -> SSAValue:
    """The convolution that is rewritten with other operands."""
    operands = [at.weight(weight, ".weight"), at.weight(bias, ".bias")]
    return at.make("conv", x, *operands, **at.op.values)


def _into_producer(op: Operation, factor: Array, shift: Array, ctx: CompilerContext) -> bool:
    conv = producer(op.inputs[0], "conv")
    if conv is None or only_user(conv.result) is not op:
        return False
    scaled = scale_convolution(conv, factor, shift, ctx)
    return scaled is not None and Rewriter(ctx, op).replace(scaled, conv)


def _into_consumer(op: Operation, factor: Array, shift: Array, ctx: CompilerContext) -> bool:
    conv = only_user(op.result)
    if not isinstance(conv, Operation) or conv.operation != "conv":
        return False
    if conv.inputs[0] is not op.result or any(conv.get("pads", (0, 0, 0, 0))):
        return False
    weight = constant(conv.inputs[1], ctx)
    outputs = shape_of(conv.result)[1]
    bias = constant(conv.inputs[2], ctx) if len(conv.inputs) == 3 else np.zeros(outputs)
    if weight is None or bias is None:
        return False
    group = int(conv.get("group", 1))
    # [co, ci / group]: which input channel each weight meets.
    channel = np.arange(weight.shape[1])[None, :] + (
        np.arange(outputs)[:, None] // (outputs // group) * weight.shape[1]
    )
    wide = weight.astype(np.float64)
    with np.errstate(over="ignore"):
        moved = bias + np.einsum("oihw,oi->o", wide, shift[channel])
        scaled = (wide * factor[channel][:, :, None, None]).astype(np.float32)
        moved = moved.astype(np.float32)
    if not finite(scaled, moved):
        return False
    at = Rewriter(ctx, conv)
    return at.replace(_with_weights(at, op.inputs[0], scaled, moved), op)


def _alone(op: Operation, factor: Array, shift: Array, ctx: CompilerContext) -> bool:
    at, x, rank = Rewriter(ctx, op), op.inputs[0], len(shape_of(op.result))
    factor, shift = factor.astype(np.float32), shift.astype(np.float32)
    if not finite(factor, shift):
        return False
    if rank == 4 and _wants_depthwise(ctx.machine, len(factor)):
        operands = [at.weight(factor.reshape(-1, 1, 1, 1), ".weight"), at.weight(shift, ".bias")]
        return at.replace(at.make("conv", x, *operands, group=len(factor)))
    shape = (1, -1) + (1,) * (rank - 2)
    product = at.make("mul", x, at.weight(factor.reshape(shape), ".weight"))
    return at.replace(at.make("add", product, at.weight(shift.reshape(shape), ".bias")))


def _wants_depthwise(machine: Machine, channels: int) -> bool:
    if channels == 1 or any(primitive.epilogue_any for primitive in machine.primitives):
        return False
    return any(primitive.serves("depthwise_conv", {}) for primitive in machine.primitives)

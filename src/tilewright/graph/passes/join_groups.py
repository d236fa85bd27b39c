"""join-groups: groups of a convolution that are no whole blocks of channels become fewer."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, lcm

import numpy as np

from tilewright.graph.dialect import network_of
from tilewright.graph.operations import Operation
from tilewright.graph.passes.constraints import candidate, serving
from tilewright.graph.passes.editing import Rewriter, compiler, operations_of, sweep
from tilewright.ir import Context, ModuleOp, ModulePass
from tilewright.ir.types import Array
from tilewright.machine import Machine


@dataclass(frozen=True)
class JoinGroups(ModulePass):
    """Join groups until their channels are whole blocks; weights between what was apart are zero.

    Before, on a machine whose channels come in blocks of 16::

        %1 = graph.conv %x, %w {group = 8} : (tensor<1x64x9x9xf32>, tensor<32x8x3x3xf32>) -> ...

    After::

        %1 = graph.conv %x, %v {group = 2} : (tensor<1x64x9x9xf32>, tensor<32x32x3x3xf32>) -> ...

    Four groups are 32 channels of the image and 16 of the result. A machine that computes blocks
    takes as long for part of one as for all of it, so up to a block the zeros cost nothing. Where
    no number of groups is whole blocks, all become one. Done for constant weights, on machines with
    a primitive for the convolution whose ``blocks`` name its channels. Depthwise convolutions have
    primitives of their own (``depthwise_conv``). An infinite input times these zeros is NaN, in
    groups that it is no input of, too (docs/faq.md): leaving such layers to the host would take
    thousands of times as long.
    """

    name = "join-groups"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        context = compiler(ctx)
        for step in operations_of(op):
            count = joined(step, context.machine)
            at = Rewriter(context, step)
            weights = at.constant(step.inputs[1]) if count > 1 else None
            if weights is None:
                continue
            group = step.integer("group", 1, 2**24)
            symbol = at.weight(spread(weights, group, count), "grouped")
            values = {**step.values, "group": group // count}
            at.replace(at.make("conv", step.inputs[0], symbol, *step.inputs[2:], **values))
        sweep(network_of(op))


def joined(op: Operation, machine: Machine) -> int:
    """Return the number of groups of a convolution that become one; 1 where none need to."""
    if op.operation != "conv" or op.integer("group", 1, 2**24) == 1:
        return 1
    asked = candidate(op)
    if asked.operation != "conv" or not serving(asked, machine):
        return 1
    primitive, group = serving(asked, machine)[0], asked.extents["g"]
    count = 1
    for dim in ("co", "ci"):
        if dim in primitive.blocks:
            granule = primitive.multiples.get(dim, 1)
            count = lcm(count, granule // gcd(granule, asked.extents[dim]))
    return count if group % count == 0 else group


def spread(weights: Array, group: int, count: int) -> Array:
    """Weights [co, ci/group, kh, kw] as those of ``group // count`` groups."""
    channels, depth = weights.shape[:2]
    result = np.zeros((channels, depth * count, *weights.shape[2:]), weights.dtype)
    for number in range(group):
        rows = slice(number * channels // group, (number + 1) * channels // group)
        first = number % count * depth
        result[rows, first : first + depth] = weights[rows]
    return result

"""The rewriting rules of simplify: each takes an operation and says whether it rewrote it.

A rule may erase the operation it is given and operations before it that it leaves without users,
and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import Rewriter
from tilewright.graph.passes.rules import (
    attention,
    convolution,
    functions,
    normalisation,
    padding,
    phases,
    products,
    scaling,
    views,
)
from tilewright.ir.passes import CompilerContext


@dataclass(frozen=True)
class Rule:
    """A rewriting of operations of some names."""

    names: str
    """The operations, separated by spaces; "" for any."""
    rewrite: Callable[[Operation, Rewriter], bool]
    makes: str = ""
    """The operation that it makes; the machine must have a primitive for it."""

    def __call__(self, op: Operation, ctx: CompilerContext) -> bool:
        """Rewrite an operation; returns whether it was rewritten."""
        if self.names and op.operation not in self.names.split():
            return False
        if self.makes and not ctx.machine.primitives_for(self.makes):
            return False
        return self.rewrite(op, Rewriter(ctx, op))


AFFINE = "mul div add sub"

PHASES: tuple[tuple[Rule, ...], ...] = (
    (
        Rule("", views.drop_identity),
        Rule("reshape", views.merge_reshapes),
        Rule("transpose", views.merge_transposes),
        Rule("transpose", views.transpose_to_reshape),
        Rule("reshape", views.recognise_shuffle, "channel_shuffle"),
        Rule("", views.lift_constant),
        Rule("matmul", attention.recognise_attention),
        Rule("mul", functions.recognise_gelu, "gelu"),
        Rule("mul", functions.recognise_silu, "silu"),
        Rule("pow", functions.root_of_power),
        Rule("div", normalisation.recognise_layer_norm, "layer_norm"),
        Rule("div", normalisation.recognise_softmax),
        Rule("mul add", normalisation.scale_layer_norm),
        Rule("conv average_pool max_pool", padding.merge_pad),
        Rule("reduce_mean", padding.mean_to_pool),
        Rule("conv", convolution.crop_taps),
        Rule("", phases.split_phases),
        Rule("", phases.sink_interleave),
        Rule(AFFINE, scaling.into_convolution),
        Rule("matmul", products.keep_weight_transposed),
        Rule(AFFINE, products.into_product),
    ),
    (
        Rule("matmul", products.image_product_to_convolution),
        Rule("matmul", products.flatten_rows),
        Rule("matmul", products.take_transposed),
        Rule("", views.sink_reshape),
        Rule("", views.sink_reshape_of_rows),
        Rule("reshape", views.merge_reshapes),
        Rule("", views.drop_identity),
    ),
)
"""Rules by phase; each phase runs until nothing changes.

A product becomes a convolution only once the additions after it have become its bias.
"""

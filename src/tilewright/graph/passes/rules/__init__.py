"""The rewriting rules of simplify: each takes an operation and says whether it rewrote it.

A rule may erase the operation it is given and operations before it that it leaves without users,
and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.graph.operations import Operation
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

Rule = Callable[[Operation, CompilerContext], bool]

PHASES: tuple[tuple[Rule, ...], ...] = (
    (
        views.drop_identity,
        views.merge_reshapes,
        views.merge_transposes,
        views.transpose_to_reshape,
        views.recognise_shuffle,
        views.lift_constant,
        attention.recognise_attention,
        functions.recognise_gelu,
        functions.recognise_silu,
        normalisation.recognise_layer_norm,
        normalisation.scale_layer_norm,
        padding.merge_pad,
        padding.mean_to_pool,
        convolution.crop_taps,
        phases.split_phases,
        phases.sink_interleave,
        scaling.into_convolution,
        products.keep_weight_transposed,
        products.merge_bias,
        products.scale_columns,
    ),
    (
        products.image_product_to_convolution,
        products.flatten_rows,
        products.take_transposed,
        views.sink_reshape,
        views.sink_reshape_of_rows,
        views.merge_reshapes,
        views.drop_identity,
    ),
)
"""Rules by phase; each phase runs until nothing changes.

A product becomes a convolution only once the additions after it have become its bias.
"""

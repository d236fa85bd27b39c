"""The operations that are imported, and the rule of each; one file a family."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.frontends.stablehlo.lowering import Rule
from tilewright.frontends.stablehlo.operators import (
    convolution,
    elementwise,
    indexing,
    movement,
    product,
    reductions,
    windows,
)

RULES: Mapping[str, Rule] = {
    **elementwise.ELEMENTWISE,
    **movement.MOVEMENT,
    "chlo.top_k": indexing.top_k,
    "stablehlo.batch_norm_inference": reductions.batch_norm_inference,
    "stablehlo.convolution": convolution.convolution,
    "stablehlo.dot": product.dot,
    "stablehlo.dot_general": product.dot_general,
    "stablehlo.dynamic_slice": indexing.dynamic_slice,
    "stablehlo.dynamic_update_slice": indexing.dynamic_update_slice,
    "stablehlo.gather": indexing.gather,
    "stablehlo.reduce": reductions.reduce,
    "stablehlo.reduce_window": windows.reduce_window,
}
"""Rules by operation. Calls, loops, branches, tuples and sorts are taken in control.py."""

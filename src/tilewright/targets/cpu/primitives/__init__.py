"""The primitives of the cpu target: each writes the C of one register-tiled function."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.targets.cpu.primitives import (
    attention,
    explicit,
    general,
    grouped,
    lanewise,
    layer_norm,
    normalise,
    pointwise,
    product,
    reduce,
    rows,
    separable,
    shuffle,
    softmax,
    winograd,
)
from tilewright.targets.cpu.primitives.code import Emitter

EMITTERS: Mapping[str, Emitter] = {
    "conv_first": product.emit,
    "conv": product.emit,
    "conv_grouped": grouped.emit,
    "conv_explicit": explicit.emit,
    "conv_explicit_first": explicit.emit,
    "separable_conv": separable.emit,
    "winograd_2": winograd.emit,
    "winograd_4": winograd.emit,
    "winograd_6": winograd.emit,
    "winograd_2_5x5": winograd.emit,
    "winograd_2_plain": winograd.emit,
    "winograd_4_plain": winograd.emit,
    "winograd_6_plain": winograd.emit,
    "winograd_2_5x5_plain": winograd.emit,
    "matmul": product.emit,
    "matmul_m": product.emit,
    "matmul_n": product.emit,
    "depthwise_conv": lanewise.emit,
    "pool": lanewise.emit,
    "shuffle": shuffle.emit,
    "conv_first_8": product.emit,
    "conv_8": product.emit,
    "conv_grouped_8": grouped.emit,
    "matmul_8": product.emit,
    "depthwise_conv_8": lanewise.emit,
    "pool_8": lanewise.emit,
    "pool_16": lanewise.emit,
    "conv_16": product.emit,
    "matmul_16": product.emit,
    "matmul_16_m": product.emit,
    "matmul_16_n": product.emit,
    "lrn": normalise.emit_lrn,
    "softmax": softmax.emit,
    "attention": attention.emit,
    "layer_norm": layer_norm.emit,
    "reduce": reduce.emit,
    "row": rows.emit,
    "sort": rows.emit,
    "pointwise": pointwise.emit,
    "general": general.emit,
}
"""By the name of the machine's primitive."""

"""The primitives of the cpu target: each writes the C of one register-tiled function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.targets.cpu.primitives import (
    attention,
    blocked,
    boxes,
    decoding,
    general,
    grouped,
    lanewise,
    layer_norm,
    normalise,
    pieces,
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

_METHODS = ("winograd_2", "winograd_4", "winograd_6", "winograd_2_5x5")

_NAMES: Mapping[Emitter, Sequence[str]] = {
    product.emit: (
        *("conv_first", "conv", "conv_first_8", "conv_8", "conv_16"),
        *("matmul", "matmul_m", "matmul_n", "matmul_rows", "matmul_8"),
        *("matmul_16", "matmul_16_m", "matmul_16_n"),
    ),
    grouped.emit: ("conv_grouped", "conv_grouped_8"),
    separable.emit: ("separable_conv",),
    winograd.emit: (*_METHODS, *(f"{name}_plain" for name in _METHODS)),
    pieces.emit: ("conv_pieces", "matmul_pieces", "conv_pieces_3", "matmul_pieces_3"),
    lanewise.emit: ("depthwise_conv", "depthwise_conv_8", "pool", "pool_8", "pool_16"),
    shuffle.emit: ("shuffle",),
    normalise.emit_lrn: ("lrn",),
    softmax.emit: ("softmax",),
    attention.emit: ("attention",),
    blocked.emit_matmul: ("block_matmul",),
    blocked.emit_round: ("block_round",),
    blocked.emit_gather: ("block_gather",),
    decoding.emit_rotate: ("rotate",),
    decoding.emit_attention: ("cached_attention",),
    layer_norm.emit: ("layer_norm",),
    reduce.emit: ("reduce",),
    rows.emit: ("row", "sort", "partition"),
    boxes.emit: ("suppression",),
    pointwise.emit: ("pointwise",),
    general.emit: ("general",),
}

EMITTERS: Mapping[str, Emitter] = {name: emit for emit, names in _NAMES.items() for name in names}
"""The function that emits each primitive, by the name in the machine."""

"""The primitives whose tiles are computed by other code than loops over rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.targets.sunway.emit.im2col import im2col
from tilewright.targets.sunway.emit.rows import Rows
from tilewright.targets.sunway.emit.winograd import winograd_input, winograd_output
from tilewright.targets.sunway.gemm.emit import convolution, product, product_in_turns

TileCode = Callable[[Rows], list[str]]
"""Writes the body of the function that computes a tile."""

TILE_CODE: Mapping[str, tuple[TileCode, str]] = {
    "conv": (convolution, "gemm.h"),
    "matmul": (product, "gemm.h"),
    "matmul_in_turns": (product_in_turns, "turns.h"),
    "im2col": (im2col, "im2col.h"),
    "winograd_input": (winograd_input, "winograd.h"),
    "winograd_output": (winograd_output, "winograd.h"),
}
"""By primitive, for those that are computed by other code than rows: the code, and its header."""

"""float32 as sums of bfloat16, and weights in the order in which matrix tiles read them.

The nearest bfloat16 to a number, and the nearest to what is left of it, are its two pieces; their
sum is within 2**-17 of it. Where the nearest would be infinite (from 3.39e38 on) both are cut, not
rounded: the pieces and their sum are finite, within 2**-16 of the number. Of the four products of
two such sums the smallest, below 2**-16 of the whole, is left out (as in oneMKL's mode of three
products, ``bf16x3``).

Three pieces are the number: its first 8 bits, the nearest bfloat16 to the rest, and what is then
left, which has at most 8 bits (numbers below 2**-102 lose what is below 2**-126). Of nine products
three are left out, of the second and the third pieces: below 2**-22 of the whole, and of either
sign, 2**-25 in the root mean square (oneMKL's ``bf16x6``, Henry, Tang and Heinecke, "Leveraging the
bfloat16 artificial intelligence datatype for higher-precision computations", 2019).
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tilewright.memory.alignment import ceil_div
from tilewright.numerics.arrays import Array

TWO, THREE = 2, 3
"""Pieces to a float32: nearly the number, and the number itself."""

PRODUCTS = {TWO: ((0, 1), (0, 0), (1, 0)), THREE: ((0, 2), (0, 1), (1, 1), (1, 0), (2, 0), (0, 0))}
"""Pieces of a point, and of a weight, that are multiplied, in this order: one of them changes."""

GROUP = 32
"""Inputs that a row of a matrix tile holds."""

HALF = GROUP // 2


def groups(channels: int) -> int:
    """The number of groups of ``GROUP`` input channels, the last one perhaps not full."""
    return ceil_div(channels, GROUP)


def split_weights(weights: Array, pieces: int = TWO) -> Array:
    """Weights [co, ci, ...taps] of float32 as [co, groups * taps * parts * 32].

    For each group of input channels and each tap, in this order: of two pieces the first ones of
    inputs 0, 16, 1, 17, ..., then the second ones, as bfloat16; of three pieces, which are split
    where they are read, the float32 in the same order. Channels that are not there are 0. What is
    not finite is its first piece, and the second is 0.
    """
    co, ci = weights.shape[:2]
    taps = int(np.prod(weights.shape[2:], dtype=np.int64))
    padded = np.zeros((co, groups(ci) * GROUP, taps), np.float32)
    padded[:, :ci] = weights.reshape(co, ci, taps)
    parts = padded[None]
    if pieces == TWO:
        parts = np.stack(_halves(padded))  # [part, co, group * half * lane, tap]
    parts = parts.reshape(-1, co, groups(ci), 2, HALF, taps)
    return np.ascontiguousarray(parts.transpose(1, 2, 5, 0, 4, 3)).reshape(co, -1)


def _halves(values: Array) -> tuple[Array, Array]:
    """The two pieces of each number."""
    with np.errstate(over="ignore", invalid="ignore"):
        first = values.astype(ml_dtypes.bfloat16)
        second = (values - first.astype(np.float32)).astype(ml_dtypes.bfloat16)
    odd = ~np.isfinite(first)
    if odd.any():
        given = values[odd]
        whole = np.where(np.isfinite(given), _cut(given), given)
        rest = np.subtract(given, whole, where=np.isfinite(given), out=np.zeros_like(given))
        first[odd], second[odd] = whole, _cut(rest)
    return first, second


def _cut(values: Array) -> Array:
    """Return the floats whose bits are the upper halves of float32 values."""
    return (values.view(np.uint32) & 0xFFFF0000).view(np.float32)


def join_weights(parts: Array, channels: int, taps: tuple[int, ...]) -> Array:
    """Invert ``split_weights``: return weights as [co, channels, *taps] of float32."""
    co, count = parts.shape[0], int(np.prod(taps, dtype=np.int64))
    lying = parts.astype(np.float32).reshape(co, groups(channels), count, -1, HALF, 2)
    whole = lying.sum(3, dtype=np.float32).transpose(0, 1, 4, 3, 2)
    whole = whole.reshape(co, groups(channels) * GROUP, count)[:, :channels]
    return np.ascontiguousarray(whole).reshape(co, channels, *taps)

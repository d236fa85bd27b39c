"""float32 as sums of two bfloat16, and weights in the order in which matrix tiles read them.

The nearest bfloat16 to a number, and the nearest to what is left of it, are its pieces; their sum
is within 2**-17 of it. Of the four products of two such sums the smallest, below 2**-16 of the
whole, is left out (as in oneMKL's mode of three products, ``bf16x3``).
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


PIECES = 2
"""bfloat16 to a float32."""

GROUP = 32
"""Inputs that a row of a matrix tile holds."""

HALF = GROUP // 2


def groups(channels: int) -> int:
    """Groups of so many input channels, the last perhaps not full."""
    return -(-channels // GROUP)


def split_weights(weights: Array) -> Array:
    """Weights [co, ci, ...taps] of float32 as [co, groups * taps * 2 * 32] of bfloat16.

    For each group of input channels and each tap, in this order: the first pieces of inputs 0, 16,
    1, 17, ..., then the second ones. Channels that are not there are 0.
    """
    co, ci = weights.shape[:2]
    taps = int(np.prod(weights.shape[2:], dtype=np.int64))
    padded = np.zeros((co, groups(ci) * GROUP, taps), np.float32)
    padded[:, :ci] = weights.reshape(co, ci, taps)
    first = padded.astype(ml_dtypes.bfloat16)
    second = (padded - first.astype(np.float32)).astype(ml_dtypes.bfloat16)
    both = np.stack([first, second])  # [piece, co, group * half * lane, tap]
    both = both.reshape(PIECES, co, groups(ci), 2, HALF, taps)
    return np.ascontiguousarray(both.transpose(1, 2, 5, 0, 4, 3)).reshape(co, -1)


def join_weights(pieces: Array, channels: int, taps: tuple[int, ...]) -> Array:
    """What ``split_weights`` made of weights, as [co, channels, *taps] of float32."""
    co, count = pieces.shape[0], int(np.prod(taps, dtype=np.int64))
    parts = pieces.astype(np.float32).reshape(co, groups(channels), count, PIECES, HALF, 2)
    whole = parts.sum(3, dtype=np.float32).transpose(0, 1, 4, 3, 2)
    whole = whole.reshape(co, groups(channels) * GROUP, count)[:, :channels]
    return np.ascontiguousarray(whole).reshape(co, channels, *taps)

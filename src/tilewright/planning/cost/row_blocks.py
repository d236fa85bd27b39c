"""The number of rows, or channels, of a result that a primitive computes in the time of one.

Where instructions are of rows (``Synchronisation.by_rows``), a compute counts as one for each block
of that many rows, and a reader of one row of a block waits for the whole block.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.machine import Expression

ROWS = ("oh", "d2", "m", "n")
"""The dims of primitives that run along the rows of a result; the first that there is."""

MOST_AT_ONCE = 64
"""Rows or channels that a primitive is taken to compute at once at most."""


def computed_at_once(cycles: Expression, sizes: Mapping[str, int], dim: str) -> int:
    """The most of a dim that take no longer than one, by a primitive's cycles."""
    numbers = np.arange(1, MOST_AT_ONCE + 2)
    taken = np.broadcast_to(np.asarray(cycles.evaluate({**sizes, dim: numbers})), numbers.shape)
    longer = np.flatnonzero(taken > taken[0])
    return int(longer[0]) if longer.size else MOST_AT_ONCE


def row_dim(sizes: Mapping[str, object]) -> str:
    """The dim of a result's rows; "" where there is none."""
    return next((dim for dim in ROWS if dim in sizes), "")

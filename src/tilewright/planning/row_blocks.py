"""The number of rows, or channels, of a result that a primitive computes in the time of one.

Where instructions wait for rows, a compute is an instruction for each block of that many rows, and
what reads one of them waits for all. A move is an instruction for each row.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.machine import Expression, Move
from tilewright.planning.domain import Operand
from tilewright.planning.footprint import Floats, Ints
from tilewright.planning.layout import Layout

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


def row_axis(operand: Operand) -> int | None:
    """The axis along which a move has an instruction for each index: the outermost one in main
    memory that has several."""
    factors = Layout.parse(operand.layout, len(operand.shape)).factors
    return next((f.axis for f in factors[:-1] if operand.shape[f.axis] > 1), None)


def latency_of_rows(move: Move, rows: Floats | Ints, size: Floats | Ints) -> Floats:
    """Latency of a transfer of so many rows and bytes, each of which has its own, beside the time
    in which its bytes flow."""
    flow = size / move.bytes_per_cycle
    return np.maximum(move.latency, (rows * move.latency + flow) / move.in_flight - flow)


__all__ = [
    "MOST_AT_ONCE",
    "ROWS",
    "computed_at_once",
    "latency_of_rows",
    "row_axis",
    "row_dim",
]

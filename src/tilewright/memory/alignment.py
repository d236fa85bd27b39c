"""Rounding of sizes and addresses, and ranges that meet."""

from __future__ import annotations

ALIGNMENT = 64
"""Bytes to which addresses are aligned where nothing else is said: one cache line, one vector."""


def ceil_div(value: int, divisor: int) -> int:
    """The least number of runs of ``divisor`` that hold ``value``."""
    return -(-value // divisor)


def align_up(value: int, alignment: int = ALIGNMENT) -> int:
    """The least multiple of ``alignment`` that is at least ``value``."""
    return ceil_div(value, alignment) * alignment


def shared(start: int, end: int, other_start: int, other_end: int) -> int:
    """Bytes that the ranges [start, end) and [other_start, other_end) share."""
    return max(min(end, other_end) - max(start, other_start), 0)

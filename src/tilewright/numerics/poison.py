"""The bytes of memories before anything is written: they show in results, and differ by seed.

A simulator whose memories begin with zeros cannot tell a padding that is loaded from one that is
not. No program depends on these bytes; two runs with two seeds tell whether one does.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

PERIOD = 4093
"""Bytes after which they repeat: a prime, so that rows of a memory are not alike."""


def spoil(memory: NDArray[np.uint8], seed: int) -> None:
    """Fill a memory with what it holds before anybody writes."""
    pattern = _pattern(seed)
    whole = memory.size // PERIOD * PERIOD
    memory[:whole].reshape(-1, PERIOD)[:] = pattern
    memory[whole:] = pattern[: memory.size - whole]


def byte_of(seed: int, first: int) -> int:
    """The byte that memories of a shim in C begin with: ``first`` for seed 0."""
    return (first + 0x3C * seed) & 0xFF


@lru_cache(maxsize=8)
def _pattern(seed: int) -> NDArray[np.uint8]:
    # No byte is 0, which is what a missing write most often looks like when it is right.
    return np.random.default_rng([0xF00D, seed]).integers(1, 256, PERIOD, np.uint8)

"""The checks that operands fit in their memories and that read bytes were written; compiled."""

from __future__ import annotations

import numpy as np

from tilewright.numerics.compiled import compiled_together
from tilewright.targets.cambricon.simulate import state as at
from tilewright.targets.cambricon.simulate.state import Array

BLOCK = 128
"""Bytes that one number of the mask of written elements stands for."""

ONES = np.uint64(0xFFFFFFFFFFFFFFFF)


@compiled_together
def _bits(low: int, high: int, block: int) -> np.uint64:
    """Bits of a block's number for the bytes ``low`` to ``high``, the last not included."""
    begin = max(low - block * BLOCK, 0) // 2
    end = min(high - block * BLOCK, BLOCK) // 2
    return (ONES << np.uint64(begin)) & (ONES >> np.uint64(64 - end))


@compiled_together
def mark(known: Array, low: int, high: int) -> None:
    """Note that bytes ``low`` to ``high`` (even) have been written."""
    if high > low:
        first, last = low // BLOCK, (high - 1) // BLOCK
        known[first] |= _bits(low, high, first)
        between = known[first + 1 : last]
        for i in range(between.size):
            between[i] = ONES
        known[last] |= _bits(low, high, last)


@compiled_together
def missing(known: Array, low: int, high: int) -> int:
    """The first of bytes ``low`` to ``high`` that was never written, or -1."""
    if high <= low:
        return -1
    first, last = low // BLOCK, (high - 1) // BLOCK
    # One pass without branches over what is nearly always all ones.
    unknown = ~known[first] & _bits(low, high, first) | ~known[last] & _bits(low, high, last)
    between = known[first + 1 : last]
    for i in range(between.size):
        unknown |= ~between[i]
    if unknown:
        for block in range(first, last + 1):
            unknown = ~known[block] & _bits(low, high, block)
            for bit in range(64):
                if unknown >> np.uint64(bit) & np.uint64(1):
                    return block * BLOCK + 2 * bit
    return -1


@compiled_together
def touch(
    n: Array,
    known: Array,
    number: int,
    memory: int,
    address: int,
    count: int,
    width: int,
    write: bool,
) -> int:
    """Check one operand of an instruction and note it as its access ``number``; DONE if it fits.

    Reads are checked for bytes that were never written, unless only the time is wanted; the caller
    marks what it writes.
    """
    n[at.ERROR_MEMORY] = memory
    n[at.ERROR_ADDRESS] = address
    n[at.ERROR_BYTES] = count * width
    if count < 0:
        return at.SIZE
    capacity = n[at.SIZES + memory]
    if address < 0 or count > capacity or address + count * width > capacity:
        return at.BOUNDS
    if memory != at.MAIN and address & (width - 1):
        return at.ALIGNMENT
    place = at.ACCESS + 4 * number
    n[place] = memory
    n[place + 1] = address
    n[place + 2] = address + count * width
    n[place + 3] = 1 if write else 0
    if not write and memory < 2 and not n[at.TIME_ONLY]:
        base = n[at.BASES + memory]
        byte = missing(known, base + address, base + address + count * width)
        if byte >= 0:
            n[at.ERROR_ADDRESS] = byte - base
            return at.UNINITIALISED
    return at.DONE

"""Commands as the simulators see them: packed records, one per instruction that an engine runs.

A target decodes its instruction words into these; nothing here knows of any instruction set.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.machine.checks import MAX_ENGINES
from tilewright.machine.model import Move

TIMED = np.dtype(
    [
        ("engine", np.int16),
        ("move", np.int16),
        ("kernel", np.int32),
        ("bytes", np.int64),
        ("cycles", np.int64),
        ("latency", np.int64),
        ("waits", np.int32, (MAX_ENGINES,)),
    ]
)
"""The record of one command for timing; the array is in program order.

- ``engine``: index into ``machine.engines``; the engine runs its commands in program order.
- ``move``: index into ``machine.moves`` of a transfer, -1 for anything else. It gives the
  bandwidth, the memories at the ends, and how many transfers are in flight.
- ``kernel``: index for reports, from 0.
- ``bytes``: bytes that flow through main memory, as rounded by ``transfer_bytes``.
- ``cycles``: shortest length of the busy phase: the cycles of a compute, or what a transfer costs
  on chip when that may be longer than its bytes take to flow.
- ``latency``: cycles from the start to the busy phase; the move's latency for a transfer.
- ``waits[e]``: how many commands of engine ``e``, counted from the start of the program, must have
  completed before this one starts; 0 is no wait.
"""

ACCESS = np.dtype(
    [
        ("command", np.int32),
        ("memory", np.int16),
        ("write", np.bool_),
        ("address", np.int64),
        ("run", np.int64),
        ("count", np.int32, (3,)),
        ("stride", np.int64, (3,)),
    ]
)
"""Bytes that one command touches in one memory; a command may have any number of these.

Touched are the bytes ``address + i0*stride[0] + i1*stride[1] + i2*stride[2] + [0, run)`` for each
``i`` in ``[0, count)``. ``memory`` is an index into ``machine.memories``; ``command`` one into the
TIMED array. Axes that are not needed have count 1; strides are in bytes and not negative.
"""

TimedArray = NDArray[np.void]
"""A one-dimensional array of TIMED records."""

AccessArray = NDArray[np.void]
"""A one-dimensional array of ACCESS records."""


def timed_table(size: int) -> TimedArray:
    """``size`` TIMED records that do nothing: no move, no cycles, no waits."""
    table = np.zeros(size, TIMED)
    table["move"] = -1
    return table


def access_table(size: int) -> AccessArray:
    """``size`` ACCESS records of no bytes, with counts of 1."""
    table = np.zeros(size, ACCESS)
    table["count"] = 1
    return table


def transfer_bytes(move: Move, run: Any, count: Any = 1, *, address: Any = 0) -> Any:
    """Bytes of bandwidth that ``count`` contiguous blocks of ``run`` bytes cost on a move.

    Both ends of every block are rounded outwards to the move's transactions, and the sum is
    divided by the efficiency that the move reaches with blocks of ``run`` bytes. ``address`` is
    that of the first block; all lie like it in their transactions. ``run``, ``count`` and
    ``address`` may be arrays that broadcast. Returns an int, or an array of int64.
    """
    size, many, first = (np.asarray(v, np.int64) for v in (run, count, address))
    step = move.transaction
    total = _rounded(size, first, step) * many
    total = np.where(size > 0, total, 0)
    if move.efficiency:
        lengths, fractions = zip(*move.efficiency, strict=True)
        total = np.ceil(total / np.interp(size, lengths, fractions) - 1e-9).astype(np.int64)
    return int(total) if total.ndim == 0 else total


def _rounded(run: NDArray[np.int64], address: NDArray[np.int64], step: int) -> NDArray[np.int64]:
    return (address % step + run + step - 1) // step * step

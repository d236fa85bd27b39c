"""Passes over timed records, compiled: whether they can be, and what is summed up from a run."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.numerics.compiled import compiled

Array = Any
"""A NumPy array; numba infers the element types."""


@compiled
def possible(
    engine: Array,
    move: Array,
    kernel: Array,
    size: Array,
    cycles: Array,
    latency: Array,
    waits: Array,
    bounds: Array,
) -> bool:
    """Return True if every field ``f`` is in ``[bounds[f, 0], bounds[f, 1])`` and waits can be met.

    ``bounds`` has the fields in the order of the arguments.
    """
    counts = np.zeros(waits.shape[1], np.int64)
    for c in range(engine.size):
        if not (
            bounds[0, 0] <= engine[c] < bounds[0, 1]
            and bounds[1, 0] <= move[c] < bounds[1, 1]
            and bounds[2, 0] <= kernel[c] < bounds[2, 1]
            and bounds[3, 0] <= size[c] < bounds[3, 1]
            and bounds[4, 0] <= cycles[c] < bounds[4, 1]
            and bounds[5, 0] <= latency[c] < bounds[5, 1]
        ):
            return False
        counts[engine[c]] += 1
    for c in range(engine.size):
        for e in range(counts.size):
            if not 0 <= waits[c, e] <= counts[e]:
                return False
    return True


@compiled
def summary(
    engine: Array,
    move: Array,
    kernel: Array,
    size: Array,
    start: Array,
    data: Array,
    end: Array,
    engines: int,
    through_main: Array,
) -> tuple[Array, Array, Array, Array, Array]:
    """Busy cycles per engine; start, end, bytes through main memory and work per kernel.

    An engine's commands end in order, so that the union of their spans is found in one pass.
    ``through_main`` says it per move; its last entry is for commands without a move.
    """
    kernels = 0
    for k in kernel:
        kernels = max(kernels, k + 1)
    busy, last = np.zeros(engines), np.zeros(engines)
    kernel_start, kernel_end = np.full(kernels, np.inf), np.zeros(kernels)
    kernel_bytes = np.zeros(kernels, np.int64)
    kernel_work = np.zeros((kernels, engines))
    for c in range(engine.size):
        e, k = engine[c], kernel[c]
        busy[e] += end[c] - max(start[c], last[e])
        last[e] = end[c]
        kernel_work[k, e] += end[c] - data[c]
        kernel_start[k] = min(kernel_start[k], start[c])
        kernel_end[k] = max(kernel_end[k], end[c])
        if through_main[move[c]]:
            kernel_bytes[k] += size[c]
    for k in range(kernels):
        if kernel_start[k] == np.inf:
            kernel_start[k] = 0.0
    return busy, kernel_start, kernel_end, kernel_bytes, kernel_work

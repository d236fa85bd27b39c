"""Which instructions must be done before each of a kernel's, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.numerics.compiled import compiled

Array = Any
"""A NumPy array; numba infers the element types."""


@compiled
def waits_of(
    engine: Array, first: Array, begin: Array, end: Array, writes: Array, engines: int, places: int
) -> Array:
    """[instructions, engines]: how many of an engine's instructions must be done before each.

    Instructions are in program order, and those of one engine wait for one another in any case.
    Instruction ``i`` touches the places ``begin[a]`` to ``end[a] - 1`` for each ``a`` from
    ``first[i]`` to ``first[i + 1] - 1``, and ``writes[a]`` says how.
    """
    read = np.zeros((engines, places), np.int64)
    written = np.zeros((engines, places), np.int64)
    issued = np.zeros(engines, np.int64)
    waits = np.zeros((engine.size, engines), np.int64)
    for i in range(engine.size):
        own = engine[i]
        for a in range(first[i], first[i + 1]):
            for other in range(engines):
                if other == own:
                    continue
                for place in range(begin[a], end[a]):
                    waits[i, other] = max(waits[i, other], written[other, place])
                    if writes[a]:
                        waits[i, other] = max(waits[i, other], read[other, place])
        issued[own] += 1
        for a in range(first[i], first[i + 1]):
            touched = written if writes[a] else read
            for place in range(begin[a], end[a]):
                touched[own, place] = issued[own]
    return waits

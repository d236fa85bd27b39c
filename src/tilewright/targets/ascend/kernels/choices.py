"""Leaving out what is no number, as maxima of pools do.

A comparison of whole repeats leaves a bit for each element, and ``vsel`` chooses by 128 of them.
Halves alone: the vector unit compares no others on all cores.
"""

from __future__ import annotations

from tilewright.targets.ascend import isa
from tilewright.targets.ascend.kernels.vectors import (
    BOOLEAN,
    CHOICE_BITS,
    REPEAT,
    Choice,
    Grid,
    Room,
    Vectors,
)
from tilewright.targets.ascend.machine import BLOCK
from tilewright.targets.ascend.program import Place

LOWEST = "-1.0f / 0.0f"
"""Minus infinity, which no maximum is below."""


class Numbers:
    """Puts minus infinity where there is no number."""

    def __init__(self, room: Room, bits: int = CHOICE_BITS) -> None:
        sizes = {"low": BLOCK, "end0": REPEAT, "end1": REPEAT, "bits": bits}
        self.buffers = [room.buffer(name, size, "half") for name, size in sizes.items()]
        self.buffers[-1].element = BOOLEAN
        low, *ends, mask = map(Place, self.buffers)
        self._low, self._scratch = Grid(low, spread=True), Choice(mask, (ends[0], ends[1]))
        once = Vectors(prefix="c")
        once.fill(Grid(low), 1, BLOCK // 2, LOWEST)
        for end in ends:
            once.fill(Grid(end), 1, isa.LANES, "0.0f")
        self.before = once.body
        """Statements before all loops."""

    def keep(self, vectors: Vectors, x: Grid, rows: int, columns: int) -> None:
        """Keep the elements of some rows that are numbers, and replace NaN by the lowest number."""
        vectors.choose("eq", x, (x, x), (x, self._low), rows, columns, self._scratch)

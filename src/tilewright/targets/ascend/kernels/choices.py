"""Choices by relations of elements: what they need in UB.

A comparison of whole repeats leaves a bit for each element, and ``vsel`` chooses by 128 of them.
Booleans are bytes in main memory, 0 or 1, and halves in UB. Halves alone: the vector unit compares
no others on all cores.
"""

from __future__ import annotations

from tilewright.targets.ascend import isa
from tilewright.targets.ascend.kernels.tiles import Tiles
from tilewright.targets.ascend.kernels.vectors import BOOLEAN, CHOICE_BITS, REPEAT, Choice, Grid
from tilewright.targets.ascend.machine import BLOCK
from tilewright.targets.ascend.program import Place

ENDS = 2 * REPEAT
"""The number of bytes of ``Choice.ends``."""


def choice_room(tiles: Tiles) -> Choice:
    """Return the buffers that choices need in UB, filled before all loops."""
    ends = [Place(tiles.kept(f"end{number}", REPEAT, "half")) for number in (0, 1)]
    for end in ends:
        tiles.filled(Grid(end), 1, isa.LANES, "0.0f")
    return Choice(Place(tiles.kept("bits", CHOICE_BITS, BOOLEAN)), (ends[0], ends[1]))


def choice_bytes(constants: int) -> int:
    """Bytes of UB of ``choice_room``, and of so many blocks of elements alike."""
    return ENDS + CHOICE_BITS + BLOCK + constants * BLOCK

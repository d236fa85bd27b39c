"""Results of a reduction in several tiles that leave in two parts.

They have one slot, where the sums of the next results begin when these have left. The first part
leaves while the last pixels are finished, at a hook; the rest follows behind them. Results are half
as long as sums and lie at the begin of the slot, so that the next sums reach the rest when some
pixels are done: the matrix unit does not wait for either part::

    pixels     0 1 2 3 4 5 6 7                       8 pixels of 2 results
    sums       0000111122223333444455556666777777
    results    0011223344556677                      0 to 4 leave while 5 to 7 are computed
    next sums  0000111122                            all before 5 have left
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tilewright.targets.cambricon.lowering.emitter import Emitter
from tilewright.targets.cambricon.lowering.tiles import Tile

if TYPE_CHECKING:
    from tilewright.targets.cambricon.lowering.walk import Walk

GONE = -(1 << 30)
"""Pixels that wait when the first part has left."""


class PartStore:
    """The first part of each tile's results: a stream of one transfer, and what follows it."""

    def __init__(self, walk: Walk, pixels: int, elements: int, now: Callable[[], Tile]) -> None:
        """The first part has so many ``pixels``, of so many ``elements`` each; ``now`` gives the
        tile that is computed."""
        assert walk.store_part is not None
        e: Emitter = walk.e
        self.e, self.pixels, self.elements = e, pixels, pixels * elements
        self.store, self.now, self.pause = walk.store_part, now, 0
        self.waiting = e.register()
        """Positive when all pixels of the first part are finished."""
        self.left = e.register()
        """Elements that have left."""

    def reset(self) -> None:
        """Nothing is to be moved."""
        # A pixel is announced by the next one, the first one by itself.
        self.e.set(self.waiting, -self.pixels)
        self.e.set(self.left, 0)

    def announce(self) -> None:
        """Another pixel is done."""
        self.e.increase(self.waiting, 1)

    def transfer(self) -> None:
        """The first part."""
        e = self.e
        with e.beside(), e.scope():
            self.store(self.now(), 0, self.elements)
        e.set(self.waiting, GONE)
        e.set(self.left, self.elements)

    def rest(self, tile: Tile) -> None:
        """What has not left, behind all pixels."""
        self.store(tile, self.left, None)
        self.reset()


def part_store_of(walk: Walk, now: Callable[[], Tile]) -> PartStore | None:
    """Results of one slot leave in two parts where that keeps the next sums from waiting; ``now``
    gives the tile that is computed.

    Tiles of fewer pixels than the first part have none, and little time for their own transfers:
    those of the tile before would hold them up.
    """
    out = walk.nest.output
    assert out is not None
    if walk.leaves or walk.operands[out.buffer].held or walk.stepped(out.buffer):
        return None
    if not walk.pixels or not 0 < out.depth < len(walk.loops):
        return None
    pixels, elements = walk.first_part(walk.pixels)
    return PartStore(walk, pixels, elements, now) if 0 < pixels < walk.least_pixels() else None

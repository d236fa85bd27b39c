"""Sizes of tiles along dims whose last tile is a short one.

The step to a tile finds them, where products hide its instructions, and only when the loop over
that dim advances; the code of a tile has them in registers then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.targets.cambricon.isa import Register

if TYPE_CHECKING:
    from tilewright.targets.cambricon.lowering.walk import Walk


class TileSizes:
    """Registers of this tile's sizes, and of the next one's, by dim."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        dims = [loop.dim.data for loop in walk.loops]
        self.dims = {
            number: loop.dim.data
            for number, loop in enumerate(walk.loops, 1)
            if dims.count(loop.dim.data) == 1 and walk.extents[loop.dim.data] % loop.step_size
        }
        """By the depth of what lies within the dim's only loop."""
        if not walk.keeps_sizes:
            self.dims = {}
        self.next = {dim: walk.e.register() for dim in self.dims.values()}
        self.now = {dim: walk.e.register() for dim in self.dims.values()}

    def settle(self, depth: int, starts: Sequence[Register]) -> None:
        """Where the loop around what lies at a depth has advanced."""
        dim, e = self.dims.get(depth), self.walk.e
        if dim is None:
            return
        others = {other: size for other, size in self.next.items() if other != dim}
        with e.scope():
            e.set(self.next[dim], self.walk.spans(starts, depth, others).of(dim))

    @property
    def copies(self) -> list[tuple[Register, Register]]:
        """This tile's, and the next one's."""
        return [(self.now[dim], coming) for dim, coming in self.next.items()]

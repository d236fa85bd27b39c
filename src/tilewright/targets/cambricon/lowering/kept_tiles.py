"""Code for weights some of whose tiles stay in the matrix scratchpad (kept.py).

The tile that comes is loaded to the slot that the tile before the last one had, or lies in its
place in the region; a register has its address until the kernel steps to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.targets.cambricon.lowering.boxes import Spans
from tilewright.targets.cambricon.lowering.kept import Kept
from tilewright.targets.cambricon.lowering.tiles import Fill
from tilewright.tile.dialect import BufferOp

if TYPE_CHECKING:
    from tilewright.targets.cambricon.lowering.walk import Walk


class KeptTiles:
    """The loads of such weights in a flat loop."""

    def __init__(self, walk: Walk, buffer: BufferOp, kept: Kept) -> None:
        self.walk, self.buffer, self.kept = walk, buffer, kept
        e = self.e = walk.e
        self.coming = e.register()
        """Address of the tile that comes."""
        self.slot = e.register()
        """Address of the slot that was filled last."""
        self.two = 0, 0
        dims = [loop.dim.data for loop in walk.loops]
        order = [dim for dim in ("g", kept.segments.channel, "ci", "kh") if dim in dims]
        self.passes = kept.there and kept.first > 0 and dims == order == dims[: walk.depth(buffer)]
        """Whether there is a place that is passed once, behind all loads: before the first tile
        that stays, if tiles come in the order of the segments and once."""

    def begin(self, two: tuple[int, int]) -> None:
        """Before all tiles; ``two``: the addresses of the slots, that of the first tile first."""
        begun = self.buffer in self.walk.begun
        self.two = two
        self.e.set(self.slot, two[0] if begun else two[1])
        self.e.set(self.coming, two[0])

    def load(self, spans: Spans, fill: Fill) -> None:
        """The tile of ``spans`` to its place, unless it is there."""
        e, kept = self.e, self.kept
        come, slot, there = e.label("come"), e.label("slot"), e.label("there")
        with e.scope():
            at = e.loaded(kept.segments.address(e, spans))
            if kept.first:
                e.if_positive(e.subtract(kept.first, at), slot)
            e.set(self.coming, e.add(at, kept.start - kept.first))
            if self.passes:
                further = e.label("further")
                e.if_positive(e.subtract(at, kept.first), further)
                self.walk.passing(True)
                e.place(further)
            if kept.first:
                e.jump(there if kept.there else come)
                e.place(slot)
                e.emit("SSUB", self.slot, e.loaded(sum(self.two)), self.slot)
                e.set(self.coming, self.slot)
            if kept.first or not kept.there:
                e.place(come)
                fill(self.walk.operands[self.buffer], spans, self.coming, None)
            e.place(there)

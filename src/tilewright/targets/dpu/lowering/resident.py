"""What kernels of a program have left in the banks for those behind them.

A buffer that ``stays`` lies at the end of its group in every kernel that reads its tensor. The
first of them loads it. A later one has no LOADs for it if the banks hold the same rows still: no
kernel since has had a buffer there. A network writes a tensor once, before all of its readers, so
what has the tensor's name is its content.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.targets.dpu.lowering.tiles import Tile
from tilewright.tile.dialect import BufferOp, ProgramOp

Range = tuple[str, int, int]
"""A memory, a byte of it, and the byte behind the last."""


@dataclass
class Resident:
    """The tiles that lie in the banks."""

    tiles: dict[Range, Tile] = field(default_factory=dict[Range, Tile])

    def finds(self, buffer: BufferOp, tile: Tile) -> bool:
        """Whether a buffer's tile is there. If not, it is from now on: the kernel loads it."""
        place = _range(buffer)
        same = self.tiles.get(place) == tile
        self.tiles[place] = tile
        return same

    def forget(self, program: ProgramOp) -> None:
        """Forget what a kernel's buffers take the place of."""
        for op in program.walk():
            if isinstance(op, BufferOp):
                taken = _range(op)
                own = taken if op.stays is not None else None
                for place in [held for held in self.tiles if held != own and _meet(held, taken)]:
                    del self.tiles[place]


def _range(buffer: BufferOp) -> Range:
    start = buffer.get("address")
    return buffer.memory, start, start + buffer.get("bytes") * buffer.places


def _meet(tile: Range, other: Range) -> bool:
    return tile[0] == other[0] and tile[1] < other[2] and other[1] < tile[2]

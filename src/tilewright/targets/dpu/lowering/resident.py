"""What kernels have left in the banks for others.

A buffer that ``stays`` lies at the end of its group in every kernel that reads the tensor. The first
of them loads it; a later one has no LOADs for it where no kernel since has had a buffer there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tilewright.targets.dpu.lowering.tiles import Tile
from tilewright.tile.dialect import BufferOp, ProgramOp


@dataclass
class Resident:
    """The tiles that lie in the banks behind a kernel, with the bytes of their memory."""

    tiles: dict[tuple[str, int, int], Tile] = field(
        default_factory=dict[tuple[str, int, int], Tile]
    )
    """By memory, first byte and the byte behind the last."""

    def finds(self, tile: Tile, buffer: BufferOp) -> bool:
        """Whether a tile is there already; if not, it will be."""
        place = _place(buffer)
        known = self.tiles.get(place)
        # Kernels have names of their own for a tensor.
        nameless = replace(tile, tensor=replace(tile.tensor, name=""))
        self.tiles[place] = nameless
        return known == nameless

    def keep(self, program: ProgramOp) -> None:
        """Forget what a kernel's other buffers have overwritten."""
        for buffer in program.walk():
            if isinstance(buffer, BufferOp) and buffer.stays is None:
                memory, start, end = _place(buffer)
                for place in list(self.tiles):
                    if place[0] == memory and start < place[2] and place[1] < end:
                        del self.tiles[place]


def _place(buffer: BufferOp) -> tuple[str, int, int]:
    start = buffer.get("address")
    return buffer.memory, start, start + buffer.get("bytes") * buffer.places

"""Weights that stay in the matrix scratchpad between the kernels that read them.

They are chosen in network/resident_weights.py. The kernels that run meanwhile have the scratchpad's
first part; the rest, a **region**, takes as many of the last tiles of the weights as fit. They lie
there as in main memory, side by side, so that a tile's place follows from its offset in the
segments::

    main memory     | tile 0 | tile 1 | ...    | tile n - 2 | tile n - 1 |
                      come in every kernel       stay (from ``first`` on)
    scratchpad      | slot 0 | slot 1 |        | tile n - 2 | tile n - 1 |

The first kernel loads them to their places there, one tile ahead as all others. Those that stay are
the last ones because a later kernel then loads its first tile while an earlier one computes.

What a region holds is known kernel by kernel: one that fills these bytes with something else makes
the next reader load them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.planning.space.held import last_fitting, tile_bytes
from tilewright.targets.cambricon.lowering.early import Interval
from tilewright.targets.cambricon.lowering.weights import Segments


@dataclass(frozen=True)
class Kept:
    """Tiles of weights that lie in the region."""

    offset: int
    """Of the weights in their arena."""
    segments: Segments
    first: int
    """Bytes of the segments before those that stay."""
    start: int
    """Address of the first one in the scratchpad."""
    end: int
    coming: int
    """How many tiles come in every kernel."""
    there: bool = False
    """Whether an earlier kernel has left them."""

    @property
    def filled(self) -> Interval:
        """Their bytes in the scratchpad."""
        return self.start, self.end

    @property
    def contents(self) -> tuple[int, Segments, int, int, int, int]:
        """What lies where."""
        return self.offset, self.segments, self.first, self.start, self.end, self.coming


@dataclass(frozen=True)
class Region:
    """Where a kernel may keep the weights of an operand, and what lies there when it begins."""

    operand: str
    start: int
    end: int
    there: Kept | None = None

    def keep(self, offset: int, cut: Segments, tiles: tuple[int, ...]) -> Kept | None:
        """As many of the last tiles, of so many bytes each, as fit; None if not even one does."""
        coming = len(tiles) - last_fitting(tiles, self.end - self.start)
        size = sum(tiles[coming:])
        if not size:
            return None
        kept = Kept(offset, cut, sum(tiles) - size, self.start, self.start + size, coming)
        known = self.there is not None and self.there.contents == kept.contents
        return Kept(*kept.contents, there=known)


def weight_tiles(cut: Segments, steps: Mapping[str, int]) -> tuple[int, ...]:
    """Bytes of each tile in the order of the segments, of 16-bit weights; ``steps`` are the tile
    sizes of the dims that have a loop."""
    extents = {"g": cut.group, cut.channel: cut.co, "ci": cut.ci, "kh": cut.rows}
    cuts = [(extent, min(steps.get(dim, extent), extent)) for dim, extent in extents.items()]
    return tile_bytes(cuts, 2 * cut.width)

"""The tiles of one kernel: one that is the whole of it, or the loops over them (flat.py)."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.targets.cambricon.lowering.flat import Flat
from tilewright.targets.cambricon.lowering.nest import Nest
from tilewright.targets.cambricon.lowering.stepping import PassedOnce, loads_of
from tilewright.targets.cambricon.lowering.tiles import Tile
from tilewright.targets.cambricon.lowering.transfers import Transfers


def emit_tiles(
    nest: Nest, transfers: Transfers, compute: Callable[[Tile], None], passed_once: PassedOnce
) -> None:
    """All tiles of a kernel, with their transfers."""
    if nest.loops:
        Flat(nest, transfers, compute, passed_once).emit()
        return
    tile = nest.tile([], lambda buffer: nest.operands[buffer].address)
    for load in loads_of(nest):
        if load.buffer not in transfers.prefetched:
            transfers.fill(load.buffer, tile.spans, tile.bases[load.buffer], None)
    for _, refill in transfers.refills:
        refill(tile)
    # A load that waits for the one before would hold up what the tile needs.
    passed_once(False)
    compute(tile)
    if not nest.operands[nest.output.buffer].stays:
        transfers.store(tile, None)

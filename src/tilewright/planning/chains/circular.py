"""Circular buffers (line buffers): rows that one tile leaves to the next one.

Where tiles go down an image, each needs some rows that the tile before had already, the *halo*. A
circular buffer keeps them: row ``i`` of a run of tiles lies at place ``i`` modulo the rows that the
buffer holds, so that new rows take the places of those that no tile needs any more (Halide's
sliding windows and storage folding). Places are counted on from one run of the loop to the next.
"""

from __future__ import annotations

import numpy as np

from tilewright.planning.space.footprint import Ints


def first_places(start: Ints, size: Ints, run: Ints) -> Ints:
    """Per tile, the place of its first row, before it is taken modulo the buffer's rows.

    ``start`` and ``size`` are the rows that each tile needs, in the order of the tiles; tiles of
    the same ``run`` share rows where they overlap.
    """
    places = np.zeros(len(start), np.int64)
    moved = np.minimum(start[1:] - start[:-1], size[:-1])
    np.cumsum(np.where(run[1:] == run[:-1], moved, size[:-1]), out=places[1:])
    return places


def new_rows(places: Ints, size: Ints) -> Ints:
    """Per tile, the rows that none before it has left there; they are its last ones."""
    end = places + size
    kept = np.concatenate([places[:1], end[:-1]])
    return end - np.clip(kept, places, end)


def rows_in_buffer(places: Ints, size: Ints, slots: int) -> int:
    """The number of rows that a buffer needs so that new rows of a tile overwrite no row that the
    ``slots - 1`` tiles before it need."""
    oldest = np.maximum(np.arange(len(places)) - slots + 1, 0)
    return int((places + size - places[oldest]).max(initial=0))

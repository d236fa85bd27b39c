"""Cells: the kinds of tiles of a tiling, edge tiles apart from the others."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.planning.space.footprint import Bools, Floats, Ints
from tilewright.planning.space.tilings import Space


@dataclass(frozen=True)
class Pairs:
    """Tiles and those before them: columns over pairs."""

    after: Ints
    """The cell of a tile."""
    before: Ints
    """The cell of the tile before."""
    share: Floats
    """The share of all pairs of the row."""
    row: Ints


@dataclass(frozen=True)
class Cells:
    """Kinds of tiles: a row's tiles that are cut short along the same dims.

    Columns over all kinds of all rows; the first kind of every row is that of its full tiles.
    """

    row: Ints
    """The row number of each cell."""
    kind: Ints
    """Bit ``i`` is set where the tiles are cut short along ``dims[i]``."""
    count: Floats
    """Tiles of the row that are of the kind."""
    cycles: Floats
    """Compute cycles of one."""
    boxes: dict[str, Floats]
    """Mean box of every moved operand in elements."""
    dims: tuple[str, ...]
    """Dims along which the last tile of some row is cut short."""
    edge: dict[str, Bools]
    """Per dim of ``dims``, for every row: whether its last tile is cut short."""
    place: Ints
    """``place[row, kind]``: where a kind of a row stands in the columns; -1: it has no tiles."""
    _pairs: dict[Hashable, Pairs] = field(default_factory=dict[Hashable, Pairs], init=False)
    """The pairs that were asked for, cached: many nests and buffers have the same."""

    def pairs(self, key: Hashable, compute: Callable[[], Pairs]) -> Pairs:
        """Pairs of tiles that are computed when they are first asked for."""
        pairs = self._pairs.get(key)
        if pairs is None:
            pairs = self._pairs[key] = compute()
        return pairs

    def take(self, rows: Ints) -> Cells:
        """The cells of some rows, which are numbered anew in that order."""
        number = np.full(len(self.place), -1)
        number[rows] = np.arange(len(rows))
        keep = np.flatnonzero(number[self.row] >= 0)
        moved = np.append(np.cumsum(number[self.row] >= 0) - 1, -1)
        place = self.place[rows]
        return Cells(
            number[self.row[keep]],
            self.kind[keep],
            self.count[keep],
            self.cycles[keep],
            {name: box[keep] for name, box in self.boxes.items()},
            self.dims,
            {dim: edge[rows] for dim, edge in self.edge.items()},
            np.where(place >= 0, moved[place], -1),
        )

    def longer(self, cycles: Floats) -> Cells:
        """Return the same cells with more cycles of compute in every tile of a row."""
        return replace(self, cycles=self.cycles + cycles[self.row])

    def sum(self, values: Floats, rows: int) -> Floats:
        """Per row, the sum of a column of values."""
        return np.bincount(self.row, values, rows).astype(np.float64)


def cells_of(space: Space) -> Cells:
    """The kinds of tiles of every row; edge tiles apart from the others."""
    names = list(space.index)
    size = {d: space.size(d) for d in names}
    trips = {d: space.trips(d) for d in names}
    last = {d: space.extents[d] - (trips[d] - 1) * size[d] for d in names}
    edge = {d: last[d] != size[d] for d in names}
    dims = tuple(d for d in names if edge[d].any())
    used = [u for u in space.uses if u.move is not None]
    place = np.full((space.rows, 1 << len(dims)), -1)
    rows: list[Ints] = []
    kinds: list[Ints] = []
    counts: list[Floats] = []
    # One size that cuts nothing short is the same for all tiles.
    tile = {d: c for d, c in space.tile().items() if isinstance(c, int) and d not in dims}
    tiles: dict[str, list[Ints]] = {d: [] for d in names if d not in tile}
    boxes: dict[str, list[Floats]] = {u.name: [] for u in used}
    filled = 0
    for kind in range(1 << len(dims)):
        short = {d: bool(kind >> i & 1) for i, d in enumerate(dims)}
        count = np.ones(space.rows)
        for dim in names:
            count = count * (edge[dim] if short.get(dim) else trips[dim] - edge[dim])
        row = np.flatnonzero(count > 0)
        if not row.size:
            continue
        for dim, columns in tiles.items():
            columns.append((last if short.get(dim) else size)[dim][row])
        part = space.take(row)
        for use in used:
            boxes[use.name].append(part.box(use, short))
        rows.append(row)
        kinds.append(np.full(row.size, kind))
        counts.append(count[row])
        place[row, kind] = filled + np.arange(row.size)
        filled += row.size
    every = np.concatenate(rows)
    columns = {dim: np.concatenate(parts) for dim, parts in tiles.items()}
    cycles = np.asarray(space.take(every).compute({**tile, **columns}), np.float64)
    return Cells(
        every,
        np.concatenate(kinds),
        np.concatenate(counts),
        np.broadcast_to(cycles, every.shape),
        {name: np.concatenate(columns) for name, columns in boxes.items()},
        dims,
        {d: edge[d] for d in dims},
        place,
    )

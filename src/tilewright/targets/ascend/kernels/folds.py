"""Folds of rows in UB: sums, products, largest and smallest elements, each along its row.

A row is folded to the elements of a repeat (64 floats), these to a block of 8 in halves, and the
blocks of up to 128 rows, transposed, to one float a row, which lie side by side. What is to be used
with all columns of its row again is spread: a block for each row, by transposing eight copies.

910 has ``vcgadd`` and ``vcgmax`` of halves alone, and neither writes to all of a block; transposes
are exact, and any instruction of two operands folds this way.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.targets.ascend.kernels.transposing import (
    LINES,
    SCRATCH,
    gather_lanes,
    spread_lanes,
)
from tilewright.targets.ascend.kernels.vectors import REPEAT, Grid, Room, Vectors
from tilewright.targets.ascend.machine import BLOCK
from tilewright.targets.ascend.program import Buffer, Place

FOLDS = {
    "add": ("vadd", "0"),
    "mul": ("vmul", "1"),
    "max": ("vmax", "-1.0f / 0.0f"),
    "min": ("vmin", "1.0f / 0.0f"),
}
"""Fold -> its instruction, and what changes nothing, as C."""

FOLD_OF = {
    "reduce_mean": "add",
    "reduce_sum": "add",
    "reduce_product": "mul",
    "reduce_max": "max",
    "reduce_min": "min",
}
"""Reduction -> its fold."""

MOST_ROWS = LINES
"""Rows that are folded at once."""


@dataclass(frozen=True)
class FoldRoom:
    """Buffers in UB that folds of a number of rows take."""

    sums: Buffer
    """A repeat for each row."""
    turned: Buffer
    """Blocks of rows, transposed; the first row becomes the result."""
    scratch: Buffer
    spread: Buffer
    """A block for each row."""

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The buffers of the fold, all of them."""
        return self.sums, self.turned, self.scratch, self.spread

    @property
    def result(self) -> Grid:
        """A float for each row."""
        return Grid(Place(self.turned))

    @property
    def column(self) -> Grid:
        """A block for each row."""
        return Grid(Place(self.spread), BLOCK, spread=True)


def fold_bytes(rows: int) -> int:
    """Return the bytes that ``fold_room`` takes."""
    return -(-rows // 8) * 8 * REPEAT + 3 * SCRATCH


def fold_room(room: Room, rows: int) -> FoldRoom:
    """Buffers for folds of up to ``rows`` rows, at most 128."""
    assert rows <= MOST_ROWS
    return FoldRoom(
        room.buffer("sums", -(-rows // 8) * 8 * REPEAT),
        *(room.buffer(name, SCRATCH) for name in ("turned", "scratch", "spread")),
    )


def begin(vectors: Vectors, room: FoldRoom, fold: str, rows: int) -> None:
    """Initialise the folds with their neutral elements."""
    whole = -(-rows // 8) * 8
    vectors.fill(Grid(Place(room.sums), REPEAT), whole, REPEAT // 4, FOLDS[fold][1])


def take_in(
    vectors: Vectors, room: FoldRoom, fold: str, source: Grid, rows: int, columns: int
) -> None:
    """Fold ``columns`` columns of each of ``rows`` rows into the sums."""
    sums = Grid(Place(room.sums), REPEAT)
    vectors.accumulate(FOLDS[fold][0], sums, source, rows, columns)


def finish(vectors: Vectors, room: FoldRoom, fold: str, rows: int) -> Grid:
    """A float for each row, side by side."""
    name = FOLDS[fold][0]
    sums = Grid(Place(room.sums), REPEAT)
    for half in (32, 16, 8):
        vectors.operation(name, sums, (sums, sums.at(half * 4)), rows, half)
    turned = Place(room.turned)
    gather_lanes(vectors, turned, Place(room.sums), Place(room.scratch), REPEAT, rows)
    for half in (4, 2, 1):
        first = Grid(turned)
        vectors.operation(name, first, (first, first.at(half * LINES * 4)), 1, half * LINES)
    return room.result


def fold_rows(
    vectors: Vectors, room: FoldRoom, fold: str, source: Grid, rows: int, columns: int
) -> Grid:
    """A float for each row of ``source``, side by side."""
    begin(vectors, room, fold, rows)
    take_in(vectors, room, fold, source, rows, columns)
    return finish(vectors, room, fold, rows)


def spread(vectors: Vectors, room: FoldRoom) -> Grid:
    """The results as a column."""
    spread_lanes(vectors, Place(room.spread), Place(room.turned), Place(room.scratch))
    return room.column

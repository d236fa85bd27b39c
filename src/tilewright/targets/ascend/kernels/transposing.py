"""Transposes in UB by ``scatter_vnchwconv_b16``: of elements of 2 bytes, and of floats.

The instruction transposes 16 x 16 elements of 2 bytes, whose rows lie anywhere. A float is two such
elements: with one transposition its halves part, with a second one they meet again. Of the index of
an element, four bits lie within a block of 32 bytes, and a transposition exchanges them for four
others. A float's bits are row (.. r2 r1 r0) and column (.. k2 k1 k0) and half (h)::

                      blocks                 within a block
    rows of floats    .. r2 r1 r0 ..         k2 k1 k0 h
    between           k2 k1 k0 h  r2 r1 r0   any four others, x
    columns           .. k2 k1 k0 x          r2 r1 r0 h

x is what the pointers say: sixteen groups of 8 rows, or of four of rows by four of columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.targets.ascend import isa
from tilewright.targets.ascend.kernels.vectors import Vectors
from tilewright.targets.ascend.machine import BLOCK, CUBE
from tilewright.targets.ascend.program import Place

GROUP = 8
"""Floats of a block."""

LINES = 128
"""Rows that ``gather_lanes`` and ``spread_lanes`` handle at once."""

SCRATCH = 4096
"""Bytes between the two transpositions."""

SIDE = 32
"""Rows and columns of floats that ``turn_floats`` transposes at once."""


def turn_halves(
    vectors: Vectors, out: Place, source: Place, pitches: tuple[int, int], rows: int, columns: int
) -> None:
    """Rows of elements of 2 bytes; ``pitches`` are bytes from row to row, of out and source.

    Whole blocks of 16 x 16 are written; missing rows repeat the first row of their block.
    """
    pitch, other = pitches
    lines = [number * pitch for number in range(CUBE)]
    whole, rest = divmod(rows, CUBE)
    for left in range(0, columns, CUBE):
        to, part = out.at(left * pitch), source.at(left * 2)
        for top, count, repeat in ((0, CUBE, whole), (whole * CUBE, rest, min(rest, 1))):
            if repeat:
                rows_of = [(n if n < count else 0) * other for n in range(CUBE)]
                vectors.body += isa.scatter_rows(
                    (to.at(top * 2), lines, 1),
                    (part.at(top * other), rows_of, CUBE * other // BLOCK),
                    repeat,
                )


def turn_floats(
    vectors: Vectors,
    out: Place,
    source: Place,
    scratch: Place,
    pitches: tuple[int, int],
    groups: tuple[int, int] = (4, 4),
) -> None:
    """32 x 32 floats; ``pitches`` are bytes from row to row, of out and source. Groups of 8 rows
    and columns of the source beyond ``groups`` are the first again."""
    pitch, other = pitches
    corners = [(row, column) for row in range(4) for column in range(4)]
    places = [
        (row if row < groups[0] else 0, column if column < groups[1] else 0)
        for row, column in corners
    ]
    _turn(
        vectors,
        (out, [GROUP * column * pitch + row * BLOCK for row, column in corners], pitch // BLOCK),
        (
            source,
            [GROUP * row * other + column * BLOCK for row, column in places],
            other // BLOCK,
        ),
        scratch,
    )


def gather_lanes(
    vectors: Vectors, out: Place, source: Place, scratch: Place, pitch: int, rows: int
) -> None:
    """A block of 8 floats of each of up to 128 rows -> 8 rows of 128 floats.

    Rows are ``pitch`` bytes apart; whole groups of 8 of them are read.
    """
    groups = -(-rows // GROUP)
    # Missing groups repeat the first one.
    places = [(number if number < groups else 0) * GROUP * pitch for number in range(CUBE)]
    _turn(
        vectors,
        (out, [number * BLOCK for number in range(CUBE)], LINES * 4 // BLOCK),
        (source, places, pitch // BLOCK),
        scratch,
    )


def spread_lanes(
    vectors: Vectors, out: Place, source: Place, scratch: Place, count: int = LINES
) -> None:
    """Floats, 128 at most -> 128 blocks of 8 floats alike; whole blocks of the source are read."""
    groups = -(-count // GROUP)
    _turn(
        vectors,
        (out, [number * GROUP * BLOCK for number in range(CUBE)], 1),
        (source, [(number if number < groups else 0) * BLOCK for number in range(CUBE)], 0),
        scratch,
    )


def _turn(
    vectors: Vectors,
    out: tuple[Place, Sequence[int], int],
    source: tuple[Place, Sequence[int], int],
    scratch: Place,
) -> None:
    """Blocks [x][r] of 8 floats k -> blocks [x][k] of 8 floats r: of each side where it begins,
    bytes from there to each x, and blocks from r to r, or from k to k."""
    out, source = ((_halves(place), offsets, step) for place, offsets, step in (out, source))
    between = _halves(scratch)
    vectors.body += isa.scatter_rows(
        (between, [number * BLOCK for number in range(CUBE)], CUBE), source, GROUP
    )
    lanes = [(r * CUBE + h) * BLOCK for r in range(GROUP) for h in range(2)]
    vectors.body += isa.scatter_rows(out, (between, lanes, 2), GROUP)


def _halves(place: Place) -> Place:
    return Place(place.home, place.offset, "half")

"""Rows of elements between main memory and UB.

In main memory rows follow each other without a gap, or some pitch apart; in UB each begins a block.
Rows whose bytes are whole blocks go in bursts of one copy. Others, and rows that are read from the
last to the first, are copied one by one: a copy takes whole blocks, so it reads, or writes, up to
31 bytes past the row's end. What is written there the next row overwrites, so rows go in ascending
order; behind the last one a tensor has ``SLACK``.
"""

from __future__ import annotations

from functools import partial

from tilewright.codegen.nest.value import Value
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.machine import BLOCK, MAX_BURSTS, MAX_FIELD
from tilewright.targets.ascend.program import Loop, Place, Statement

SLACK = 32
"""Bytes behind a tensor that kernels may touch."""


def _rows(
    local: Place,
    pitch: int,
    main: Place,
    rows: int,
    columns: int,
    width: int,
    main_pitch: int | None = None,
    name: str = "row",
    *,
    loads: bool,
) -> list[Statement]:
    """Rows of ``columns`` elements of ``width`` bytes to UB, or back in ascending order; pitches
    are bytes from row to row."""
    size = columns * width
    apart = size if main_pitch is None else main_pitch
    length = -(-size // BLOCK)
    gaps = (apart - length * BLOCK, pitch - length * BLOCK)
    whole = apart % BLOCK == 0 and size % BLOCK == 0 and 0 <= gaps[0] // BLOCK <= MAX_FIELD
    if whole and gaps == (0, 0) and rows * length <= MAX_FIELD:
        return [move(local, main, 1, rows * length, (0, 0), loads)]
    if rows == 1:
        return [move(local, main, 1, length, (0, 0), loads)]
    if whole and rows <= MAX_BURSTS:
        return [move(local, main, rows, length, (gaps[0] // BLOCK, gaps[1] // BLOCK), loads)]
    loop = Loop(name, rows)
    row: Value = loop.variable
    loop.body.append(move(local.at(row * pitch), main.at(row * apart), 1, length, (0, 0), loads))
    return [loop]


load_rows = partial(_rows, loads=True)
store_rows = partial(_rows, loads=False)


def move(
    local: Place, main: Place, bursts: Value, length: Value, gaps: tuple[Value, Value], loads: bool
) -> Statement:
    """Bursts of blocks from main memory to UB, or back; gaps are those of main memory and UB."""
    if loads:
        return isa.copy(local, main, bursts, length, *gaps)
    return isa.copy(main, local, bursts, length, gaps[1], gaps[0])


def blocks_of(
    local: Place,
    pitch: int,
    main: Place,
    height: int,
    extents: tuple[int, int],
    name: str,
    *,
    loads: bool,
) -> list[Statement]:
    """Rows, by blocks of 16 columns, of a matrix in Nz of ``height`` rows, to UB or from there."""
    rows, blocks = extents
    loop = Loop(name, blocks)
    main = main.at(loop.variable * (height * BLOCK))
    gaps = (0, pitch // BLOCK - 1)
    loop.body.append(move(local.at(loop.variable * BLOCK), main, rows, 1, gaps, loads))
    return [loop]

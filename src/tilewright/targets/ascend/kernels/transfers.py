"""Rows of elements between main memory and UB.

In main memory rows follow each other without a gap, or some pitch apart; in UB each begins a block.
Rows whose bytes are whole blocks go in bursts of one copy. Others are copied one by one: a copy
takes whole blocks, so it reads, or writes, up to 31 bytes past the row's end. What is written there
the next row overwrites, so rows go in ascending order; behind the last one a tensor has ``SLACK``.
"""

from __future__ import annotations

from tilewright.targets.ascend import isa
from tilewright.targets.ascend.machine import BLOCK, MAX_BURSTS, MAX_FIELD
from tilewright.targets.ascend.program import Loop, Place, Statement, Value

SLACK = 32
"""Bytes behind a tensor that kernels may touch."""


def load_rows(
    to: Place,
    pitch: int,
    main: Place,
    rows: int,
    columns: int,
    width: int,
    main_pitch: int | None = None,
    name: str = "row",
) -> list[Statement]:
    """Rows of ``columns`` elements of ``width`` bytes to UB; pitches are bytes from row to row."""
    return _rows(to, pitch, main, rows, columns * width, main_pitch, name, loads=True)


def store_rows(
    main: Place,
    source: Place,
    pitch: int,
    rows: int,
    columns: int,
    width: int,
    main_pitch: int | None = None,
    name: str = "row",
) -> list[Statement]:
    """Rows back to main memory, in ascending order."""
    return _rows(source, pitch, main, rows, columns * width, main_pitch, name, loads=False)


def _rows(
    own: Place,
    pitch: int,
    main: Place,
    rows: int,
    size: int,
    main_pitch: int | None,
    name: str,
    *,
    loads: bool,
) -> list[Statement]:
    apart = size if main_pitch is None else main_pitch
    length = -(-size // BLOCK)
    gaps = (apart - length * BLOCK, pitch - length * BLOCK)
    whole = apart % BLOCK == 0 and size % BLOCK == 0 and gaps[0] // BLOCK <= MAX_FIELD
    if whole and gaps == (0, 0) and rows * length <= MAX_FIELD:
        return [_copy(own, main, 1, rows * length, (0, 0), loads)]
    if rows == 1:
        return [_copy(own, main, 1, length, (0, 0), loads)]
    if whole and rows <= MAX_BURSTS:
        return [_copy(own, main, rows, length, (gaps[0] // BLOCK, gaps[1] // BLOCK), loads)]
    loop = Loop(name, rows)
    row: Value = loop.variable
    loop.body.append(_copy(own.at(row * pitch), main.at(row * apart), 1, length, (0, 0), loads))
    return [loop]


def _copy(
    own: Place, main: Place, bursts: int, length: int, gaps: tuple[int, int], loads: bool
) -> Statement:
    if loads:
        return isa.copy(own, main, bursts, length, *gaps)
    return isa.copy(main, own, bursts, length, gaps[1], gaps[0])

"""Rows of elements between main memory and UB.

In main memory rows follow each other without a gap, or some pitch apart; in UB each begins a block.
Rows whose bytes are whole blocks go in bursts of one copy. Others, and rows that are read from the
last to the first, are copied one by one: a copy takes whole blocks, so it reads, or writes, up to
31 bytes past the row's end. What is written there the next row overwrites, so rows go in ascending
order; behind the last one a tensor has ``SLACK``.

Matrices in Nz become rows on their way, and blocks again on their way back (``Matrices``): a copy
for each 16 columns, of bursts of one block.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen.nest.value import Value
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.machine import BLOCK, CUBE, MAX_BURSTS, MAX_FIELD
from tilewright.targets.ascend.program import Loop, Place, Statement, Tensor

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
    whole = apart % BLOCK == 0 and size % BLOCK == 0 and 0 <= gaps[0] // BLOCK <= MAX_FIELD
    if whole and gaps == (0, 0) and rows * length <= MAX_FIELD:
        return [move(own, main, 1, rows * length, (0, 0), loads)]
    if rows == 1:
        return [move(own, main, 1, length, (0, 0), loads)]
    if whole and rows <= MAX_BURSTS:
        return [move(own, main, rows, length, (gaps[0] // BLOCK, gaps[1] // BLOCK), loads)]
    loop = Loop(name, rows)
    row: Value = loop.variable
    loop.body.append(move(own.at(row * pitch), main.at(row * apart), 1, length, (0, 0), loads))
    return [loop]


def move(
    own: Place, main: Place, bursts: Value, length: Value, gaps: tuple[Value, Value], loads: bool
) -> Statement:
    """Bursts of blocks from main memory to UB, or back; gaps are those of main memory and UB."""
    if loads:
        return isa.copy(own, main, bursts, length, *gaps)
    return isa.copy(main, own, bursts, length, gaps[1], gaps[0])


@dataclass(frozen=True)
class Matrices:
    """Matrices of rows by columns in main memory: row by row, or in Nz (halves)."""

    name: str
    count: int
    rows: int
    columns: int
    element: str = "float"
    blocks: bool = False
    """True if they are in Nz."""

    @property
    def size(self) -> int:
        """The bytes of one matrix."""
        if self.blocks:
            return padded(self.rows) * padded(self.columns) * 2
        return self.rows * self.columns * isa.WIDTHS[self.element]

    def tensor(self, *, written: bool = False) -> Tensor:
        """The parameter of a kernel."""
        size = self.count * self.size + SLACK
        return Tensor(self.name, size, self.element, written=written)

    def load(
        self, to: Place, pitch: int, tensor: Tensor, number: Value, row: Value, rows: int
    ) -> list[Statement]:
        """Whole rows of one matrix to UB."""
        return self._move(to, pitch, tensor, (number, row, 0), (rows, self.columns), loads=True)

    def store(
        self, tensor: Tensor, source: Place, pitch: int, number: Value, row: Value, rows: int
    ) -> list[Statement]:
        """Whole rows from UB."""
        at = (number, row, 0)
        return self._move(source, pitch, tensor, at, (rows, self.columns), loads=False)

    def _move(
        self,
        own: Place,
        pitch: int,
        tensor: Tensor,
        at: tuple[Value, Value, Value],
        extents: tuple[int, int],
        *,
        loads: bool,
    ) -> list[Statement]:
        number, row, column = at
        rows, columns = extents
        start = number * self.size
        if not self.blocks:
            width = isa.WIDTHS[self.element]
            main = Place(tensor, start + (row * self.columns + column) * width)
            name = f"row_{self.name}"
            move = load_rows if loads else _stored
            return move(own, pitch, main, rows, columns, width, self.columns * width, name)
        height = padded(self.rows)
        return blocks_of(
            own,
            pitch,
            Place(tensor, start + (row * BLOCK + column * (height * 2))),
            height,
            (rows, -(-columns // CUBE)),
            f"block_{self.name}",
            loads=loads,
        )


def blocks_of(
    own: Place,
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
    loop.body.append(move(own.at(loop.variable * BLOCK), main, rows, 1, gaps, loads))
    return [loop]


def _stored(
    own: Place,
    pitch: int,
    main: Place,
    rows: int,
    columns: int,
    width: int,
    apart: int,
    name: str,
) -> list[Statement]:
    return store_rows(main, own, pitch, rows, columns, width, apart, name)

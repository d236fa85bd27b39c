"""Rows of elements between main memory and UB.

In main memory rows follow each other without a gap, or some pitch apart; in UB each begins a block.
Rows whose bytes are whole blocks go in bursts of one copy. Others, and rows that are read from the
last to the first, are copied one by one: a copy takes whole blocks, so it reads, or writes, up to
31 bytes past the row's end. What is written there the next row overwrites, so rows go in ascending
order; behind the last one a tensor has ``SLACK``.

Matrices in Nz become rows on their way, and blocks again on their way back (``Operand``): a copy
for each 16 columns, of bursts of one block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from tilewright.codegen.nest.value import Value
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.isa import WIDTHS
from tilewright.targets.ascend.kernels.tiles import Tiles
from tilewright.targets.ascend.kernels.vectors import Grid, pitch_of
from tilewright.targets.ascend.machine import BLOCK, CUBE, MAX_BURSTS, MAX_FIELD
from tilewright.targets.ascend.program import Loop, Place, Statement, Tensor

SLACK = 32
"""Bytes behind a tensor that kernels may touch."""

Shape = tuple[int, ...]


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


@dataclass(frozen=True)
class Operand:
    """An operand, or the result, in main memory."""

    name: str
    shape: Shape
    """As that of the result, with 1 where it broadcasts."""
    element: str
    blocks: bool = False
    """True if its matrices are in Nz."""

    @property
    def rows(self) -> bool:
        """True if it has rows of its own, and does not broadcast along them."""
        return self.shape[-2] > 1

    @property
    def columns(self) -> bool:
        """True if it has columns of its own, and does not broadcast along them."""
        return self.shape[-1] > 1

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return WIDTHS[self.element]

    @property
    def strides(self) -> list[int]:
        """Elements from one index to the next; 0 where it broadcasts. Of matrices in Nz columns go
        by blocks of 16."""
        strides: list[int] = []
        step = 1
        shape = self.shape
        if self.blocks:
            height, width = padded(shape[-2]), padded(shape[-1])
            strides, step = [height, CUBE if shape[-2] > 1 else 0], height * width
            shape = shape[:-2]
        for extent in reversed(shape):
            strides.append(step if extent > 1 else 0)
            step *= extent
        return strides[::-1]

    def tensor(self, *, written: bool = False) -> Tensor:
        """The parameter of the kernel."""
        size = prod(self.shape)
        if self.blocks:
            size = prod(self.shape[:-2]) * padded(self.shape[-2]) * padded(self.shape[-1])
        return Tensor(self.name, size * self.width + SLACK, self.element, written=written)

    def main(self, tensor: Tensor, indices: Sequence[Value]) -> Place:
        """Return the address in main memory at which a tile begins."""
        at: Value = 0
        for index, stride in zip(indices, self.strides, strict=True):
            at = at + index * stride
        return Place(tensor, at * self.width)

    def load(
        self,
        tiles: Tiles,
        rows: int,
        columns: int,
        at: Sequence[Value] | None = None,
        slots: int | None = None,
    ) -> tuple[Tensor, Grid]:
        """Load the rows of a tile, or the one row; the parameter, and where they lie in UB. Indices
        ``at`` are those of the tile's first element, by default where the loops' tiles begin."""
        tensor, count = self.tensor(), rows if self.rows else 1
        pitch = pitch_of(columns, self.width)
        home = Grid(Place(tiles.tile(self.name, count * pitch, self.element, slots)), pitch)
        tiles.body.extend(self._moved(tiles, tensor, home, (count, columns), at, loads=True))
        return tensor, home if self.rows else replace(home, pitch=0)

    def store(
        self,
        tiles: Tiles,
        home: Grid,
        rows: int,
        columns: int,
        at: Sequence[Value] | None = None,
    ) -> Tensor:
        """Store the rows of a tile; the parameter."""
        tensor = self.tensor(written=True)
        tiles.body.extend(self._moved(tiles, tensor, home, (rows, columns), at, loads=False))
        return tensor

    def _moved(
        self,
        tiles: Tiles,
        tensor: Tensor,
        home: Grid,
        sizes: tuple[int, int],
        at: Sequence[Value] | None,
        *,
        loads: bool,
    ) -> list[Statement]:
        main, (rows, columns) = self.main(tensor, at or tiles.starts), sizes
        if self.blocks:
            extents, name = (rows, padded(columns) // CUBE), f"block_{self.name}"
            height = padded(self.shape[-2])
            return blocks_of(home.place, home.pitch, main, height, extents, name, loads=loads)
        apart, name = self.shape[-1] * self.width, f"row_{self.name}"
        ends = home.place, home.pitch, main
        return _rows(*ends, rows, columns, self.width, apart, name, loads=loads)


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

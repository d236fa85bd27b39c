"""The thesis' fractalise and defractalise: matrices of 2-byte elements from row-major order to Nz
and back, in pieces of their own.

Four methods, of which the first two are the thesis' (6.4.2):

naive     16 rows at a time: two transposes by ``scatter_vnchwconv``, which cancel
improved  as many blocks of rows as the memory and a repeat field allow, with the same transposes
vor       the vector unit moves blocks (``x | x``, which keeps all bits, NaN's and -0's too)
dma       copies move blocks: no vector operation, but bursts of one block; any number of columns

Within a block of Nz a row of 16 elements is 32 contiguous bytes, as it is in row-major order, so
every method only regroups blocks. Definition: dst[i][j][k][l] = src[16 j + k][16 i + l].

Rows whose bytes are no multiple of 32 are copied one by one; each reads or writes up to 30 bytes
past its end, the last one past the tensor's, which has to have room for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tilewright.codegen.nest.value import Value, least
from tilewright.errors import refuse
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.kernels.vectors import Grid, Vectors
from tilewright.targets.ascend.lowering.launches import SLACK
from tilewright.targets.ascend.lowering.tiled import move
from tilewright.targets.ascend.machine import BLOCK, CUBE, FRACTAL, MAX_FIELD, MAX_REPEAT, DaVinci
from tilewright.targets.ascend.program import (
    Buffer,
    Command,
    Loop,
    Place,
    Program,
    Statement,
    Tensor,
)

Method = Literal["naive", "improved", "vor", "dma"]
METHODS: tuple[Method, ...] = ("naive", "improved", "vor", "dma")


@dataclass(frozen=True)
class Piece:
    """Rows that are converted at once."""

    rows: int
    """A multiple of 16."""
    blocks: int
    """Blocks of 16 columns, all of the matrix."""

    @property
    def b(self) -> int:
        """The number of blocks of rows."""
        return self.rows // CUBE

    @property
    def bytes(self) -> int:
        """Bytes of the piece."""
        return self.rows * self.blocks * BLOCK


def piece_of(method: Method, columns: int, core: DaVinci) -> Piece:
    """The largest piece that a method converts at once. Refuses matrices of too many columns."""
    blocks = padded(columns) // CUBE
    buffers = {"naive": 2, "improved": 2, "vor": 2, "dma": 1}[method]
    most = core.ub // (buffers * blocks * BLOCK) // CUBE
    if method == "naive":
        most = min(most, 1)
    if method == "improved":
        most = min(most, MAX_REPEAT // blocks)
    if method == "vor":
        # Rows are repeats, and the stride between blocks of columns.
        most = min(most, MAX_REPEAT // CUBE)
    if most < 1 or (method != "dma" and blocks > MAX_REPEAT):
        raise refuse(
            "lower-field",
            f"{columns} columns are {blocks} blocks, too many for {method} on {core.name}",
            help="dma, or fewer columns",
        )
    return Piece(most * CUBE, blocks)


@dataclass
class _Conversion:
    rows: int
    columns: int
    method: Method
    core: DaVinci
    back: bool
    """From Nz to row-major order."""
    name: str

    def __post_init__(self) -> None:
        blocks = padded(self.columns) // CUBE
        most = self.core.ub // FRACTAL if self.method == "dma" else blocks
        self.pieces = -(-blocks // most)
        self.width = -(-blocks // self.pieces)
        """Blocks of a piece: of more columns than UB holds 16 rows of, dma takes several."""
        columns = self.columns if self.pieces == 1 else self.width * CUBE
        self.piece = piece_of(self.method, columns, self.core)
        self.height = padded(self.rows)
        self.pitch = self.columns * 2
        self.plain = Tensor("plain", self.rows * self.pitch + SLACK, written=self.back)
        size = self.height * padded(self.columns) * 2
        self.nz = Tensor("nz", size, written=not self.back)

    def program(self) -> Program:
        across = Loop("q", self.pieces)
        # The last piece writes past the ends of rows, where the first one's rows begin: it comes
        # first.
        turned = self.back and self.pitch % BLOCK
        number = self.pieces - 1 - across.variable if turned else across.variable
        last = padded(self.columns) // CUBE - self.width
        self.column = least(number * self.width, last)
        buffers: list[Buffer] = []
        body: list[Statement] = []
        self._whole(body, buffers, across)
        tensors = (self.nz, self.plain) if self.back else (self.plain, self.nz)
        about = f"{'Nz to rows' if self.back else 'rows to Nz'}, {self.rows} x {self.columns}"
        return Program(*(self.name, tensors, [isa.mask_of(128, 128), *body], tuple(buffers), about))

    def _whole(self, body: list[Statement], buffers: list[Buffer], across: Loop) -> None:
        """All rows: whole pieces, and what is left; each in a loop over the pieces along columns,
        where there are several."""
        rows = min(self.piece.rows, self.height)
        whole = self.height // rows
        # A last piece with rows that the matrix does not have is apart.
        if self.rows < whole * rows:
            whole -= 1
        several = across.count != 1
        loop = Loop("p", whole)
        if whole:
            self._pieces(
                across.body if several else body, buffers, loop, loop.variable * rows, rows
            )
            if several:
                body.append(across)
        rest = self.height - whole * rows
        if rest:
            around = Loop(across.name, across.count) if several else None
            homes = self._buffers(rest, around)
            buffers += homes.values()
            piece = Piece(rest, self.piece.blocks)
            steps = self._piece(homes, piece, whole * rows, self.rows - whole * rows)
            (around.body if around else body).extend(steps)
            if around:
                body.append(around)

    def _pieces(
        self, body: list[Statement], buffers: list[Buffer], loop: Loop, row: Value, rows: int
    ) -> None:
        """A loop over pieces of so many rows that the matrix has."""
        homes = self._buffers(rows, loop)
        buffers += homes.values()
        loop.body += self._piece(homes, Piece(rows, self.piece.blocks), row, rows)
        body.append(loop)

    def _buffers(self, rows: int, scope: Loop | None) -> dict[str, Buffer]:
        """Return the buffers of one piece: x, which rows are loaded to and blocks stored from where
        both may use one buffer, and others."""
        size = rows * self.piece.blocks * BLOCK
        names = {"naive": ("x", "t"), "improved": ("x", "t"), "vor": ("x", "y")}
        return {
            name: Buffer(name, "ub", number * size, size, scope=scope)
            for number, name in enumerate(names.get(self.method, ("x",)))
        }

    def _piece(
        self, homes: dict[str, Buffer], piece: Piece, row: Value, present: int
    ) -> Iterable[Statement]:
        """One piece from ``row`` on, of which the matrix has ``present`` rows."""
        x = homes["x"]
        first, last = Place(x), Place(homes.get("y", x))
        rows, blocks = (last, first) if self.back else (first, last)
        cleared = [] if self.back else self._cleared(first, piece, present)
        if self.method == "dma":
            return [*cleared, *self._by_dma(first, piece, row, present)]
        ends = [
            [*cleared, *self._rows(rows, piece, row, present)],
            [self._blocks(blocks, piece, row)],
        ]
        if self.back:
            ends.reverse()
        if self.method == "vor":
            moved = self._moved(rows, blocks, piece)
        else:
            moved = self._transposed(rows, Place(homes["t"]), blocks, piece)
        return [*ends[0], *moved, *ends[1]]

    def _cleared(self, place: Place, piece: Piece, present: int) -> list[Statement]:
        """Zeros in rows that the matrix does not have."""
        if present >= piece.rows:
            return []
        vectors = Vectors()
        blocks = Grid(place.at(present * piece.blocks * BLOCK))
        vectors.fill(blocks, 1, (piece.rows - present) * piece.blocks * CUBE, "0")
        return vectors.body

    def _rows(self, place: Place, piece: Piece, row: Value, present: int) -> list[Statement]:
        """Rows of the matrix to or from a buffer, in row-major order."""
        main = Place(self.plain, row * self.pitch + self.column * BLOCK)
        if self.pitch % BLOCK == 0:
            length = present * piece.blocks
            bursts = 1
            while length // bursts > MAX_FIELD or length % bursts:
                bursts += 1
            gap = self.pitch // BLOCK - piece.blocks
            if gap:
                bursts = present
            return [move(place, main, bursts, length // bursts, (gap, 0), not self.back)]
        loop = Loop("r", present)
        main = main.at(loop.variable * self.pitch)
        moved = place.at(loop.variable * piece.blocks * BLOCK)
        loop.body.append(move(moved, main, 1, piece.blocks, (0, 0), not self.back))
        return [loop]

    def _blocks(self, place: Place, piece: Piece, row: Value) -> Statement:
        """A piece in Nz to or from its place in the matrix."""
        gaps = self.height - piece.rows, 0
        return move(place, self._main(row), piece.blocks, piece.rows, gaps, self.back)

    def _main(self, row: Value) -> Place:
        """Return the address of a row in Nz, in a piece's first block of columns."""
        return Place(self.nz, (self.column * self.height + row) * BLOCK)

    def _by_dma(self, place: Place, piece: Piece, row: Value, present: int) -> list[Statement]:
        """Bursts of one block, for each block of columns; from Nz for each row, where there are
        fewer of those."""
        if self.back and present < piece.blocks and self.height <= MAX_FIELD:
            loop = Loop("j", present)
            main = self._main(row).at(loop.variable * BLOCK)
            moved = place.at(loop.variable * (piece.blocks * BLOCK))
            loop.body.append(isa.copy(moved, main, piece.blocks, 1, self.height - 1, 0))
            return [loop, *self._rows(place, piece, row, present)]
        loop = Loop("j", piece.blocks)
        main = self._main(row).at(loop.variable * (self.height * BLOCK))
        moved = place.at(loop.variable * BLOCK)
        loop.body.append(move(moved, main, piece.rows, 1, (0, piece.blocks - 1), self.back))
        rows = self._rows(place, piece, row, present)
        return [loop, *rows] if self.back else [*rows, loop]

    def _moved(self, rows: Place, blocks: Place, piece: Piece) -> list[Statement]:
        """``x | x`` of blocks, a row a repeat."""
        plain, block = (Place(place.home, place.offset, "uint16_t") for place in (rows, blocks))
        near = Grid(plain, piece.blocks * BLOCK)
        far = Grid(block, BLOCK, blocks=piece.rows)
        to, of = (near, far) if self.back else (far, near)
        vectors = Vectors()
        vectors.operation("vor", to, (of, of), piece.rows, piece.blocks * CUBE)
        return vectors.body

    def _transposed(
        self, rows: Place, between: Place, blocks: Place, piece: Piece
    ) -> list[Statement]:
        """Row r = b a + i of the piece: rows [16 a][b i][j][16 c] to between [i][j][c][a], and
        that to blocks [j][a][i][c]. For one block of rows this is the thesis' naive method."""
        b, width = piece.b, piece.blocks
        outer, inner = (rows, b * width * BLOCK, 1), (between, BLOCK, CUBE)
        ends = (inner, outer) if not self.back else (outer, inner)
        whole = _scatter(*ends, b * width)
        parts: list[Statement] = []
        for i in range(b):
            near = (between.at(i * width * FRACTAL), BLOCK, CUBE)
            far = (blocks.at(i * BLOCK), b * BLOCK, CUBE * b)
            ends = (far, near) if not self.back else (near, far)
            parts += _scatter(*ends, width)
        return [*parts, *whole] if self.back else [*whole, *parts]


def _scatter(
    dst: tuple[Place, int, int], src: tuple[Place, int, int], repeat: int
) -> list[Command]:
    """Transposes of 16 x 16 elements of 2 bytes: of each side where the first row lies, bytes from
    row to row, and blocks from repeat to repeat."""
    sides = [
        (place, [number * pitch for number in range(CUBE)], step)
        for place, pitch, step in (dst, src)
    ]
    return isa.scatter_rows(sides[0], sides[1], repeat)


def fractalise(
    rows: int,
    columns: int,
    method: Method,
    core: DaVinci,
    name: str = "fractalise",
    *,
    back: bool = False,
) -> Program:
    """The kernel from ``plain`` (rows x columns, row-major) to ``nz``, or ``back``, without
    flags."""
    return _Conversion(rows, columns, method, core, back, name).program()

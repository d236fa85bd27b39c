"""Attention of one head after the other on cube and vector unit: scores never leave the core.

For a head and some of its rows::

    Q, K   main memory -> L1 -> L0A, L0B;   scores = Q K^T in L0C, 128 columns at a time
    scores -> UB as floats; times scale, plus mask; softmax without its division
    P      UB -> L1 -> L0A as halves;       V -> L1 -> L0B;   P V in L0C
    P V -> UB, times the reciprocal sums -> halves -> main memory

Scores lie in UB as they leave L0C, block columns of 16 floats a row. What belongs to a row is a
block of 8 floats alike; half a block column is every other block, so that a repeat has eight rows.
Columns that pad the last block become minus infinity. Where the number of keys comes with a launch,
blocks behind it are neither loaded nor computed. All of a head's keys and values are in L1,
and whole rows of scores in UB, so a softmax is computed at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.codegen.nest.value import Value, equal, least, select
from tilewright.errors import refuse
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.kernels.folds import FOLDS, LINES
from tilewright.targets.ascend.kernels.normal import reciprocal
from tilewright.targets.ascend.kernels.shares import Extent, share_of
from tilewright.targets.ascend.kernels.tiles import Cut, Tiles, cut, each
from tilewright.targets.ascend.kernels.transfers import SLACK, load_rows
from tilewright.targets.ascend.kernels.turning import SCRATCH, gather_lanes, spread_lanes
from tilewright.targets.ascend.kernels.vectors import Grid, Vectors, number, pitch_of
from tilewright.targets.ascend.machine import BLOCK, CUBE, FRACTAL, DaVinci
from tilewright.targets.ascend.program import (
    LENGTH,
    Buffer,
    Loop,
    Place,
    Program,
    Statement,
    Tensor,
)

CHUNK = 128
"""Keys of a product."""


@dataclass(frozen=True)
class Heads:
    """Sizes: queries [heads][rows][depth], keys [heads][keys][depth], values [heads][keys][width],
    each matrix in Nz."""

    heads: int
    rows: int
    keys: int
    depth: int
    width: int
    scale: float = 1.0
    mask: tuple[int, ...] = ()
    """The steps of the mask that is added to scores, row by row: elements from head to head and
    from row to row, each 0 where it broadcasts; then heads of which each has one, for batches. ()
    for none. () for none."""
    short_rows: bool = False
    """True if a launch has ``LENGTH`` queries of a head, at most ``rows``, the first ones."""
    short_keys: bool = False
    """True if a launch has ``LENGTH`` keys."""


@dataclass
class _Attention:
    of: Heads
    core: DaVinci
    name: str
    heads: Extent
    lines: Extent
    """Queries of a head, in whole blocks."""

    def __post_init__(self) -> None:
        of = self.of
        self.keys, self.depth, self.width = padded(of.keys), padded(of.depth), padded(of.width)
        self.rows = self._rows()
        self.there: Value = LENGTH if of.short_keys else of.keys
        """Keys of a launch."""
        self.blocks: Value = (self.there + (CUBE - 1)) // CUBE
        """Block columns of scores."""
        self.chunk = cut(self.keys, CHUNK, CUBE)
        if self.keys % self.chunk.size:
            size = next(n for n in range(CHUNK, 0, -CUBE) if self.keys % n == 0)
            self.chunk = Cut(share_of(self.keys), size)

    def _rows(self) -> Cut:
        """Queries at once: as many as UB and L0C hold scores of."""
        for most in range(LINES, 0, -CUBE):
            scores = most * self.keys * 6
            if self.of.mask:
                scores += 2 * self.keys * (most if self.of.mask[1] else 1) + most * CUBE * 4
            results = most * (self.width * 6 + CUBE * 4)
            fixed = 5 * SCRATCH + self.keys * 4
            sums = most * (self.keys + self.width) * 4
            halves = 2 * ((self.depth + self.width) * self.keys + most * (self.depth + self.keys))
            if (
                scores + results + fixed <= self.core.ub
                and sums <= self.core.l0c
                and halves <= self.core.l1
                and most * (self.depth + CHUNK) * 2 <= self.core.l0a
                and (self.depth + self.width) * CHUNK * 2 <= self.core.l0b
            ):
                return cut(self.lines, most, CUBE)
        raise refuse(
            "plan-capacity",
            f"{self.name}: 16 rows of scores of {self.of.keys} keys, and the keys, are more than "
            f"{self.core.name} holds",
            help="fewer keys",
        )

    def program(self) -> Program:
        of, rows = self.of, self.rows.size
        axis = each(self.heads)
        tiles = Tiles(self.name, self.core, (axis, self.rows))
        heads, inner = tiles.loops
        head, row = axis.start(tiles.variables[0]), self.rows.start(tiles.variables[1])
        height = padded(of.rows)
        q = Tensor("q", of.heads * height * self.depth * 2 + SLACK)
        k = Tensor("k", of.heads * self.keys * self.depth * 2 + SLACK)
        v = Tensor("v", of.heads * self.keys * self.width * 2 + SLACK)
        out = Tensor("out", of.heads * height * self.width * 2 + SLACK, written=True)
        used: dict[str, int] = {}

        def buffer(name: str, memory: str, size: int, scope: Loop, element: str = "half") -> Place:
            at = used.get(memory, 0)
            used[memory] = at + -(-size // 1024) * 1024
            home = Buffer(name, memory, at, size, scope=scope, element=element)
            tiles.buffers.append(home)
            return Place(home)

        keys = buffer("keys", "cbuf", self.keys * self.depth * 2, heads)
        values = buffer("values", "cbuf", self.keys * self.width * 2, heads)
        queries = buffer("queries", "cbuf", rows * self.depth * 2, inner)
        weights = buffer("weights", "cbuf", rows * self.keys * 2, inner)
        scores = buffer("scores", "cc", rows * self.keys * 4, inner, "float")
        result = buffer("result", "cc", rows * self.width * 4, inner, "float")
        for home, tensor, columns in ((keys, k, self.depth), (values, v, self.width)):
            blocks = self.keys * (columns // CUBE)
            at = Place(tensor, head * (blocks * BLOCK))
            gap = self.keys - self.blocks * CUBE
            whole = (1, blocks) if gap == 0 else (columns // CUBE, self.blocks * CUBE, gap, gap)
            heads.body.insert(len(heads.body) - 1, isa.copy(home, at, *whole))
        at = Place(q, (head * (self.depth // CUBE * height) + row) * BLOCK)
        tiles.body.append(isa.copy(queries, at, self.depth // CUBE, rows, height - rows))
        left = buffer("left", "ca", rows * self.depth * 2, inner)
        tiles.body.append(self._zz(left, queries, rows, self.depth, 0))
        chunk = Loop("key", self._chunks())
        right = buffer("right", "cb", self.depth * self.chunk.size * 2, chunk)
        chunk.body = self._scores(scores, left, right, keys, chunk.variable)
        tiles.body.append(chunk)
        x = Grid(Place(tiles.tile("x", rows * self.keys * 4, slots=1)))
        p = Grid(Place(tiles.tile("p", rows * self.keys * 2, "half", slots=1)))
        blocks = self.blocks * (rows // CUBE)
        tiles.body.append(isa.cc_to_ub(x.place, scores, 1, blocks, "CRMODE_NONE"))
        tensors = [q, k, v]
        vectors = Vectors()
        if of.mask:
            tensors.append(self._mask(tiles, vectors, x, (head, row)))
        sums = self._softmax(tiles, vectors, x, p)
        tiles.body.extend(vectors.body)
        tiles.body.append(isa.copy(weights, p.place, 1, self.blocks * rows))
        chunk = Loop("value", self._chunks())
        left = buffer("part", "ca", rows * self.chunk.size * 2, chunk)
        right = buffer("column", "cb", self.chunk.size * self.width * 2, chunk)
        chunk.body = self._results(result, left, right, (weights, values), chunk.variable)
        tiles.body.append(chunk)
        y = Grid(Place(tiles.tile("y", rows * self.width * 4, slots=1)))
        z = Grid(Place(tiles.tile("z", rows * self.width * 2, "half", slots=1)))
        blocks = self.width // CUBE * (rows // CUBE)
        tiles.body.append(isa.cc_to_ub(y.place, result, 1, blocks, "CRMODE_NONE"))
        end = Vectors(prefix="w")
        self._by_rows(end, "vmul", y, sums, self.width)
        end.operation("cast", z, (y,), 1, rows * self.width)
        tiles.body.extend(end.body)
        at = Place(out, (head * (self.width // CUBE * height) + row) * BLOCK)
        tiles.body.append(isa.copy(at, z.place, self.width // CUBE, rows, 0, height - rows))
        about = f"attention of {of}"
        short = (of.rows if of.short_rows else 0, of.keys if of.short_keys else 0)
        if of.short_rows:
            tiles.shorten(LENGTH)
        return tiles.program((*tensors, out), about, max(short))

    def _chunks(self) -> Value:
        """Return the number of chunks of keys."""
        if not self.of.short_keys or self.chunk.most == 1:
            return self.chunk.most
        return (self.there + (self.chunk.size - 1)) // self.chunk.size

    def _chunk(self, number: Value) -> Value:
        """Keys of a chunk, in whole blocks."""
        if not self.of.short_keys:
            return self.chunk.size
        return least(self.chunk.size, self.blocks * CUBE - number * self.chunk.size)

    # Products.

    def _zz(self, to: Place, source: Place, rows: int, columns: Value, first: Value) -> Statement:
        """A matrix in Nz in L1, from a column of blocks on, as left operand."""
        loop = Loop("i", rows // CUBE)
        blocks = columns // CUBE
        at = (first * (rows // CUBE) + loop.variable) * FRACTAL
        target = to.at(loop.variable * (blocks * FRACTAL))
        loop.body.append(isa.load(target, source.at(at), blocks, rows // CUBE, transpose=False))
        return loop

    def _scores(
        self, scores: Place, left: Place, right: Place, keys: Place, number: Value
    ) -> list[Statement]:
        """Some columns of Q K^T: keys in Nz are what the cube takes of their transpose."""
        rows, most, size = self.rows.size, self.chunk.size, self._chunk(number)
        loop = Loop("r", self.depth // CUBE)
        at = (loop.variable * (self.keys // CUBE) + number * (most // CUBE)) * FRACTAL
        target = right.at(loop.variable * (size // CUBE * FRACTAL))
        loop.body.append(isa.load(target, keys.at(at), size // CUBE, 1, transpose=False))
        to = scores.at(number * (rows * most * 4))
        return [loop, self._mad(to, left, right, self.of.depth, size, 1)]

    def _results(
        self, result: Place, left: Place, right: Place, sources: tuple[Place, Place], number: Value
    ) -> list[Statement]:
        """P V, some keys at a time."""
        rows, most, size = self.rows.size, self.chunk.size, self._chunk(number)
        weights, values = sources
        loop = Loop("r", size // CUBE)
        at = (number * (most // CUBE) + loop.variable) * FRACTAL
        target = right.at(loop.variable * (self.width // CUBE * FRACTAL))
        blocks, apart = self.width // CUBE, self.keys // CUBE
        loop.body.append(isa.load(target, values.at(at), blocks, apart, transpose=True))
        part = self._zz(left, weights, rows, size, number * (most // CUBE))
        first = 1 if self.chunk.most == 1 else equal(number, 0)
        # What pads the values may be no numbers, which no weight of 0 makes 0.
        there = size
        if self.of.short_keys or self.of.keys != self.keys:
            there = least(most, self.there - number * most)
        return [part, loop, self._mad(result, left, right, there, self.of.width, first)]

    def _mad(
        self, to: Place, left: Place, right: Place, depth: Value, columns: Value, first: Value
    ) -> Statement:
        blocks = int(self.core.barrier_blocks.value)
        return isa.mad(to, left, right, self.rows.size, depth, columns, first, blocks)

    # Softmax.

    def _column(self, x: Grid, block: Value, half: int) -> Grid:
        """Half of a block column: every other block, a row each."""
        at = block * (self.rows.size * CUBE * 4) + half * BLOCK
        return replace(x.at(at), blocks=2)

    def _by_rows(self, vectors: Vectors, name: str, x: Grid, column: Grid, columns: Value) -> None:
        """x = name(x, what belongs to its row)."""
        with vectors.loop(columns // CUBE) as block:
            for half in (0, 1):
                part = self._column(x, block, half)
                vectors.operation(name, part, (part, column), 1, self.rows.size * 8)

    def _fold(
        self, vectors: Vectors, x: Grid, sums: Grid, homes: Sequence[Place], fold: str
    ) -> Grid:
        """A float for each row."""
        name, nothing = FOLDS[fold]
        turned, scratch = homes
        count = self.rows.size * CUBE
        vectors.fill(sums, 1, count, nothing)
        with vectors.loop(self.blocks) as block:
            part = x.at(block * (count * 4))
            vectors.operation(name, sums, (sums, part), 1, count)
        halves = replace(sums, blocks=2)
        vectors.operation(name, halves, (halves, halves.at(BLOCK)), 1, count // 2)
        gather_lanes(vectors, turned, sums.place, scratch, 2 * BLOCK, self.rows.size)
        first = Grid(turned)
        for lines in (4, 2, 1):
            vectors.operation(name, first, (first, first.at(lines * LINES * 4)), 1, lines * LINES)
        return first

    def _softmax(self, tiles: Tiles, vectors: Vectors, x: Grid, p: Grid) -> Grid:
        """P as halves, and the reciprocal of each row's sum as a column."""
        of, rows = self.of, self.rows.size
        sums = Grid(Place(tiles.kept("sums", rows * CUBE * 4)))
        turned, scratch, largest, total = (
            Place(tiles.kept(name, SCRATCH)) for name in ("turned", "scratch", "largest", "total")
        )
        if of.scale != 1 and not of.mask:
            self._all(vectors, "vmuls", x, x, number(of.scale))
        if of.short_keys:
            self._lowest(vectors, x)
        elif of.keys % CUBE:
            # 64 floats are four rows of the last block.
            bits = sum(1 << 16 * line + n for line in range(4) for n in range(of.keys % CUBE, CUBE))
            vectors.body.append(isa.mask("0x0ULL", f"{bits:#x}ULL"))
            last = x.at((self.keys // CUBE - 1) * rows * CUBE * 4)
            lowest = FOLDS["max"][1]
            vectors.operation("vector_dup", last, (), 1, rows * CUBE, f"(float){lowest}")
            vectors.body.append(isa.mask_of(128, 128))
        homes = turned, scratch
        highest = self._fold(vectors, x, sums, homes, "max")
        spread_lanes(vectors, largest, highest.place, scratch)
        self._by_rows(vectors, "vsub", x, Grid(largest), self.blocks * CUBE)
        self._all(vectors, "vexp", x, x)
        sum_of_rows = self._fold(vectors, x, sums, homes, "add")
        self._all(vectors, "cast", p, x)
        reciprocal(vectors, sum_of_rows, Grid(scratch), LINES)
        spread_lanes(vectors, total, sum_of_rows.place, scratch)
        return Grid(total)

    def _all(self, vectors: Vectors, name: str, out: Grid, x: Grid, scalar: str = "") -> None:
        """out = name(x) of all scores."""
        block = self.rows.size * CUBE
        if not self.of.short_keys:
            vectors.operation(name, out, (x,), 1, block * (self.keys // CUBE), scalar)
            return
        with vectors.loop(self.blocks) as number:
            to, source = (grid.at(number * (block * grid.width)) for grid in (out, x))
            vectors.operation(name, to, (source,), 1, block, scalar)

    def _lowest(self, vectors: Vectors, x: Grid) -> None:
        """Minus infinity in the last block's columns behind the length, two rows a repeat."""
        rest = self.there % CUBE
        loop = Loop("rest", select(equal(rest, 0), 0, 1))
        last = x.at((self.blocks - 1) * (self.rows.size * CUBE * 4))
        lowest = f"(float){FOLDS['max'][1]}"
        repeat = self.rows.size // 2
        loop.body += [
            isa.mask_from(rest),
            isa.vector("vector_dup", last.place, (), repeat, (1,), (4,), lowest, 2 * CUBE),
            isa.mask_of(128, 128),
        ]
        vectors.body.append(loop)

    def _mask(self, tiles: Tiles, vectors: Vectors, x: Grid, at: tuple[Value, Value]) -> Tensor:
        """Scores times the scale, plus the mask."""
        of, rows = self.of, self.rows.size
        head, row = at
        heads_apart, rows_apart, each = of.mask
        count = rows * CUBE
        self._all(vectors, "vmuls", x, x, number(of.scale))
        several = -(-of.heads // each) if heads_apart else 1
        lines = of.rows if rows_apart else 1
        size = several * max(heads_apart, lines * of.keys) * 2
        tensor = Tensor("mask", size + SLACK)
        high = rows if rows_apart else 1
        pitch = pitch_of(self.keys, 2)
        home = Place(tiles.tile("mask", high * pitch, "half", slots=1))
        start = head // each * heads_apart + row * rows_apart
        tiles.body.extend(self._lines(home, pitch, Place(tensor, start * 2), row))
        floats = Grid(Place(tiles.kept("mask32", high * CUBE * 4)), CUBE * 4)
        with vectors.loop(self.blocks) as block:
            part = Grid(home.at(block * BLOCK), pitch)
            vectors.operation("cast", floats, (part,), high, CUBE)
            if rows_apart:
                whole = x.at(block * (count * 4))
                vectors.operation("vadd", whole, (whole, Grid(floats.place)), 1, count)
            else:
                for half in (0, 1):
                    column = self._column(x, block, half)
                    alike = Grid(floats.place.at(half * BLOCK), spread=True)
                    vectors.operation("vadd", column, (column, alike), 1, rows * 8)
        return tensor

    def _lines(self, home: Place, pitch: int, main: Place, row: Value) -> list[Statement]:
        """The rows of the mask for a tile's rows; for rows that there are not, the last one."""
        of, rows = self.of, self.rows.size
        missing = self.rows.share.extent - of.rows
        if not of.mask[1] or not missing:
            high = rows if of.mask[1] else 1
            return load_rows(home, pitch, main, high, of.keys, 2, of.keys * 2, "line")
        loop = Loop("line", rows)
        line = home.at(loop.variable * pitch)
        source = main.at(least(loop.variable, of.rows - 1 - row) * (of.keys * 2))
        loop.body.append(isa.copy(line, source, 1, -(-of.keys * 2 // BLOCK)))
        return [loop]


def attention(
    of: Heads,
    core: DaVinci,
    name: str = "attention",
    *,
    heads: Extent | None = None,
    lines: Extent | None = None,
) -> Program:
    """The kernel softmax(Q K^T * scale + mask) V of some heads, without flags: q, k, v, perhaps a
    mask (halves, row by row), out. ``heads`` and ``lines``, queries in whole blocks, say what
    blocks share of them. Refuses (``plan-capacity``) more keys than the core holds."""
    return _Attention(of, core, name, heads or of.heads, lines or padded(of.rows)).program()

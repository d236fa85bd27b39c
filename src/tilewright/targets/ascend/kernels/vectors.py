"""Vector operations on rows of elements in UB: repeats, strides and masks of any extents.

A ``Grid`` is where an operand's rows lie. It may be one row for all rows, one element for all
columns of a row (*spread*: a block for each row, whose elements are all alike), or both::

    x - column       vsub(x, x, column)    block stride 1, 1, 0
    x * row          vmul(x, x, row)       repeat stride 8, 8, 0

``Vectors`` writes operations. A repeat is 64 or 128 elements of a row, or of each of several rows:
what takes fewer instructions. The last elements of rows are computed under a mask, so nothing
after a row is touched. Between operations the mask is all ones.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import isinf

from tilewright.codegen.nest.value import Value, least
from tilewright.errors import refuse
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.machine import BLOCK, MAX_REPEAT, REPEAT_BLOCKS
from tilewright.targets.ascend.program import Buffer, Loop, Place, Statement

REPEAT = REPEAT_BLOCKS * BLOCK
"""Bytes of a repeat."""

CASTS = {
    ("half", "float"): "vconv_f162f32",
    ("float", "half"): "vconv_f322f16",
    ("uint8_t", "half"): "vconv_u82f16",
    ("half", "uint8_t"): "vconv_f162u8",
    ("int8_t", "half"): "vconv_s82f16",
    ("half", "int8_t"): "vconv_f162s8",
    ("int32_t", "float"): "vconv_s322f32",
    ("float", "int32_t"): "vconv_f322s32r",
}
"""Conversions from one element type to another; ``cast`` stands for any of them."""


@dataclass(frozen=True)
class Grid:
    """The arrangement of an operand's rows in UB."""

    place: Place
    pitch: int = 0
    """Bytes from row to row, a multiple of 32; 0 where one row is all."""
    spread: bool = False
    """True if a row is one block, for all its columns."""
    blocks: int = 1
    """Blocks from one of a row's to the next."""
    still: bool = False
    """True if a row is one repeat, for all repeats of columns."""

    @property
    def element(self) -> str:
        """The element type, as in C."""
        return isa.element_of(self.place)

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return isa.WIDTHS[self.element]

    def at(self, offset: Value) -> Grid:
        """Return the same grid ``offset`` bytes further on."""
        return replace(self, place=self.place.at(offset))


@dataclass(frozen=True)
class Choice:
    """The scratch memory that choices need in UB beside their operands."""

    bits: Place
    """``CHOICE_BITS`` bytes of ``uint8_t``."""
    ends: tuple[Place, Place]
    """A repeat of halves each, which hold numbers."""


BOOLEAN = "uint8_t"
"""The element of booleans in main memory."""

CHOICE_BITS = MAX_REPEAT * isa.LANES // 8


def pitch_of(columns: int, width: int) -> int:
    """Bytes of a row in UB, whole blocks."""
    return -(-columns * width // BLOCK) * BLOCK


def number(value: float) -> str:
    """A float as C."""
    if isinf(value):
        return "-1.0f / 0.0f" if value < 0 else "1.0f / 0.0f"
    text = f"{value:.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


ALL = isa.mask_of(128, 128)
"""The mask between operations."""


@dataclass
class Vectors:
    """Writes vector operations one after another."""

    body: list[Statement] = field(default_factory=list[Statement])
    prefix: str = "v"
    """The prefix of loop variables, which no enclosing loop may have."""
    loops: int = 0
    last_mask: tuple[object, ...] = ()
    """The mask of the last operation: an equal one right after it is not set again."""

    @contextmanager
    def loop(self, count: Value) -> Generator[Value]:
        """Write what follows into a loop; gives its variable. One iteration needs no loop."""
        loop = Loop(f"{self.prefix}{self.loops}", count)
        self.loops += 1
        if count == 1:
            yield loop.variable
            return
        around, self.body = self.body, loop.body
        yield loop.variable
        self.body = around
        self.body.append(loop)

    def operation(
        self,
        name: str,
        out: Grid,
        sources: Sequence[Grid],
        rows: int,
        columns: int,
        scalar: str = "",
    ) -> None:
        """``out = name(sources)`` for ``rows`` rows of ``columns`` elements; ``scalar`` is C."""
        if name == "cast":
            name = CASTS[sources[0].element, out.element]
        grids = (out, *sources)
        lanes = REPEAT // max(grid.width for grid in grids)
        if rows > 1 and all(_dense(grid, columns) for grid in grids):
            rows, columns = 1, rows * columns
        chunks, rest = divmod(columns, lanes)
        if rows > 1 and rows >= chunks and all(g.pitch // BLOCK <= MAX_REPEAT for g in grids):
            self._by_rows(name, grids, rows, chunks, rest, lanes, scalar)
            return
        with self.loop(rows) as row:
            self._along(name, [g.at(row * g.pitch) for g in grids], chunks, rest, lanes, scalar)

    def _by_rows(
        self,
        name: str,
        grids: Sequence[Grid],
        rows: int,
        chunks: int,
        rest: int,
        lanes: int,
        scalar: str,
    ) -> None:
        """Each row a repeat, some columns at a time."""
        steps = [grid.pitch // BLOCK for grid in grids]
        for first in range(0, rows, MAX_REPEAT):
            count = min(MAX_REPEAT, rows - first)
            parts = [grid.at(first * grid.pitch) for grid in grids]
            if chunks:
                with self.loop(chunks) as chunk:
                    moved = [along_row(grid, chunk * lanes) for grid in parts]
                    self._vector(name, moved, steps, count, lanes, lanes, scalar)
            if rest:
                moved = [along_row(grid, chunks * lanes) for grid in parts]
                self._vector(name, moved, steps, count, lanes, rest, scalar)

    def _along(
        self,
        name: str,
        grids: Sequence[Grid],
        chunks: int,
        rest: int,
        lanes: int,
        scalar: str,
    ) -> None:
        """One row: repeats along its columns."""
        steps = [
            0 if grid.spread or grid.still else lanes * grid.width // BLOCK * grid.blocks
            for grid in grids
        ]
        for first in range(0, chunks, MAX_REPEAT):
            count = min(MAX_REPEAT, chunks - first)
            moved = [along_row(grid, first * lanes) for grid in grids]
            self._vector(name, moved, steps, count, lanes, lanes, scalar)
        if rest:
            moved = [along_row(grid, chunks * lanes) for grid in grids]
            self._vector(name, moved, steps, 1, lanes, rest, scalar)

    def _vector(
        self,
        name: str,
        grids: Sequence[Grid],
        steps: Sequence[int],
        repeat: int,
        lanes: int,
        used: int,
        scalar: str,
    ) -> None:
        mask = isa.mask_of(lanes, used)
        if used < lanes and mask.arguments == self.last_mask and self.body and self.body[-1] is ALL:
            self.body.pop()
        elif used < lanes:
            self.body.append(mask)
        self.last_mask = mask.arguments
        places = [grid.place for grid in grids]
        blocks = [0 if grid.spread else grid.blocks for grid in grids]
        self.body.append(
            isa.vector(name, places[0], places[1:], repeat, blocks, steps, scalar, used)
        )
        if used < lanes:
            self.body.append(ALL)

    def fill(self, out: Grid, rows: int, columns: int, scalar: str) -> None:
        """Set all elements to one value."""
        self.operation("vector_dup", out, (), rows, columns, f"({out.element}){scalar}")

    def choose(
        self,
        relation: str,
        out: Grid,
        compared: tuple[Grid, Grid],
        chosen: tuple[Grid, Grid],
        rows: int,
        columns: int,
        scratch: Choice,
    ) -> None:
        """Choose for each element the first of ``chosen`` where the relation holds of ``compared``,
        else the second; all of halves. ``out`` may be one of ``chosen``."""
        grids = (out, *compared, *chosen)
        if rows > 1 and all(_dense(grid, columns) for grid in grids):
            rows, columns = 1, rows * columns
        chunks, rest = divmod(columns, isa.LANES)
        with self.loop(rows) as row:
            here = [grid.at(row * grid.pitch) for grid in grids]
            for first in range(0, chunks, MAX_REPEAT):
                count = min(MAX_REPEAT, chunks - first)
                moved = [along_row(grid, first * isa.LANES) for grid in here]
                self._chosen(relation, moved, count, isa.LANES, scratch.bits)
            if rest:
                moved = [along_row(grid, chunks * isa.LANES) for grid in here]
                # A comparison reads whole repeats, of which rows do not have all.
                for number, home in enumerate(scratch.ends, 1):
                    if not moved[number].spread:
                        size = -(-rest * 2 // BLOCK)
                        self.body.append(isa.copy(home, moved[number].place, 1, size))
                        moved[number] = Grid(home)
                self._chosen(relation, moved, 1, rest, scratch.bits)

    def _chosen(
        self, relation: str, grids: Sequence[Grid], repeat: int, used: int, bits: Place
    ) -> None:
        steps = [0 if grid.spread else REPEAT_BLOCKS * grid.blocks for grid in grids]
        blocks = [0 if grid.spread else grid.blocks for grid in grids]
        places = [grid.place for grid in grids]
        compared = places[1], places[2]
        self.body.append(isa.compare(relation, bits, compared, repeat, blocks[1:3], steps[1:3]))
        if used < isa.LANES:
            self.body.append(isa.mask_of(isa.LANES, used))
        with self.loop(repeat) as number:
            parts = [g.place.at(number * (s * BLOCK)) for g, s in zip(grids, steps, strict=True)]
            self.body.append(isa.set_cmpmask(bits.at(number * (isa.LANES // 8))))
            self.body.append(
                isa.vector(
                    *("vsel", parts[0], parts[3:], 1, (blocks[0], *blocks[3:])),
                    *((steps[0], *steps[3:]), "", used),
                )
            )
        if used < isa.LANES:
            self.body.append(isa.mask_of(isa.LANES, isa.LANES))

    def accumulate(self, name: str, out: Grid, source: Grid, rows: int, columns: int) -> None:
        """Fold each row of ``source`` into a row of ``out``, which has the elements of a repeat."""
        sums = replace(out, still=True)
        self.operation(name, sums, (sums, source), rows, columns)

    def fold_rows(self, name: str, out: Grid, source: Grid, rows: int, columns: int) -> None:
        """Fold all rows of ``source`` into the one row ``out``, element by element."""
        line = replace(out, pitch=0)
        self.operation(name, line, (line, source), rows, columns)


def along_row(grid: Grid, columns: Value) -> Grid:
    """A grid from a column on."""
    fixed = grid.spread or grid.still
    return grid if fixed else grid.at(columns * (grid.width * grid.blocks))


def _dense(grid: Grid, columns: int) -> bool:
    """Return True if rows follow each other without a gap, or there is a single element."""
    if grid.spread:
        return grid.pitch == 0
    if grid.still:
        return False
    return grid.pitch == columns * grid.width and grid.blocks == 1


Strides = tuple[Sequence[Value], Sequence[Value]]
"""Strides in blocks of the result and each source: from block to block, and from repeat to
repeat."""


def flat(
    name: str,
    dst: Place,
    sources: Sequence[Place],
    repeats: Value,
    most: int,
    loop: str,
    *,
    strides: Strides | None = None,
    scalar: str = "",
) -> Statement:
    """An operation on ``repeats`` whole repeats (``most`` at the most), of elements side by side if
    nothing else is said."""
    count = len(sources) + 1
    blocks, steps = strides or ((1,) * count, (REPEAT_BLOCKS,) * count)

    def piece(start: Value, repeat: Value) -> list[Statement]:
        to, *read = (
            place.at(start * step * BLOCK)
            for place, step in zip((dst, *sources), steps, strict=True)
        )
        return [isa.vector(name, to, read, repeat, blocks, steps, scalar)]

    return pieces(piece, repeats, most, loop)[0]


def fill(dst: Place, repeats: int, loop: str) -> Statement:
    """Fill ``repeats`` whole repeats with zeros."""
    return flat("vector_dup", dst, (), repeats, repeats, loop, scalar="0")


def pieces(
    make: Callable[[Value, Value], list[Statement]],
    repeats: Value,
    most: int,
    loop: str,
    limit: int = MAX_REPEAT,
) -> list[Statement]:
    """Statements of at most ``limit`` repeats, or a loop of several such: ``make`` takes the first
    repeat and how many there are; ``most`` is the largest number of all."""
    count = -(-most // limit)
    if count == 1:
        return make(0, repeats)
    each = -(-most // count)
    around = Loop(loop, count if isinstance(repeats, int) else (repeats + (each - 1)) // each)
    start = around.variable * each
    even = isinstance(repeats, int) and repeats % each == 0
    around.body += make(start, each if even else least(each, repeats - start))
    return [around]


def add_rows(
    dst: Place,
    row: Place,
    blocks: Value,
    rows: Value,
    most: int,
    loop: str,
    *,
    relu: bool = False,
) -> Statement:
    """Add a row to every row of blocks of 16 columns, each of which holds all rows; then relu.

    ``row`` has the columns' halves side by side; there are ``most`` rows at the most, by eights.
    """
    around = Loop(loop, blocks)
    block = dst.at(around.variable * rows * BLOCK)
    columns = row.at(around.variable * BLOCK)
    repeats, largest = rows // REPEAT_BLOCKS, most // REPEAT_BLOCKS
    strides: Strides = (1, 1, 0), (REPEAT_BLOCKS, REPEAT_BLOCKS, 0)
    ends = block, (block, columns)
    around.body.append(flat("vadd", *ends, repeats, largest, f"{loop}_1", strides=strides))
    if relu:
        around.body.append(flat("vrelu", block, (block,), repeats, largest, f"{loop}_1"))
    return around


@dataclass
class Room:
    """Hands out UB from a byte on, up to another one."""

    bytes: int
    """The first byte after it."""
    name: str
    """The name of the kernel, or of its part, for messages."""
    used: int = 0
    """The first byte that is free."""

    def buffer(self, name: str, size: int, element: str = "float") -> Buffer:
        """Reserve a buffer of ``size`` bytes; refuses (``plan-capacity``) more than there are."""
        at = self.used
        self.used += -(-size // BLOCK) * BLOCK
        if self.used > self.bytes:
            reason = f"{self.bytes - at} bytes of ub hold no {name} of {size} for {self.name}"
            raise refuse("plan-capacity", reason)
        return Buffer(name, "ub", at, size, element=element)

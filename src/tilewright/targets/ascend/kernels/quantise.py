"""From halves to integers of 8 bits in Nz.

Two blocks of 16 columns become one of 32. Numbers are divided by the scale, rounded to the nearest
integer (of two the even one) and moved by the zero point as floats, side by side as they were
loaded; the last conversion, of a row a repeat, brings a row's two blocks together, which lie apart
where the matrix comes in Nz, and side by side where it comes in rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.targets.ascend import isa
from tilewright.targets.ascend.kernels.recipes import RECIPES
from tilewright.targets.ascend.kernels.shares import Extent, scaled, total
from tilewright.targets.ascend.kernels.tiles import Tiles, cut, each
from tilewright.targets.ascend.kernels.vectors import CASTS
from tilewright.targets.ascend.machine import BLOCK, CUBE, REPEAT_BLOCKS, DaVinci
from tilewright.targets.ascend.program import Place, Program, Statement, Tensor

PAIR = 2 * CUBE
"""Columns of a block of integers."""

ROWS = 240
"""Rows of a block of columns that a tile has at most, over all of its blocks: a repeat each."""

FLOATS = 64
"""Of a repeat."""


@dataclass(frozen=True)
class Matrices:
    """What a kernel quantises: matrices of whole blocks of 16 rows and 32 columns."""

    batch: Extent
    rows: Extent
    """Of a matrix, in blocks of 16."""
    pairs: Extent
    """Blocks of 32 columns."""
    plain: bool
    """Whether the numbers come row by row; else in Nz."""


def quantise(of: Matrices, scalars: Sequence[str], core: DaVinci, name: str) -> Program:
    """The kernel, without flags. Parameters are ``x``, the halves, and ``out``, the integers.

    ``scalars`` are C's: scale, least and largest number before the zero point is added, and that.
    """
    height, columns = total(of.rows) * CUBE, total(of.pairs)
    size = total(of.batch) * height * columns * PAIR
    x = Tensor("x", size * 2 + BLOCK)
    out = Tensor("out", size + BLOCK, "int8_t", written=True)
    rows = cut(scaled(of.rows, CUBE), ROWS, CUBE, CUBE)
    pairs = cut(of.pairs, max(ROWS // rows.size, 1), 1)
    tiles = Tiles(name, core, (each(of.batch), pairs, rows))
    numbers = rows.size * pairs.size * PAIR
    halves = tiles.tile("x", numbers * 2, "half")
    floats = tiles.tile("t", numbers * 4, slots=1)
    integers = tiles.tile("y", numbers, "int8_t")
    blocks = {key: Place(tiles.kept(key, BLOCK)) for key in RECIPES["quantise"].scalars}
    tiles.before.append(isa.mask_of(FLOATS, REPEAT_BLOCKS))
    for place, scalar in zip(blocks.values(), scalars, strict=True):
        tiles.before.append(
            isa.vector("vector_dup", place, (), 1, (1,), (8,), scalar, REPEAT_BLOCKS)
        )
    matrix, pair, row = (
        axis.start(variable) for axis, variable in zip(tiles.axes, tiles.variables, strict=True)
    )
    if of.plain:
        begin = (matrix * height + row) * (columns * PAIR * 2) + pair * (PAIR * 2)
        gap = 2 * (columns - pairs.size)
        tiles.body.append(isa.copy(Place(halves), Place(x, begin), rows.size, 2 * pairs.size, gap))
    else:
        begin = ((matrix * (2 * columns) + pair * 2) * height + row) * BLOCK
        gap = height - rows.size
        tiles.body.append(isa.copy(Place(halves), Place(x, begin), 2 * pairs.size, rows.size, gap))
    tiles.body.extend(_rounded(Place(halves), Place(floats), blocks, numbers // FLOATS))
    tiles.body.append(isa.mask_of(2 * FLOATS, PAIR))
    for number in range(pairs.size):
        source = Place(halves, number * (2 * BLOCK if of.plain else 2 * rows.size * BLOCK))
        between, step = (1, 2 * pairs.size) if of.plain else (rows.size, 1)
        target = Place(integers, number * rows.size * BLOCK)
        tiles.body.append(
            isa.vector(
                CASTS["half", "int8_t"], target, (source,), rows.size, (1, between), (1, step),
                lanes=PAIR,
            )
        )  # fmt: skip
    end = ((matrix * columns + pair) * height + row) * BLOCK
    gap = height - rows.size
    tiles.body.append(isa.copy(Place(out, end), Place(integers), pairs.size, rows.size, 0, gap))
    return tiles.program((x, out), f"quantise of {size} half")


def _rounded(
    halves: Place, floats: Place, blocks: dict[str, Place], repeats: int
) -> list[Statement]:
    """The integers as halves, in their place; the steps are those of the recipe ``quantise``."""
    integers = Place(floats.home, floats.offset, "int32_t")
    lanes = REPEAT_BLOCKS
    steps: list[Statement] = [isa.mask_of(FLOATS, FLOATS)]

    def cast(to: Place, of: Place) -> None:
        kinds = isa.element_of(of), isa.element_of(to)
        strides = tuple(lanes * isa.WIDTHS[isa.element_of(place)] // 4 for place in (to, of))
        steps.append(isa.vector(CASTS[kinds], to, (of,), repeats, (1, 1), strides))

    def alike(name: str, block: str) -> None:
        operands = floats, blocks[block]
        steps.append(isa.vector(name, floats, operands, repeats, (1, 1, 0), (lanes, lanes, 0)))

    cast(floats, halves)
    alike("vdiv", "scale")
    alike("vmax", "low")
    alike("vmin", "high")
    cast(integers, floats)
    cast(floats, integers)
    alike("vadd", "zero")
    cast(halves, floats)
    return steps


__all__ = ["Matrices", "quantise"]

"""Between halves and integers of 8 bits in blocks: Nz of matrices, NC1HWC0 of images.

A block's row is 32 bytes, 16 halves or 32 integers: two blocks of halves are one of integers. The
numbers of a tile are computed on side by side, as floats; a conversion of a row a repeat brings a
row's two blocks of halves together, or takes them apart. Where the last block of integers has only
one of halves, what else it holds is of no value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.codegen.nest.value import Value, least
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.kernels.recipes import RECIPES, compute
from tilewright.targets.ascend.kernels.shares import Extent, total
from tilewright.targets.ascend.kernels.tiles import Tiles, cut, each
from tilewright.targets.ascend.kernels.vectors import CASTS, Grid, Vectors, fill
from tilewright.targets.ascend.machine import BLOCK, CUBE, DaVinci
from tilewright.targets.ascend.program import Buffer, Place, Program, Statement, Tensor

PAIR = 2 * CUBE
"""Columns of a block of integers."""

ROWS = 240
"""Rows of a tile at most, over all of its blocks: a repeat each, and the stride between blocks."""

FLOATS = 64
"""The number of floats in a repeat."""


@dataclass(frozen=True)
class Blocks:
    """The extents of what a kernel converts."""

    batch: Extent
    """The number of matrices or images."""
    rows: Extent
    """The rows of a matrix, or positions of an image."""
    pairs: Extent
    """Blocks of 32 columns or channels."""
    halves: int
    """The number of blocks of 16 halves."""
    plain: bool = False
    """True if halves are stored row by row, in whole blocks of 32."""


def converted(
    of: Blocks, operation: str, scalars: Sequence[str], core: DaVinci, name: str
) -> Program:
    """The kernel of ``quantise``, ``quantise_power`` or ``dequantise``, without flags.

    Parameters are ``halves`` and ``integers``, what is read first. ``scalars`` are C's, those of
    the recipe (recipes.py).
    """
    height, pairs = total(of.rows), total(of.pairs)
    count = total(of.batch) * height
    halves = Tensor("halves", count * of.halves * BLOCK + BLOCK)
    integers = Tensor("integers", count * pairs * BLOCK + BLOCK, "int8_t")
    back = operation == "dequantise"
    (halves if back else integers).written = True
    rows = cut(of.rows, ROWS, CUBE)
    side = cut(of.pairs, max(ROWS // rows.size, 1), 1)
    tiles = Tiles(name, core, (each(of.batch), side, rows))
    numbers = rows.size * side.size * PAIR
    numbers += -numbers % FLOATS
    x = tiles.tile("x", numbers * 2, "half")
    t = tiles.tile("t", numbers * 4, slots=1)
    y = tiles.tile("y", numbers, "int8_t")
    places = {"x": Place(x), "t": Place(t), "n": Place(t, element="int32_t")}
    grids = {key: Grid(place) for key, place in places.items()}
    recipe = RECIPES[operation]
    for each_name, scalar in zip(recipe.scalars, scalars, strict=True):
        grids[each_name] = tiles.alike(each_name, scalar, "float")
    if (not back and of.halves % 2) or rows.size * side.size * PAIR < numbers:
        # Numbers that no load brings are computed on, too.
        size = x.bytes * x.slots
        slots = Buffer("x_slots", "ub", x.address, size)
        tiles.buffers.append(slots)
        tiles.before.append(fill(Place(slots), -(-size // 256), "z"))
    matrix, pair, row = tiles.starts
    present: Value = 2 * side.size
    if of.halves % 2:
        present = least(present, of.halves - pair * 2)
    main, gaps = _main(of, halves, (matrix, pair, row), height, (rows.size, side.size))
    whole = Place(integers, ((matrix * pairs + pair) * height + row) * BLOCK)
    gap = height - rows.size
    narrow = _between(of, Place(x), Place(y), rows.size, side.size, back=back)
    # The halves before or behind the steps take one place; conversions from or to integers are
    # rows' own (_between).
    steps, vectors = [s.renamed({"h": "x", "out": "x"}) for s in recipe.steps], Vectors()
    compute(vectors, steps[1:] if back else steps[:-1], grids, 1, numbers)
    bursts = (rows.size, 2 * side.size) if of.plain else (present, rows.size)
    if back:
        tiles.body.append(isa.copy(Place(y), whole, side.size, rows.size, gap))
        tiles.body.extend([*narrow, *vectors.body])
        tiles.body.append(isa.copy(main, Place(x), *bursts, 0, gaps))
    else:
        tiles.body.append(isa.copy(Place(x), main, *bursts, gaps))
        tiles.body.extend([*vectors.body, *narrow])
        tiles.body.append(isa.copy(whole, Place(y), side.size, rows.size, 0, gap))
    tensors = (integers, halves) if back else (halves, integers)
    return tiles.program(tensors, f"{operation} of {count * of.halves * CUBE} numbers")


def _main(
    of: Blocks,
    halves: Tensor,
    at: tuple[Value, Value, Value],
    height: int,
    size: tuple[int, int],
) -> tuple[Place, int]:
    """Return the address of a tile's halves in main memory, and the gap between their bursts."""
    (matrix, pair, row), (rows, pairs) = at, size
    if of.plain:
        start = (matrix * height + row) * (of.halves * BLOCK) + pair * (2 * BLOCK)
        return Place(halves, start), of.halves - 2 * pairs
    start = ((matrix * of.halves + pair * 2) * height + row) * BLOCK
    return Place(halves, start), height - rows


def _between(
    of: Blocks, x: Place, y: Place, rows: int, pairs: int, *, back: bool
) -> list[Statement]:
    """Halves to integers, or ``back``, a row of 32 a repeat."""
    body: list[Statement] = [isa.mask_of(2 * FLOATS, PAIR)]
    apart, step = (1, 2 * pairs) if of.plain else (rows, 1)
    for number in range(pairs):
        start = number * (2 * BLOCK if of.plain else 2 * rows * BLOCK)
        halves, integers = x.at(start), y.at(number * rows * BLOCK)
        ends = (halves, integers) if back else (integers, halves)
        blocks, steps = ((apart, 1), (step, 1)) if back else ((1, apart), (1, step))
        name = CASTS[isa.element_of(ends[1]), isa.element_of(ends[0])]
        body.append(isa.vector(name, ends[0], ends[1:], rows, blocks, steps, lanes=PAIR))
    return [*body, isa.mask_of(2 * FLOATS, 2 * FLOATS)]

"""Reductions over one axis, of floats or halves as floats: along rows, and across them.

What is reduced may be longer than UB holds: it comes in parts, which are folded into sums that stay
there. A mean is a sum times 1/n.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.codegen.nest.value import Value
from tilewright.errors import refuse
from tilewright.targets.ascend.isa import WIDTHS
from tilewright.targets.ascend.kernels.choices import choice_bytes, choice_room
from tilewright.targets.ascend.kernels.folds import (
    FOLDS,
    LINES,
    MOST_ROWS,
    begin,
    finish,
    fold_bytes,
    fold_room,
    take_in,
)
from tilewright.targets.ascend.kernels.shares import Extent, Share, total
from tilewright.targets.ascend.kernels.tiles import Tiles, cut, each
from tilewright.targets.ascend.kernels.transfers import SLACK, load_rows, store_rows
from tilewright.targets.ascend.kernels.vectors import Grid, Vectors, number, pitch_of
from tilewright.targets.ascend.machine import BLOCK, DaVinci
from tilewright.targets.ascend.program import Loop, Place, Program, Statement, Tensor

LONGEST = 16_320
"""Floats of a row that come at once: 255 repeats."""


def reduce_rows(
    fold: str,
    rows: Extent,
    columns: int,
    core: DaVinci,
    *,
    mean: bool = False,
    name: str = "reduce",
    element: str = "float",
) -> Program:
    """The kernel from x, rows by columns, to one element a row, without flags."""
    width = WIDTHS[element]
    count = total(rows)
    x = Tensor("x", count * columns * width + SLACK, element)
    out = Tensor("out", count * width + SLACK, element, written=True)
    part = min(columns, LONGEST)
    pitch = pitch_of(part, width)
    wide = pitch_of(part, 4) if element == "half" else 0
    rest = columns % part
    # A part in two slots and what is left.
    room = core.ub - 3 * LINES * 4
    counts = (*range(MOST_ROWS, BLOCK // width, -BLOCK // width), 16, 8, 4, 2, 1)
    each = (2 + (rest > 0)) * pitch + wide
    most = next((n for n in counts if fold_bytes(n) + n * each <= room), None)
    if most is None:
        raise refuse("lower-operation", f"{core.ub} bytes of UB have no room for a row's {each}")
    if isinstance(rows, Share) and most < BLOCK // width:
        # What fewer results leave behind them no other block may write.
        raise refuse("plan-capacity", f"{core.ub} bytes of UB have no room for a block of results")
    tile = cut(rows, most, BLOCK // width)
    tiles = Tiles(name, core, (tile,))
    folds = fold_room(tiles.room, tile.size)
    tiles.buffers += folds.buffers
    result = Place(tiles.tile("out", LINES * width, element))
    floats = tiles.floats("x", tile.size, part) if wide else None
    (row,) = tiles.starts

    def load(home: Place, vectors: Vectors, column: Value, count: int) -> list[Statement]:
        at = Place(x, (row * columns + column) * width)
        grid = _floats(vectors, Grid(home, pitch), floats, tile.size, count)
        take_in(vectors, folds, fold, grid, tile.size, count)
        return [
            *load_rows(home, pitch, at, tile.size, count, width, columns * width),
            *vectors.body,
        ]

    start = Vectors()
    begin(start, folds, fold, tile.size)
    tiles.body.extend(start.body)
    _parts(tiles, columns, part, tile.size * pitch, load, element)
    end = Vectors(prefix="w")
    folded = finish(end, folds, fold, tile.size)
    _scaled(end, Grid(result), folded, tile.size, 1 / columns if mean else 1.0)
    tiles.body.extend(
        [*end.body, *store_rows(result, 0, Place(out, row * width), 1, tile.size, width)]
    )
    what = f"mean of {count} rows" if mean else f"{fold} of {count} rows"
    return tiles.program((x, out), f"{what} of {columns} {element}s")


def _floats(vectors: Vectors, x: Grid, floats: Grid | None, rows: int, columns: int) -> Grid:
    """Return rows as floats, converted where they are halves."""
    if floats is None:
        return x
    vectors.operation("cast", floats, (x,), rows, columns)
    return floats


def _scaled(vectors: Vectors, out: Grid, folded: Grid, columns: int, factor: float) -> None:
    """The result of a fold, times a factor, in its element; what was found is overwritten."""
    to = out if out.element == "float" else folded
    vectors.operation("vmuls", to, (folded,), 1, columns, number(factor))
    if to is not out:
        vectors.operation("cast", out, (folded,), 1, columns)


def reduce_across(
    fold: str,
    outer: Extent,
    rows: int,
    columns: Extent,
    core: DaVinci,
    *,
    mean: bool = False,
    name: str = "reduce",
    element: str = "float",
    skips: bool = False,
) -> Program:
    """The kernel from x, outer by rows by columns, to outer by columns, without flags.

    A maximum of halves that ``skips`` leaves out what is no number, as pools do; it is minus
    infinity where there is none.
    """
    narrow = WIDTHS[element]
    length, matrices = total(columns), each(outer)
    x = Tensor("x", total(outer) * rows * length * narrow + SLACK, element)
    out = Tensor("out", total(outer) * length * narrow + SLACK, element, written=True)
    width = cut(columns, 4096, BLOCK // narrow)
    pitch = pitch_of(width.size, narrow)
    wide = pitch_of(width.size, 4)
    converted = wide if element == "half" else 0
    room = core.ub - (choice_bytes(1) if skips else 0)
    part = min(rows, max((room - 2 * pitch - wide) // (3 * pitch + converted), 1))
    tiles = Tiles(name, core, (matrices, width))
    result = Place(tiles.tile("out", pitch, element))
    line = Grid(Place(tiles.kept("line", wide)))
    floats = tiles.floats("x", part, width.size) if converted else None
    first, column = tiles.starts
    instruction, nothing = FOLDS[fold]
    chosen = (tiles.alike("low", "-1.0f / 0.0f"), choice_room(tiles)) if skips else None
    start = Vectors()
    start.fill(line, 1, width.size, nothing)
    tiles.body.extend(start.body)

    def load(home: Place, vectors: Vectors, row: Value, count: int) -> list[Statement]:
        at = Place(x, ((first * rows + row) * length + column) * narrow)
        loaded = Grid(home, pitch)
        if chosen is not None:
            low, scratch = chosen
            vectors.choose(
                "eq", loaded, (loaded, loaded), (loaded, low), count, width.size, scratch
            )
        grid = _floats(vectors, loaded, floats, count, width.size)
        vectors.fold_rows(instruction, line, grid, count, width.size)
        return [
            *load_rows(home, pitch, at, count, width.size, narrow, length * narrow),
            *vectors.body,
        ]

    _parts(tiles, rows, part, part * pitch, load, element)
    end = Vectors(prefix="w")
    _scaled(end, Grid(result), line, width.size, 1 / rows if mean else 1.0)
    main = Place(out, (first * length + column) * narrow)
    tiles.body.extend([*end.body, *store_rows(result, pitch, main, 1, width.size, narrow)])
    what = "mean" if mean else fold
    return tiles.program(
        (x, out), f"{what} of {total(outer)} x {length} columns of {rows} {element}s"
    )


def _parts(
    tiles: Tiles,
    extent: int,
    part: int,
    size: int,
    load: Callable[[Place, Vectors, Value, int], list[Statement]],
    element: str,
) -> None:
    """The parts of what is reduced: a loop over whole ones, in two slots, and what is left."""
    whole, rest = divmod(extent, part)
    loop = Loop("part", whole)
    home = tiles.part("x", loop, whole, size, element)
    loop.body += load(Place(home), Vectors(), loop.variable * part, part)
    tiles.body.append(loop)
    if rest:
        home = Place(tiles.tile("rest", size, element, 1))
        tiles.body.extend(load(home, Vectors(prefix="u"), whole * part, rest))

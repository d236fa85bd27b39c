"""Moves of elements from one order to another: transposes, slices, copies, padding.

A move is a nest of dims, in the order of the result, each with its extent and the elements from
index to index in the source. Dims that lie alike in both become one (``normalised``). Then

- where the innermost dim is contiguous in the source, too, rows are copied: the thesis' second
  form (6.5), bursts of a copy with gaps where rows are whole blocks of 32 bytes;
- where another dim is, tiles of it by the innermost one are transposed in UB (transposing.py): the
  thesis' first form, here with the rows and columns of a tile at any distance, so that one kernel
  does any permutation;
- otherwise elements are copied one by one, up to ``MOST_COPIES``.

A row that is no whole number of blocks is written with up to 28 bytes behind it, which the row that
follows in the result overwrites. Where rows do not go in the result's order (``in_order``), a
transposition goes to the order in which they do, and a second move from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from tilewright.codegen.nest.value import Value
from tilewright.errors import refuse
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.kernels.shares import Extent, joined, joins, total
from tilewright.targets.ascend.kernels.tiles import Tiles, cut, each
from tilewright.targets.ascend.kernels.transfers import SLACK, load_rows, store_rows
from tilewright.targets.ascend.kernels.transposing import (
    SCRATCH,
    SIDE,
    turn_floats,
    turn_halves,
)
from tilewright.targets.ascend.kernels.vectors import Grid, Vectors, pitch_of
from tilewright.targets.ascend.machine import BLOCK, CUBE, DaVinci
from tilewright.targets.ascend.program import Buffer, Loop, Place, Program, Statement, Tensor

MOST_COPIES = 1 << 16
"""Copies of single rows or elements in one kernel."""

LONGEST = 8192
"""Elements of a row that are copied at once."""


class Dim(NamedTuple):
    """One dim of a move."""

    extent: Extent
    step: int
    """Elements from index to index in the source."""


Move = tuple[Dim, ...]
"""Dims in the result's order, the innermost last; the result is dense."""


def normalised(move: Sequence[Dim]) -> Move:
    """Return the same move with the fewest dims, at least one."""
    merged: list[Dim] = []
    for dim in move:
        if dim.extent == 1:
            continue
        alike = merged and merged[-1].step == total(dim.extent) * dim.step
        if alike and joins(merged[-1].extent, dim.extent):
            merged[-1] = Dim(joined((merged[-1].extent, dim.extent)), dim.step)
        else:
            merged.append(dim)
    return tuple(merged) or (Dim(1, 1),)


def launches_of(move: Sequence[Dim], width: int) -> list[Move]:
    """The moves, of which each is one kernel, that make up a move: one, or two."""
    move = normalised(move)
    turned = _contiguous(move)
    if turned is None or in_order(move, turned, width):
        return [move]
    # To (others, rows, columns) first, then rows of columns to their places.
    others = [n for n in range(len(move) - 1) if n != turned]
    order = [*others, turned, len(move) - 1]
    extents = [total(move[n].extent) for n in order]
    steps = dict(zip(order, _dense(extents), strict=True))
    first = tuple(move[n] for n in order)
    second = tuple(Dim(dim.extent, steps[n]) for n, dim in enumerate(move))
    return [normalised(first), normalised(second)]


def _dense(extents: Sequence[int]) -> list[int]:
    return [prod(extents[number + 1 :]) for number in range(len(extents))]


def _contiguous(move: Move) -> int | None:
    """The dim, other than the last, that is contiguous in the source; None if there is none, or the
    last one is."""
    if move[-1].step == 1:
        return None
    return next((n for n, dim in enumerate(move[:-1]) if dim.step == 1), None)


def in_order(move: Move, turned: int, width: int) -> bool:
    """Return True if a transposition's rows may be written in the order of the tiles."""
    row = total(move[-1].extent)
    whole = row * width % BLOCK == 0 or row > 3 * SIDE
    return whole or turned == len(move) - 2


def move_elements(
    move: Move, core: DaVinci, element: str = "float", offset: int = 0, *, size: int, name: str
) -> Program:
    """The kernel of a move that is one of ``launches_of``, without flags: x, of ``size`` elements
    of which the first to move is ``offset``, and out."""
    width = isa.WIDTHS[element]
    x = Tensor("x", size * width + SLACK, element)
    count = prod(total(dim.extent) for dim in move)
    out = Tensor("out", count * width + SLACK, element, written=True)
    turned = _contiguous(move)
    if turned is not None:
        return _turn(move, turned, core, x, out, offset, name)
    if move[-1].step != 1:
        move = (*move, Dim(1, 1))
    return _copy(move, core, x, out, offset, name)


def _places(
    move: Move, indices: Sequence[Value], x: Tensor, out: Tensor, offset: int
) -> tuple[Place, Place]:
    """The places of the element of some indices in the source and in the result."""
    width = isa.WIDTHS[x.element]
    source, target = offset, 0
    dense = _dense([total(dim.extent) for dim in move])
    for index, dim, step in zip(indices, move, dense, strict=True):
        source, target = index * dim.step + source, index * step + target
    return Place(x, source * width), Place(out, target * width)


def _copy(move: Move, core: DaVinci, x: Tensor, out: Tensor, offset: int, name: str) -> Program:
    width = isa.WIDTHS[x.element]
    if len(move) == 1:
        move = (Dim(1, total(move[0].extent)), *move)
    *others, rows, columns = move
    length = total(columns.extent)
    whole = length * width % BLOCK == 0 and rows.step * width % BLOCK == 0
    single = prod(total(dim.extent) for dim in others) * (1 if whole else total(rows.extent))
    if single > MOST_COPIES:
        raise refuse(
            "lower-operation",
            f"{name} takes {single} copies of {length} elements, which is more than {MOST_COPIES}",
            help="an innermost dimension of a multiple of 32 bytes",
        )
    column = cut(columns.extent, LONGEST, block=BLOCK // width)
    pitch = pitch_of(column.size, width)
    row = cut(rows.extent, max(min(core.ub // (2 * pitch), 4095), 1), 1)
    tiles = Tiles(name, core, (*(each(dim.extent) for dim in others), row, column))
    home = Place(tiles.tile("x", row.size * pitch, x.element))
    source, target = _places(move, tiles.starts, x, out, offset)
    tiles.body.extend(
        load_rows(home, pitch, source, row.size, column.size, width, rows.step * width)
    )
    tiles.body.extend(store_rows(home, pitch, target, row.size, column.size, width, length * width))
    return tiles.program((x, out), f"copies of {_told(move)}")


def _told(move: Move) -> str:
    return str([(total(dim.extent), dim.step) for dim in move])


def _turn(
    move: Move, turned: int, core: DaVinci, x: Tensor, out: Tensor, offset: int, name: str
) -> Program:
    """Tiles of ``move[-1]`` by ``move[turned]`` as they lie in the source, transposed."""
    width = isa.WIDTHS[x.element]
    side = SIDE if width == 4 else CUBE
    rows, columns = move[-1], move[turned]
    row = cut(rows.extent, 3 * SIDE, SIDE, BLOCK // width)
    column = cut(columns.extent, 4 * SIDE, SIDE)
    high, wide = (-(-side_axis.size // side) * side for side_axis in (row, column))
    others = [n for n in range(len(move)) if n not in (turned, len(move) - 1)]
    # In the result's order, so that what is written behind a row is written again.
    outermost = [each(move[n].extent) for n in others]
    tiles = Tiles(name, core, (*outermost, column, row))
    row_bytes, pitch = wide * width, high * width
    source = tiles.tile("x", high * row_bytes, x.element)
    result = tiles.tile("out", wide * pitch, x.element)
    vectors = Vectors()
    scratch = Place(tiles.kept("scratch", SCRATCH)) if width == 4 else None
    # Groups of 8 rows are read whole: what lies behind the last row has to be something.
    after = -row.size % 8 if width == 4 else 0
    for slot in range(source.slots if after else 0):
        address = source.address + slot * source.bytes + row.size * row_bytes
        pad = Buffer(f"after{slot}", "ub", address, after * row_bytes, element="float")
        tiles.buffers.append(pad)
        tiles.filled(Grid(Place(pad), row_bytes), after, wide, "0")
    if scratch is None:
        ends = Place(result), Place(source)
        turn_halves(vectors, *ends, (pitch, row_bytes), row.size, column.size)
    else:
        for top in range(0, row.size, side):
            for left in range(0, column.size, side):
                to = Place(result, left * pitch + top * width)
                part = Place(source, top * row_bytes + left * width)
                groups = -(-(row.size - top) // 8), -(-(column.size - left) // 8)
                turn_floats(vectors, to, part, scratch, (pitch, row_bytes), groups)
    *indices, second, first = tiles.starts
    places = {**dict(zip(others, indices, strict=True)), turned: second, len(move) - 1: first}
    load, store = _places(move, [places[n] for n in range(len(move))], x, out, offset)
    tiles.body.extend(
        load_rows(Place(source), row_bytes, load, row.size, column.size, width, rows.step * width)
    )
    tiles.body.extend(vectors.body)
    tiles.body.extend(
        store_rows(
            *(Place(result), pitch, store, column.size, row.size, width),
            _dense([total(dim.extent) for dim in move])[turned] * width,
        )
    )
    return tiles.program((x, out), f"transposes of {_told(move)}")


def pad_axis(
    outer: Extent,
    pads: tuple[int, int],
    count: int,
    core: DaVinci,
    value: str,
    element: str = "float",
    name: str = "pad",
) -> Program:
    """The kernel that puts so many elements before and after each of ``outer`` runs of ``count``
    elements, without flags: x, out. ``value`` is C."""
    width = isa.WIDTHS[element]
    runs = total(outer)
    x = Tensor("x", runs * count * width + SLACK, element)
    whole = count + sum(pads)
    out = Tensor("out", runs * whole * width + SLACK, element, written=True)
    axis = each(outer)
    tiles = Tiles(name, core, (axis,))
    if runs * (2 + -(-whole // LONGEST)) > MOST_COPIES:
        raise refuse("lower-operation", f"{name} pads {runs} runs, more than it copies one by one")
    fill = min(max(pads), LONGEST)
    alike = Place(tiles.kept("alike", pitch_of(fill, width), element))
    tiles.filled(Grid(alike), 1, fill, f"({value})")
    (number,) = tiles.starts
    part = cut(count, LONGEST)
    pieces = Loop("piece", part.most)
    home = tiles.part("x", pieces, part.most, pitch_of(part.size, width), element)
    start = part.start(pieces.variable)
    main = Place(x, (number * count + start) * width)
    pieces.body += load_rows(Place(home), 0, main, 1, part.size, width)
    main = Place(out, (number * whole + (start + pads[0])) * width)
    pieces.body += store_rows(Place(home), 0, main, 1, part.size, width)

    def filled(extent: int, first: int) -> list[Statement]:
        stores: list[Statement] = []
        if not extent:
            return stores
        alike_part = cut(extent, LONGEST)
        for piece in range(alike_part.most):
            main = Place(out, (number * whole + (alike_part.start(piece) + first)) * width)
            stores += store_rows(alike, 0, main, 1, alike_part.size, width)
        return stores

    # In ascending order: what is written behind a part is written again.
    tiles.body.extend([*filled(pads[0], 0), pieces, *filled(pads[1], pads[0] + count)])
    return tiles.program((x, out), f"{runs} runs of {count} elements padded by {pads}")

"""Planes of pixels with a border of one value around them, as pools read them.

A pixel is a block of 16 halves, so rows of pixels go to main memory as they are, and none of what
is written lies behind another part. One kernel writes the rows of the planes with what is beside
them, many rows at once, another one the rows above and below.
"""

from __future__ import annotations

from tilewright.codegen.nest.value import Value
from tilewright.targets.ascend.kernels.moves import LONGEST
from tilewright.targets.ascend.kernels.shares import Extent, total
from tilewright.targets.ascend.kernels.tiles import Tiles, cut, each
from tilewright.targets.ascend.kernels.transfers import MAX_BURSTS, SLACK, load_rows, store_rows
from tilewright.targets.ascend.kernels.vectors import Grid, Vectors
from tilewright.targets.ascend.machine import BLOCK, CUBE, DaVinci
from tilewright.targets.ascend.program import Buffer, Place, Program, Tensor

Pads = tuple[int, ...]
"""Pixels above, on the left, below and on the right."""


def _tensor(name: str, planes: Extent, rows: int, columns: int, *, written: bool = False) -> Tensor:
    size = total(planes) * rows * columns * BLOCK + SLACK
    return Tensor(name, size, "half", written=written)


def _alike(tiles: Tiles, pixels: int, value: str) -> Buffer:
    """Return a buffer of ``pixels`` pixels that all hold the value."""
    alike = tiles.kept("alike", pixels * BLOCK, "half")
    once = Vectors()
    once.fill(Grid(Place(alike), pixels * BLOCK), 1, pixels * CUBE, f"({value})")
    tiles.before.extend(once.body)
    return alike


def rows_with_sides(
    planes: Extent, lines: Extent, width: int, pads: Pads, core: DaVinci, value: str, name: str
) -> Program:
    """The kernel that writes the rows of planes to their places, with what is beside them, without
    flags: x, out. ``value`` is C."""
    above, left, below, right = pads
    height, wide = total(lines), width + left + right
    x = _tensor("x", planes, height, width)
    out = _tensor("out", planes, height + above + below, wide, written=True)
    side, pitch = max(left, right), width * BLOCK
    most = min(core.ub // (2 * pitch + side * BLOCK), MAX_BURSTS)
    rows = cut(lines, max(most, 1), 1)
    tiles = Tiles(name, core, (each(planes), rows))
    plane, line = (
        axis.start(place) for axis, place in zip(tiles.axes, tiles.variables, strict=True)
    )
    alike = _alike(tiles, rows.size * side, value) if side else None
    home = Place(tiles.tile("x", rows.size * pitch, "half"))
    main = Place(x, (plane * height + line) * pitch)
    tiles.body.extend(load_rows(home, pitch, main, rows.size, width * CUBE, 2))
    first: Value = (plane * (height + above + below) + (line + above)) * wide

    def stored(source: Place, column: int, columns: int) -> None:
        main = Place(out, (first + column) * BLOCK)
        size = columns * BLOCK
        tiles.body.extend(
            store_rows(main, source, size, rows.size, columns * CUBE, 2, wide * BLOCK)
        )

    stored(home, left, width)
    for column, columns in ((0, left), (left + width, right)):
        if columns and alike is not None:
            stored(Place(alike), column, columns)
    return tiles.program((x, out), f"rows of {total(planes)} planes with sides of {left}, {right}")


def rows_around(
    planes: Extent, size: tuple[int, int], pads: Pads, core: DaVinci, value: str, name: str
) -> Program:
    """The kernel that writes the rows above and below planes of ``size``, without flags: out."""
    above, left, below, right = pads
    (height, width), rows = size, size[0] + above + below
    wide = width + left + right
    out = _tensor("out", planes, rows, wide, written=True)
    axis = each(planes)
    tiles = Tiles(name, core, (axis,))
    alike = Place(_alike(tiles, min(max(above, below) * wide, LONGEST // CUBE), value))
    first = axis.start(tiles.variables[0]) * (rows * wide)
    for row, count in ((0, above), (above + height, below)):
        part = cut(count * wide, LONGEST // CUBE, 1) if count else None
        for piece in range(part.most if part else 0):
            assert part is not None
            main = Place(out, (first + (row * wide + part.start(piece))) * BLOCK)
            tiles.body.extend(store_rows(main, alike, 0, 1, part.size * CUBE, 2))
    return tiles.program((out,), f"rows around {total(planes)} planes")

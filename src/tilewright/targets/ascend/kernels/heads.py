"""Between rows [batch][rows][heads][columns] and matrices of heads in Nz, of halves.

Where rows or columns of a head are no whole blocks the two are not the same bytes as rows of all
heads in Nz: blocks are padded. A head's rows lie apart among the rows, and go through UB.
"""

from __future__ import annotations

from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.kernels.shares import Extent, total
from tilewright.targets.ascend.kernels.tiles import Tiles, cut, each
from tilewright.targets.ascend.kernels.transfers import SLACK, blocks_of, load_rows, store_rows
from tilewright.targets.ascend.kernels.vectors import pitch_of
from tilewright.targets.ascend.machine import BLOCK, CUBE, DaVinci
from tilewright.targets.ascend.program import Place, Program, Tensor


def split_heads(
    images: Extent,
    lines: Extent,
    parts: Extent,
    columns: int,
    core: DaVinci,
    name: str,
    *,
    back: bool = False,
) -> Program:
    """The kernel from ``lines`` rows of so many heads (``parts``) to heads (x, out), or ``back``,
    without flags."""
    batch, rows, heads = total(images), total(lines), total(parts)
    plain = batch * rows * heads * columns * 2 + SLACK
    size = padded(rows) * padded(columns) * 2
    blocks = batch * heads * size + SLACK
    x = Tensor("x", blocks if back else plain)
    out = Tensor("out", plain if back else blocks, written=True)
    # Back, rows of all heads: what a head's row writes behind its end the next head overwrites.
    pitch = pitch_of(columns, 2)
    row = cut(lines, max(min(core.ub // (2 * pitch * (heads if back else 1)), 255), 1), 1)
    axes = (each(images), row) if back else (each(images), each(parts), row)
    tiles = Tiles(name, core, axes)
    first, *others, line = tiles.starts
    extents = row.size, padded(columns) // CUBE
    if not back:
        (head,) = others
        home = Place(tiles.tile("x", row.size * pitch, "half"))
        at = ((first * rows + line) * heads + head) * (columns * 2)
        apart = heads * columns * 2
        tiles.body.extend(load_rows(home, pitch, Place(x, at), row.size, columns, 2, apart))
        main = Place(out, (first * heads + head) * size + line * BLOCK)
        tiles.body.extend(blocks_of(home, pitch, main, padded(rows), extents, "block", loads=False))
        return tiles.program((x, out), f"{rows} rows of {heads} heads of {columns} halves to Nz")
    home = Place(tiles.tile("x", row.size * heads * pitch, "half"))
    for number in range(heads):
        main = Place(x, (first * heads + number) * size + line * BLOCK)
        place = home.at(number * pitch)
        name = f"block{number}"
        tiles.body.extend(
            blocks_of(place, heads * pitch, main, padded(rows), extents, name, loads=True)
        )
    at = (first * rows + line) * (heads * columns * 2)
    tiles.body.extend(store_rows(home, pitch, Place(out, at), row.size * heads, columns, 2))
    return tiles.program((x, out), f"{rows} rows of {heads} heads of {columns} halves from Nz")

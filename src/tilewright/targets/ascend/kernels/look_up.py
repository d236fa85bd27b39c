"""Rows of a table by indices that are known at run time alone: an embedding's look-up.

The scalar unit reads an index in main memory, counts a negative one from the end, cuts what is out
of range, and issues the copy of that row. So no index reads outside of the table. Rows come to UB
one by one, and go back side by side. Nothing else depends on an index (look_ups.py): flags hand on
tiles, whatever rows they have.
"""

from __future__ import annotations

from tilewright.codegen.nest.value import greatest, least, more, select, variable
from tilewright.errors import refuse
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.isa import INDEX_ELEMENTS, WIDTHS
from tilewright.targets.ascend.kernels.shares import Extent, total
from tilewright.targets.ascend.kernels.tiles import Tiles, cut, each
from tilewright.targets.ascend.kernels.transfers import SLACK, store_rows
from tilewright.targets.ascend.kernels.vectors import pitch_of
from tilewright.targets.ascend.machine import BLOCK, MAX_BURSTS, DaVinci
from tilewright.targets.ascend.program import Loop, Place, Program, Tensor, element_at, scalar


def look_up(
    outer: Extent,
    extent: int,
    inner: Extent,
    count: Extent,
    core: DaVinci,
    *,
    index: str = "int64_t",
    name: str = "look_up",
    element: str = "half",
) -> Program:
    """The kernel from x [outer, extent, inner] and indices i [count] to out [outer, count, inner],
    without flags."""
    if index not in INDEX_ELEMENTS.values():
        raise refuse("lower-operation", f"{name}: indices of {index} have no kernel")
    width = WIDTHS[element]
    tables, number, length = total(outer), total(count), total(inner)
    x = Tensor("x", tables * extent * length * width + SLACK, element)
    indices = Tensor("i", number * WIDTHS[index] + SLACK, index)
    out = Tensor("out", tables * number * length * width + SLACK, element, written=True)
    table, columns = each(outer), cut(inner, core.ub // 2 // width, BLOCK // width)
    pitch = pitch_of(columns.size, width)
    rows = cut(count, min(core.ub // 2 // pitch, MAX_BURSTS), 1)
    tiles = Tiles(name, core, (table, rows, columns))
    home = Place(tiles.tile("rows", rows.size * pitch, element))
    first, row, column = tiles.starts
    loop = Loop("row", rows.size)
    given, wrapped, kept, at = (variable(word) for word in ("given", "wrapped", "kept", "at"))
    main = ((first * extent + at) * length + column) * width
    loop.body += [
        scalar("given", element_at(indices, row + loop.variable), int(core.latency)),
        scalar("wrapped", select(more(0, given), given + extent, given)),
        scalar("kept", greatest(wrapped, 0)),
        scalar("at", least(kept, extent - 1)),
        isa.copy(home.at(loop.variable * pitch), Place(x, main), 1, pitch // BLOCK),
    ]
    place = Place(out, ((first * number + row) * length + column) * width)
    store = store_rows(
        *(home, pitch, place, rows.size, columns.size, width, length * width, "back"),
    )
    tiles.body.extend([loop, *store])
    about = f"{number} of {extent} rows of {length} {element}s, {tables} times"
    return tiles.program((x, indices, out), about)

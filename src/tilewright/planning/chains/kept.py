"""The rows that a tile of a chain leaves to the next, and how far each tile computes ahead.

A producer whose tiles leave rows computes only those that are new. Where it computes blocks of
rows in the time of one, the first tile may end within a block: it reads the halo as well, and all
others end where it did. So each computes on to the end of its block, and the next tile finds the
rows: a pool of 3 x 3 with stride 2 asks for 9 rows, then 8, 8, ...; in blocks of 4 the convolution
before it computes 12, 8, 8, ... and one block fewer in all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tilewright.machine import parse_expression
from tilewright.planning.chains.cost import Tiling
from tilewright.planning.chains.tiles import Slide
from tilewright.planning.chains.units import Places, Unit
from tilewright.planning.cost.row_blocks import computed_at_once

ROW = "oh"
"""The dim of a kernel's rows."""


def choices(tiling: Tiling) -> Iterator[tuple[tuple[str, int], ...]]:
    """Yield what a tiling may keep: all results of which rows can be kept, or one of them; to the
    rows that tiles read, and to the end of their blocks."""
    names = keepable(tiling)
    for some in dict.fromkeys([names, *((name,) for name in names)]) if names else ():
        further = _ahead(tiling, some)
        yield further
        if any(rows for _, rows in further):
            yield tuple((name, 0) for name in some)


def keepable(tiling: Tiling) -> tuple[str, ...]:
    """The producers' results of which some tile has rows that the one before has, too, where
    the primitives take them in turn."""
    names: list[str] = []
    for name, index in tiling.places.homes.items():
        place, number = tiling.places.all[index], tiling.maker(name)
        maker, read = tiling.units[number], tiling.units[place.unit]
        direct = place.made_by is not None and not place.staged
        ends = maker.primitive.operands["output"], read.primitive.operands[place.operand.role]
        depth = tiling.unit_depth(number)
        if not (direct and all(end.circular for end in ends) and depth):
            continue
        spans, loop = tiling.shape.spans(), tiling.order[depth - 1]
        moved = [axis for axis, box in enumerate(tiling.boxes(place)) if box.loop == loop]
        slid = [dim for dim in maker.bound if spans[dim].loop == loop]
        if len(moved) == len(slid) == 1 and _is_row(maker, moved[0], slid[0]):
            names += [name] if spans[slid[0]].overlaps else []
    return tuple(names)


def block_step(places: Places, dim: str) -> int:
    """Return, for a row dim of the last kernel, the size of tiles of which each reads one block
    more of what is kept for it; 0 where that is no whole number."""
    for index in places.homes.values():
        if index not in places.makes:  # It is made elsewhere, and moved there.
            continue
        place, maker = places.all[index], places.units[places.makes.index(index)]
        reader = places.units[place.unit]
        axis = maker.bound.get(maker.names.get(ROW, ROW))
        if axis is None or reader is not places.units[-1] or dim not in axis.dims:
            continue
        if maker.primitive.operands["output"].circular:
            size = maker.kernel.anchor.extents[ROW]
            block, stride = _block(maker, size), abs(dict(axis.terms)[dim])
            return block // stride if block % stride == 0 else 0
    return 0


def _is_row(unit: Unit, axis: int, slid: str) -> bool:
    """Return True if an axis of a kernel's result runs along its rows."""
    written = unit.axes[unit.kernel.output.name][axis]
    return unit.names.get(ROW, ROW) == slid and set(written.dims) == {slid}


def _ahead(tiling: Tiling, names: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """The results, each with the rows that tiles compute beyond those that they read; 0 where not
    every tile would end with a block, or with the image."""
    rows: dict[str, int] = {}
    slides: tuple[Slide, ...] = ()
    for number in reversed(range(len(tiling.units))):  # What is read last says what is read first.
        unit = tiling.units[number]
        name, dim = unit.kernel.output.name, unit.names.get(ROW, ROW)
        if name not in names:
            continue
        loop = tiling.order[tiling.unit_depth(number) - 1]
        extent = tiling.shape.extents[dim]
        span = tiling.shape.spans(slides)[dim]
        block = _block(unit, int(span.size.max()))
        ends = span.start + span.size
        further = int(-ends[0] % block)
        inside = np.minimum(ends + further, extent)
        rows[name] = further if np.all((inside % block == 0) | (inside == extent)) else 0
        slides = (*slides, Slide(name, loop, rows[name]))
    return tuple((name, rows[name]) for name in names)


def _block(unit: Unit, rows: int) -> int:
    """Rows that a primitive computes in the time of one."""
    sizes = {**unit.kernel.anchor.extents, ROW: rows}
    return computed_at_once(parse_expression(unit.primitive.cycles), sizes, ROW)

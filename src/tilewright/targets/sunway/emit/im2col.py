"""Tile code of the explicit method's first step: rows of windows, copied out of a tile of images.

A row runs along the dim that lies innermost in the result (columns of positions, if there are
several), and is 0 where it is padding, which is not stored.
"""

from __future__ import annotations

from tilewright.targets.sunway.emit.rows import Rows


def im2col(rows: Rows) -> list[str]:
    """The body of the function that writes a tile's windows side by side."""
    x, line, along = rows.operand(rows.anchor, 0), rows.line, rows.row
    with rows.loops(rows.parallel()) as at:
        inside: list[str] = []
        low, end = "0", str(rows.length)
        for axis in rows.clipped(x):
            index, size = x.index(axis, at), x.place.shape[axis]
            if along in x.window[axis].dims:
                step = dict(x.window[axis].terms)[along]
                line(f"const long low = first_inside({index}, {step});")
                line(f"const long end = MIN({rows.length}, end_inside({index}, {step}, {size}));")
                low, end = "low", "end"
            else:
                inside.append(f"{index} >= 0 && {index} < {size}")
        if inside:
            line(f"const int inside = {' && '.join(inside)};")
            end = f"inside ? {end} : 0"
        y, source = rows.result, rows.step(x)
        line(f"row_window({y.pointer} + {y.offset(at)}, {rows.length},")
        line(f"           {x.pointer}, {x.offset(at)}, {source},")
        line(f"           {low}, {end});")
    return rows.writer.lines

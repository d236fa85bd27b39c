"""Tile code of products: convolutions and matrix products by the functions of slave/gemm.h.

Sums lie in the result's tile. They are started and completed row by row, as those of all
reductions; between, blocks of them are taken into registers for all taps of a window and all input
channels of the tile.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.codegen.c.source import plus
from tilewright.codegen.nest.value import Value, variable
from tilewright.errors import refuse
from tilewright.targets.sunway.emit.operands import Operand
from tilewright.targets.sunway.emit.rows import Rows, pointer_at


def convolution(rows: Rows) -> list[str]:
    """The body of a convolution's function; rows, where weights of channels or results of positions
    do not lie side by side."""
    x, w = rows.operand(rows.anchor, 0), rows.operand(rows.anchor, 1)
    if not w.innermost("co") or not _positions_dense(rows.result):
        return rows.write()
    rows.begin()
    line = rows.line
    line("struct gemm_tap taps[GEMM_TAPS];")
    outer = [dim for dim in rows.parallel_dims() if dim not in ("co", "oh", "ow")]
    depth = rows.writer.depth
    for dim in outer:
        rows.open(dim)
    at = rows.indices(outer)
    oh, ow = rows.extents["oh"], rows.extents["ow"]
    line(f"long row = {oh.start}, column = {ow.start};")
    line(f"for (long q = 0; q < {oh.size * ow.size}; q += 4) {{")
    rows.writer.depth += 1
    line(f"const long left = MIN(4, {oh.size * ow.size} - q);")
    line("long rows[4], columns[4], places = 0, count = 0;")
    with rows.writer.block("for (long p = 0; p < 4; p++)"):
        line("rows[p] = row;")
        line("columns[p] = column;")
        with rows.writer.block(f"if (++column == {ow.end})"):
            line(f"column = {ow.start};")
            line("row++;")
    _taps(rows, x, w, at)
    rows.close(depth)
    rows.complete()
    rows.close(1)
    return rows.writer.lines


def _positions_dense(result: Operand) -> bool:
    """Return True if a tile's output positions are the result's rows and columns at stride 1."""
    *_, rows, columns = result.window
    return (
        len(result.window) > 2
        and (rows.dims, columns.dims) == (("oh",), ("ow",))
        and (rows.terms[0][1], columns.terms[0][1]) == (1, 1)
    )


def _taps(rows: Rows, x: Operand, w: Operand, at: Mapping[str, Value]) -> None:
    """The table of taps, and the products whenever it is full."""
    line, depth = rows.line, rows.writer.depth
    kernel = ("kh", "kw")
    first = len(rows.writer.lines)
    for dim in kernel:
        rows.open(dim)
    shifted = rows.indices([*[d for d in at if at[d] == rows.variables[d]], *kernel])
    indices = {**at, **{dim: shifted[dim] for dim in kernel}}
    weights = w.offset({**indices, "co": rows.extents["co"].start, "ci": rows.extents["ci"].start})
    line("struct gemm_tap *tap = &taps[count++];")
    with rows.writer.block("for (long p = 0; p < 4; p++)"):
        indices |= {"oh": variable("rows[p]"), "ow": variable("columns[p]")}
        indices["ci"] = rows.extents["ci"].start
        conditions = ["p < left"]
        for axis in rows.clipped(x):
            index = x.index(axis, indices)
            conditions += [f"{index} >= 0", f"{index} < {x.place.shape[axis]}"]
        line(f"const int inside = {conditions[0]}")
        for condition in conditions[1:]:
            line(f"    && {condition}")
        rows.writer.lines[-1] += ";"
        line(f"tap->x[p] = inside ? {x.pointer} + ({x.offset(indices)}) : gemm_zero;")
        line(f"tap->step[p] = inside ? {x.step('ci')} : 0;")
    line(f"tap->w = {weights};")
    line("places |= tap->w;")
    for name in ("rows", "columns"):
        if not any(f"{name}[p]" in text for text in rows.writer.lines[first:]):
            line(f"(void){name};")
    taps = _count(rows, kernel)
    if taps is None or taps > 25:
        with rows.writer.block("if (count == GEMM_TAPS)"):
            _flush(rows, w, at)
            line("count = 0;")
    rows.close(depth)
    _flush(rows, w, at)


def _count(rows: Rows, kernel: tuple[str, ...]) -> int | None:
    """The taps of a tile's window, if it is whole."""
    count = 1
    for dim in kernel:
        size = rows.extents[dim].size
        if not isinstance(size, int):
            return None
        count *= size
    return count


def _flush(rows: Rows, w: Operand, at: Mapping[str, Value]) -> None:
    y = rows.result
    start = {dim: rows.extents[dim].start for dim in ("co", "oh", "ow")}
    pointer = plus(y.pointer, str(y.offset({**at, **start}) + variable("q")))
    call = f"gemm_positions({pointer}, {y.step('co')}, left, taps, count, {w.pointer}, places,"
    rows.line(call)
    sizes = f"{w.step('ci')}, {rows.extents['co'].size}, {rows.extents['ci'].size}"
    rows.line(f"               {sizes});")


def product(rows: Rows) -> list[str]:
    """The body of a matrix product's function, where both factors lie along the reduction."""
    return _product(rows, "gemm_product", "")


def product_in_turns(rows: Rows) -> list[str]:
    """The body of a product that CPEs compute together: ``turn`` says whose tiles these are."""
    return _product(rows, "gemm_in_turns", "turn, ")


def _product(rows: Rows, name: str, turn: str) -> list[str]:
    x, w = rows.operand(rows.anchor, 0), rows.operand(rows.anchor, 1)
    if not (x.innermost("ci") and w.innermost("ci")):
        if turn:
            raise refuse("lower-operand", "factors of a product in turns lie along its reduction")
        return rows.write()
    rows.begin()
    line, depth = rows.line, rows.writer.depth
    others = [dim for dim in rows.parallel_dims() if dim != "co"]
    free = [dim for dim in others if rows.whole[dim] > 1 and not w.moving(dim)]
    blocked = max(free, key=lambda dim: rows.whole[dim], default="")
    outer = [dim for dim in others if dim != blocked]
    for dim in outer:
        rows.open(dim)
    start = {dim: rows.extents[dim].start for dim in (blocked, "co", "ci") if dim}
    at = {**rows.indices(outer), **start}
    y = rows.result
    tall = rows.extents[blocked].size if blocked else 1
    pitches = [operand.step(blocked) if blocked else 0 for operand in (y, x)]
    space = " " * len(name)
    step = "" if turn else f" {y.step('co')},"
    line(f"{name}({turn}{pointer_at(y, at)}, {pitches[0]},{step}")
    line(f"{space} {pointer_at(x, at)}, {pitches[1]}, {tall},")
    sizes = f"{w.step('co')}, {rows.extents['co'].size}, {rows.extents['ci'].size}"
    line(f"{space} {pointer_at(w, at)}, {sizes});")
    rows.close(depth)
    rows.complete()
    rows.close(1)
    return rows.writer.lines

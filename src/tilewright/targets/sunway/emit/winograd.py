"""Tile code of Winograd's transforms, by the functions of slave/winograd.h.

A tile of inputs is copied out of its box, 0 where the box ends (padding is not stored), and its
points are written one plane apart; products are read so, and what of a tile lies within the result
goes through the rest of the kernel's chain, element by element.
"""

from __future__ import annotations

from tilewright.codegen.c.source import plus
from tilewright.codegen.c.winograd import INPUT, OUTPUT
from tilewright.codegen.nest.value import Value, least
from tilewright.targets.sunway.emit.rows import Rows, pointer_at

IMAGE_ROWS, IMAGE_COLUMNS = 2, 3
"""Axes of an image."""


def winograd_input(rows: Rows) -> list[str]:
    """The body of the function that transforms a tile's inputs."""
    tile, inner = _sizes(rows)
    top, left, _, _ = rows.anchor.parameters.get("pads", (0, 0, 0, 0))
    x, y, line = rows.operand(rows.anchor, 0), rows.result, rows.line
    for dim in ("c", "n", "th", "tw"):
        rows.open(dim)
    if rows.writer.depth == 1:
        line("{")
        rows.writer.depth += 1
    at = {**rows.indices(("c", "n", "th", "tw")), "p": 0}
    places = [x.place.order.index(axis) for axis in (IMAGE_ROWS, IMAGE_COLUMNS)]
    others = [axis for axis in range(len(x.place.shape)) if axis not in places]
    starts: list[Value] = [
        at[dim] * tile - pad - x.place.start(place, x.box)
        for place, dim, pad in zip(places, ("th", "tw"), (top, left), strict=True)
    ]
    image = plus(x.pointer, str(x.offset_along(others, at)))
    sizes = [x.place.size(place, x.box) for place in places]
    line(f"float d[{inner * inner}];")
    line(f"winograd_load(d, {inner}, {image}, {', '.join(str(x.step_of(p)) for p in places)},")
    line(f"              {', '.join(map(str, (*starts, *sizes)))});")
    line(f"winograd_input_{inner}(d, {pointer_at(y, at)},")
    line(f"                 {y.step('p')});")
    rows.close(1)
    return rows.writer.lines


def winograd_output(rows: Rows) -> list[str]:
    """The body of the function that transforms a tile's products back."""
    tile, inner = _sizes(rows)
    m, y, line = rows.operand(rows.anchor, 0), rows.result, rows.line
    rows.row = ""  # Two dims move along each axis of the image: elements are taken one by one.
    outer = ("n", "c", "th", "tw")
    for dim in outer:
        rows.open(dim)
    depth = rows.writer.depth
    if depth == 1:
        line("{")
        rows.writer.depth += 1
    at = {**rows.indices(outer), "p": 0}
    line(f"float o[{tile * tile}];")
    line(f"winograd_output_{tile}_{inner}({pointer_at(m, at)},")
    line(f"                    {m.step('p')}, o);")
    for dim, whole, extent in zip(
        ("r", "s"), ("th", "tw"), rows.anchor.parameters["extents"], strict=True
    ):
        limit = least(tile, extent - at[whole] * tile) if extent % tile else tile
        name = at[dim] = rows.variables[dim]
        line(f"for (long {name} = 0; {name} < {limit}; {name}++) {{")
        rows.writer.depth += 1
    value = f"o[{at['r']} * {tile} + {at['s']}]"
    if len(rows.anchor.inputs) > 1:
        bias = rows.operand(rows.anchor, 1)
        value += f" + {bias.pointer}[{bias.offset(at)}]"
    line(f"const float t0 = {value};")
    last = rows.chain(at)
    line(f"{y.pointer}[{y.offset(at)}]")
    line(f"    = {last};")
    rows.close(1)
    return rows.writer.lines


def _sizes(rows: Rows) -> tuple[int, int]:
    """Extents of a tile of outputs, and of a transformed tile."""
    tile, taps = (int(rows.anchor.parameters[name]) for name in ("tile", "taps"))
    return tile, tile + taps - 1


HEAD = """\
/* Winograd's transforms of one tile, in two passes of one dimension each. */
#ifndef WINOGRAD_H
#define WINOGRAD_H

#include "cpe.h"

/* Copies a tile of inner x inner elements that begins at (row, column) of a box; what lies outside
   of its rows and columns is 0. */
static inline void winograd_load(float *d, long inner, const float *x, long row_step,
                                 long column_step, long row, long column, long rows, long columns)
{
    const long low = MAX(-column, 0), end = MIN(columns - column, inner);
    for (long i = 0; i < inner; i++, d += inner) {
        const int inside = row + i >= 0 && row + i < rows;
        for (long j = 0; j < inner; j++)
            d[j] = inside && j >= low && j < end
                       ? x[(row + i) * row_step + (column + j) * column_step]
                       : 0.0f;
    }
}

"""


def header_text() -> str:
    """Return the text of slave/winograd.h."""
    functions: list[str] = []
    for inner, text in sorted(INPUT.items()):
        along = f"transform_input_{inner}"
        functions += [_one_dimension(along, text), _input_function(inner, along)]
    for (tile, inner), text in sorted(OUTPUT.items()):
        along = f"transform_output_{tile}_{inner}"
        functions += [_one_dimension(along, text), _output_function(tile, inner, along)]
    return HEAD + "\n".join(functions) + "\n#endif\n"


def _one_dimension(name: str, text: str) -> str:
    return (
        "/* One dimension: elements `step` apart to elements side by side. */\n"
        f"static inline void {name}(const float *i, long step, float *o)\n"
        f"{{\n{text.replace('const vec ', 'const float ')}}}\n"
    )


def _input_function(inner: int, along: str) -> str:
    return f"""\
/* The {inner} x {inner} points of a tile of inputs d, `plane` elements apart. */
static inline void winograd_input_{inner}(const float *d, float *y, long plane)
{{
    float t[{inner * inner}], points[{inner}];
    for (long j = 0; j < {inner}; j++)
        {along}(d + j, {inner}, t + j * {inner});
    for (long u = 0; u < {inner}; u++) {{
        {along}(t + u, {inner}, points);
        for (long v = 0; v < {inner}; v++, y += plane)
            *y = points[v];
    }}
}}
"""


def _output_function(tile: int, inner: int, along: str) -> str:
    return f"""\
/* The {tile} x {tile} outputs of {inner} x {inner} products, which lie `plane` elements apart. */
static inline void winograd_output_{tile}_{inner}(const float *m, long plane, float *o)
{{
    float t[{tile * inner}];
    for (long v = 0; v < {inner}; v++)
        {along}(m + v * plane, {inner} * plane, t + v * {tile});
    for (long r = 0; r < {tile}; r++)
        {along}(t + r, {tile}, o + r * {tile});
}}
"""

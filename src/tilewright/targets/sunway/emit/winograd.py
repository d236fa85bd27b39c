"""Tile code of Winograd's transforms, by the functions of slave/winograd.h.

A tile of inputs is copied out of its box, 0 where the box ends (padding is not stored), and its
points are written one plane apart; products are read so, and what of a tile lies within the result
goes through the rest of the kernel's chain, element by element.
"""

from __future__ import annotations

from tilewright.codegen.c.source import plus
from tilewright.codegen.c.winograd import INPUT, OUTPUT
from tilewright.codegen.nest.value import Value, least
from tilewright.system.template import filled
from tilewright.targets.sunway.emit.layer import TEMPLATES
from tilewright.targets.sunway.emit.rows import Rows, pointer_at

IMAGE_ROWS, IMAGE_COLUMNS = 2, 3
"""Axes of an image."""


def winograd_input(rows: Rows) -> list[str]:
    """The body of the function that transforms a tile's inputs."""
    tile, inner = _sizes(rows)
    top, left, _, _ = rows.anchor.parameters.get("pads", (0, 0, 0, 0))
    x, y, line = rows.operand(rows.anchor, 0), rows.result, rows.line
    with rows.loops(("c", "n", "th", "tw")) as at:
        at["p"] = 0
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
    return rows.writer.lines


def winograd_output(rows: Rows) -> list[str]:
    """The body of the function that transforms a tile's products back."""
    tile, inner = _sizes(rows)
    m, y, line = rows.operand(rows.anchor, 0), rows.result, rows.line
    rows.row = ""  # Two dims move along each axis of the image: elements are taken one by one.
    with rows.loops(("n", "c", "th", "tw")) as at:
        at["p"] = 0
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
    return rows.writer.lines


def _sizes(rows: Rows) -> tuple[int, int]:
    """Extents of a tile of outputs, and of a transformed tile."""
    tile, taps = (int(rows.anchor.parameters[name]) for name in ("tile", "taps"))
    return tile, tile + taps - 1


def header_text() -> str:
    """Return the text of slave/winograd.h."""
    functions = [_functions(0, inner, text) for inner, text in sorted(INPUT.items())]
    functions += [_functions(*sizes, text) for sizes, text in sorted(OUTPUT.items())]
    return filled(TEMPLATES / "winograd.h.in", functions="\n".join(functions).rstrip("\n"))


def _functions(tile: int, inner: int, text: str) -> str:
    """The C of the transform of ``inner`` x ``inner`` products to a tile of outputs, or (``tile``
    is 0) of inputs, by that of one dimension."""
    return filled(
        TEMPLATES / "winograd_tile.in",
        tile=tile,
        inner=inner,
        points=inner * inner,
        rows=tile * inner,
        along=f"transform_output_{tile}_{inner}" if tile else f"transform_input_{inner}",
        text=text.replace("const vec ", "const float ").rstrip("\n"),
    )

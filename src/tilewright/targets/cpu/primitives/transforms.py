"""Winograd's transforms: of a block's inputs on the way in, of its products on the way out."""

from __future__ import annotations

from tilewright.codegen.c.source import Writer, literal, total
from tilewright.codegen.c.winograd import INPUT, OUTPUT
from tilewright.numerics.winograd import SCALES
from tilewright.targets.cpu.primitives import directly
from tilewright.targets.cpu.primitives.blocks import Block
from tilewright.targets.cpu.primitives.chain import Lanes
from tilewright.targets.cpu.primitives.code import NAME, KernelCode, function, parameters


def _one_dimension(block: Block, code: KernelCode, which: str) -> str:
    """The name of a function that transforms one dimension of a tile.

    Weights that are yet to be transformed leave the factors of G's rows to the inputs.
    """
    if which == "input":
        text = INPUT[block.inner]
        for number, scale in enumerate(SCALES[block.inner] if block.plain else ()):
            if scale != 1:
                text += f"    o[{number}] *= {literal(scale)};\n"
    else:
        text = OUTPUT[block.tile, block.inner]
    return code.function(
        f"transform_{which}",
        f"/* One dimension of the {which} transform: `step` vectors apart to side by side. */\n"
        f"INLINE void {NAME}(const vec *i, int step, vec *o)\n{{\n{text}}}\n",
    )


def input_text(block: Block, code: KernelCode) -> str:
    """Transform the inputs of all tiles of a block; positions outside the image are zero."""
    x, inner, lanes = block.x, block.inner, block.lanes
    inside = block.instance
    transform = _one_dimension(block, code, "input")
    row, column = (inside.step(x, dim, inner) for dim in ("u", "v"))
    channels = -(-block.channels // lanes)
    between = block.instance.block_step(x, "ci")
    if block.instance.step(x, "ci", min(lanes, block.channels)) not in (0, 1):
        raise inside.cannot("lanes of the image must lie side by side")
    rows, columns = block.tiles
    height, width = x.shape[2:]
    places, between_blocks = block.places()
    remark = f"{rows} x {columns} tiles of {inner} x {inner} inputs, transformed"
    with function(remark, "const float *x, float *s, long row, long column") as writer:
        writer.line("/* where each tile lies in its part, and from one block of channels on */")
        for name, values in (("place", places), ("step", between_blocks)):
            listed = ", ".join(map(str, values))
            writer.line(f"static const int {name}[{rows * columns}] = {{{listed}}};")
        # Channels outermost: tiles that follow one another share pixels and rows.
        writer.line(f"for (long c = 0; c < {channels}; c++)")
        writer.line(f"for (long y = 0; y < {rows}; y++)")
        with writer.block(f"for (long z = 0; z < {columns}; z++)"):
            writer.line(f"const long top = row + y * {block.tile};")
            writer.line(f"const long left = column + z * {block.tile};")
            _write_columns(
                writer,
                transform,
                inner,
                (height, width),
                total([(between, "c"), (row, "(top + i)"), (column, "(left + j)")]),
            )
            at = f"y * {columns} + z"
            writer.line(f"float *o = s + place[{at}] + c * step[{at}];")
            with writer.block(f"UNROLL for (int i = 0; i < {inner}; i++)"):
                writer.line(f"vec p[{inner}];")
                writer.line(f"{transform}(t + i, {inner}, p);")
                writer.line(f"UNROLL for (int j = 0; j < {inner}; j++)")
                writer.line(f"    store(o + (i * {inner} + j) * {block.input_plane}L, p[j]);")
    return str(writer)


def _write_columns(
    writer: Writer, transform: str, inner: int, image: tuple[int, int], at: str
) -> None:
    """Transform the columns of one tile of one block of channels, each into a row of ``t``.

    Positions outside the image are zero.
    """
    height, width = image
    writer.line(f"vec t[{inner * inner}];")
    inside = f"top >= 0 && top <= {height - inner} && left >= 0 && left <= {width - inner}"
    columns = f"for (int j = 0; j < {inner}; j++)"
    with writer.block(f"if ({inside})"), writer.block(f"UNROLL {columns}"):
        writer.line(f"vec d[{inner}];")
        writer.line(f"UNROLL for (int i = 0; i < {inner}; i++) d[i] = load(x + {at});")
        writer.line(f"{transform}(d, 1, t + j * {inner});")
    with writer.block("else"), writer.block(columns):
        writer.line(f"vec d[{inner}];")
        writer.line(f"const int within = left + j >= 0 && left + j < {width};")
        with writer.block(f"for (int i = 0; i < {inner}; i++)"):
            writer.line(f"const int in = within && top + i >= 0 && top + i < {height};")
            writer.line(f"d[i] = in ? load(x + {at}) : splat(0.0f);")
        writer.line(f"{transform}(d, 1, t + j * {inner});")


def output_text(block: Block, code: KernelCode) -> str:
    """Transform the products back, apply the rest of the chain, write what lies in the image."""
    instance, tile = block.instance, block.tile
    transform = _one_dimension(block, code, "output")
    rows, columns = block.tiles
    pointers = parameters(instance, ("long high", "long wide"), block.outside)
    listed = f"const float *s, {directly.parameters(block)}, {pointers}"
    with function(f"{rows} x {columns} tiles of {tile} x {tile} outputs", listed) as writer:
        writer.line(f"for (long z = 0; z < {rows}; z++)")
        with writer.block(f"for (long g = 0; g < {columns}; g++)"):
            names = (("rows", "high", "z"), ("columns", "wide", "g"))
            for (name, room, index), (_, extent) in zip(names, block.results, strict=True):
                left = f"{room} - {index} * {extent}"
                writer.line(f"const long {name} = {left} < {extent} ? {left} : {extent};")
            for number in range(block.vectors):
                _write_output(writer, block, code, transform, number)
    return str(writer)


def _write_output(
    writer: Writer, block: Block, code: KernelCode, transform: str, number: int
) -> None:
    """One vector of output channels of one tile."""
    instance, tile, inner, lanes = block.instance, block.tile, block.inner, block.lanes
    rows, columns = block.tiles
    count = min(lanes, instance.size("co") - number * lanes)
    (row, height), (column, width) = block.results
    moves = [("th", rows, "z"), ("tw", columns, "g"), (row, height, "i"), (column, width, "j")]
    channels = Lanes(instance, "co", str(number), count, moves)
    between = lanes * rows * columns
    at = total([(lanes * columns, "z"), (lanes, "g")], block.products + number * between)
    with writer.block():
        writer.line(f"const float *m = s + {at};")
        writer.line(f"vec d[{inner}], t[{inner * tile}], o[{tile * tile}];")
        with writer.block(f"UNROLL for (int j = 0; j < {inner}; j++)"):
            writer.line(
                f"UNROLL for (int i = 0; i < {inner}; i++) "
                f"d[i] = load(m + (i * {inner} + j) * {block.output_plane}L);"
            )
            writer.line(f"{transform}(d, 1, t + j * {tile});")
        writer.line(
            f"UNROLL for (int i = 0; i < {tile}; i++) {transform}(t + i, {tile}, o + i * {tile});"
        )
        directly.write_check(writer, block, code, number)
        added = ""
        if block.bias is not None:
            # It depends on the channel alone.
            writer.line(f"const vec bias = {channels.load(block.bias)};")
            added = " + bias"
        if instance.pool:
            _write_pool(writer, block, channels, added)
        results = f"p[i * {width} + j]" if instance.pool else f"o[i * {tile} + j]{added}"
        writer.line("for (long i = 0; i < rows; i++)")
        with writer.block("for (long j = 0; j < columns; j++)"):
            writer.line(f"vec t = {results};")
            rest = slice(instance.pool + 1, None)
            channels.finish(writer, "t", rest)


def _write_pool(writer: Writer, block: Block, channels: Lanes, added: str) -> None:
    """The steps up to a pool, and what it makes of the tile's windows, as the pool alone would."""
    instance, tile = block.instance, block.tile
    step = instance.steps[instance.pool]
    (_, height), (_, width) = block.results
    window = tile // height, tile // width
    mean = step.operation == "average_pool"
    writer.line(f"vec p[{height * width}];")
    writer.line(f"UNROLL for (int i = 0; i < {height}; i++)")
    with writer.block(f"UNROLL for (int j = 0; j < {width}; j++)"):
        writer.line(f"vec a = splat({'0.0f' if mean else '-INFINITY'});")
        writer.line(f"UNROLL for (int k = 0; k < {window[0]}; k++)")
        with writer.block(f"UNROLL for (int l = 0; l < {window[1]}; l++)"):
            index = f"(i * {window[0]} + k) * {tile} + j * {window[1]} + l"
            writer.line(f"vec t = o[{index}]{added};")
            name = channels.chain(writer, "t", slice(1, instance.pool))
            writer.line(f"a += {name};" if mean else f"a = larger({name}, a);")
        divided = f" / {literal(float(window[0] * window[1]))}" if mean else ""
        writer.line(f"p[i * {width} + j] = a{divided};")

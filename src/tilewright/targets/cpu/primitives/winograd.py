"""Convolution by Winograd's method: transform a block of tiles, multiply, transform back.

Scratch holds the transformed inputs, ``[plane][part][block of channels][tile of the part][lane]``,
and behind them the products, ``[plane][vector of output channels][tile][lane]``. A part is what one
register tile of the products covers; it reads its inputs from end to end. Planes are one vector
further apart than they are long: at a power of two all would fall into one set of the cache.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from tilewright.planning.cached_blocks import register_tiles
from tilewright.planning.domain import Affine
from tilewright.targets.cpu.address import Address
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.primitives.chain import PositionOf, store_at, vector_at, write_chain
from tilewright.targets.cpu.primitives.code import NAME, KernelCode, call
from tilewright.targets.cpu.source import Writer, plus, total

# One dimension of B^T and A^T, with what rows share computed once.
_ONE_DIMENSION = {
    (4, "input"): """\
    const vec low = i[4 * step] - 4.0f * i[2 * step], odd = i[3 * step] - 4.0f * i[1 * step];
    const vec high = i[4 * step] - i[2 * step], twice = 2.0f * (i[3 * step] - i[1 * step]);
    o[0] = 4.0f * i[0] - 5.0f * i[2 * step] + i[4 * step];
    o[1] = low + odd;
    o[2] = low - odd;
    o[3] = high + twice;
    o[4] = high - twice;
    o[5] = 4.0f * i[1 * step] - 5.0f * i[3 * step] + i[5 * step];
""",
    (4, "output"): """\
    const vec s = i[1 * step] + i[2 * step], d = i[1 * step] - i[2 * step];
    const vec t = i[3 * step] + i[4 * step], e = i[3 * step] - i[4 * step];
    o[0] = i[0] + s + t;
    o[1] = d + 2.0f * e;
    o[2] = s + 4.0f * t;
    o[3] = d + 8.0f * e + i[5 * step];
""",
    (2, "input"): """\
    o[0] = i[0] - i[2 * step];
    o[1] = i[1 * step] + i[2 * step];
    o[2] = i[2 * step] - i[1 * step];
    o[3] = i[1 * step] - i[3 * step];
""",
    (2, "output"): """\
    o[0] = i[0] + i[1 * step] + i[2 * step];
    o[1] = i[1 * step] - i[2 * step] - i[3 * step];
""",
}


def emit(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the calls: inputs at the first block of output channels, products, outputs."""
    block = _Block.of(instance)
    x, w, s = block.x, block.w, block.scratch
    place = {"row": block.first(x, 2), "column": block.first(x, 3)}
    with writer.block():
        text = _input_text(block, code)
        image = plus(x.pointer, block.origin(x).offset(instance.dims))
        line = call(
            code.function("winograd_input", text), [image, s.pointer, place["row"], place["column"]]
        )
        starts = instance.dims["co"].starts
        if 0 in starts:
            if len(starts) > 1:
                writer.line(f"if ({instance.dims['co'].start} == 0)")
                line = "    " + line
            writer.line(line)
        products = code.function("winograd_products", _products_text(block, code))
        writer.line(call(products, [plus(w.pointer, w.offset(instance.dims)), s.pointer]))
        output = code.function("winograd_output", _output_text(block, code))
        arguments = [
            plus(address.pointer, address.offset(instance.dims)) for address in block.outside
        ]
        room = [
            f"{extent} - ({instance.output.index(axis, instance.dims, {})})"
            for axis, extent in ((2, block.rows), (3, block.columns))
        ]
        writer.line(call(output, [s.pointer, *arguments, *room]))


@dataclass(frozen=True)
class _Block:
    """One instance: its operands, and sizes in tiles and vectors."""

    instance: Instance
    x: Address
    w: Address
    scratch: Address
    bias: Address | None

    @classmethod
    def of(cls, instance: Instance) -> _Block:
        """Check that the operands are tensors and the sizes whole."""
        operands = instance.anchor.inputs
        found = [operand for operand in operands if isinstance(operand, Address)]
        if len(found) != len(operands) or len(found) < 3:
            raise instance.cannot("the anchor's operands must be tensors")
        if instance.split or instance.size("n") != 1:
            raise instance.cannot("a block is of one image and all its input channels")
        x, w, scratch = found[:3]
        return cls(instance, x, w, scratch, found[3] if len(found) > 3 else None)

    @property
    def tile(self) -> int:
        """Outputs of a tile along one axis."""
        return self.instance.extents["r"]

    @property
    def inner(self) -> int:
        """Inputs of a tile along one axis."""
        return self.instance.extents["u"]

    @property
    def planes(self) -> int:
        """Positions of a transformed tile."""
        return self.inner**2

    @property
    def tiles(self) -> tuple[int, int]:
        """Rows of tiles, and tiles in a row."""
        return self.instance.size("th"), self.instance.size("tw")

    @property
    def lanes(self) -> int:
        """Lanes of a vector."""
        return self.instance.lanes

    @property
    def channels(self) -> int:
        """Input channels."""
        return self.instance.size("ci")

    @property
    def vectors(self) -> int:
        """Vectors of output channels."""
        return -(-self.instance.size("co") // self.lanes)

    @property
    def input_plane(self) -> int:
        """Elements from one plane of transformed inputs to the next."""
        return (prod(self.tiles) * -(-self.channels // self.lanes) + 1) * self.lanes

    @property
    def output_plane(self) -> int:
        """Elements from one plane of products to the next."""
        return (prod(self.tiles) * self.vectors + 1) * self.lanes

    @property
    def parts(self) -> list[int]:
        """Tiles of each register tile of the products."""
        return register_tiles(prod(self.tiles), self.instance.options["points"])

    @property
    def products(self) -> int:
        """Where in scratch the products begin."""
        return self.planes * self.input_plane

    @property
    def rows(self) -> int:
        """Of the output image."""
        return self.instance.output.shape[2]

    @property
    def columns(self) -> int:
        """Of the output image."""
        return self.instance.output.shape[3]

    @property
    def outside(self) -> list[Address]:
        """Tensors that the epilogue reads or writes, each pointer once, the output last."""
        used = (self.x.pointer, self.w.pointer, self.scratch.pointer)
        later = {
            operand.pointer
            for step in self.instance.steps[1:]
            for operand in step.inputs
            if isinstance(operand, Address)
        }
        return [a for a in self.instance.addresses if a.pointer not in used or a.pointer in later]

    def origin(self, image: Address) -> Address:
        """The image's address without the place of the tile in it."""
        n, c, _, _ = image.window
        return replace(image, window=(n, c, Affine(), Affine()))

    def first(self, image: Address, axis: int) -> str:
        """C expression of the image's index at the block's first position; may be negative."""
        return image.index(axis, self.instance.dims, {})

    def step(self, operand: Address, dim: str, count: int) -> int:
        """A constant stride."""
        found = operand.stride(dim, count, self.instance.dims)
        if found is None:
            raise self.instance.cannot(f"operand {operand.pointer} has no stride along {dim}")
        return found

    def block_step(self, operand: Address, dim: str) -> int:
        """A constant stride between blocks of lanes."""
        size = self.instance.size(dim)
        found = operand.block_stride(dim, self.lanes, size, self.instance.dims)
        if found is None:
            raise self.instance.cannot(f"operand {operand.pointer} does not lie in blocks")
        return found


def _one_dimension(block: _Block, code: KernelCode, which: str) -> str:
    text = (
        f"/* One dimension of the {which} transform: `step` vectors apart to side by side. */\n"
        f"INLINE void {NAME}(const vec *i, int step, vec *o)\n{{\n"
        f"{_ONE_DIMENSION[block.tile, which]}}}\n"
    )
    return code.function(f"transform_{which}", text)


def _input_text(block: _Block, code: KernelCode) -> str:
    """Transform the inputs of all tiles of a block; positions outside the image are zero."""
    x, inner, lanes = block.x, block.inner, block.lanes
    inside = block.instance
    transform = _one_dimension(block, code, "input")
    steps = {name: block.step(x, dim, inner) for name, dim in (("row", "u"), ("column", "v"))}
    channels = -(-block.channels // lanes)
    between = block.block_step(x, "ci")
    if block.step(x, "ci", min(lanes, block.channels)) not in (0, 1):
        raise inside.cannot("lanes of the image must lie side by side")
    rows, columns = block.tiles
    height, width = x.shape[2:]
    writer = Writer()
    writer.line(f"/* {rows} x {columns} tiles of {inner} x {inner} inputs, transformed */")
    writer.line(f"static void {NAME}(const float *x, float *s, long row, long column)")
    places, between_blocks = _places(block)
    with writer.block():
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
            _write_load(
                writer,
                inner,
                (height, width),
                total(
                    [(between, "c"), (steps["row"], "(top + i)"), (steps["column"], "(left + j)")]
                ),
            )
            # Columns first; each result's row is a column of the tile.
            writer.line(
                f"UNROLL for (int j = 0; j < {inner}; j++) "
                f"{transform}(d + j, {inner}, t + j * {inner});"
            )
            at = f"y * {columns} + z"
            writer.line(f"float *o = s + place[{at}] + c * step[{at}];")
            with writer.block(f"UNROLL for (int i = 0; i < {inner}; i++)"):
                writer.line(f"vec p[{inner}];")
                writer.line(f"{transform}(t + i, {inner}, p);")
                writer.line(f"UNROLL for (int j = 0; j < {inner}; j++)")
                writer.line(f"    store(o + (i * {inner} + j) * {block.input_plane}L, p[j]);")
    return str(writer)


def _write_load(writer: Writer, inner: int, image: tuple[int, int], at: str) -> None:
    """Load one tile of one block of channels; positions outside the image are zero."""
    height, width = image
    writer.line(f"vec d[{inner * inner}], t[{inner * inner}];")
    inside = f"top >= 0 && top <= {height - inner} && left >= 0 && left <= {width - inner}"
    with writer.block(f"if ({inside})"):
        writer.line(f"UNROLL for (int i = 0; i < {inner}; i++)")
        writer.line(f"UNROLL for (int j = 0; j < {inner}; j++)")
        writer.line(f"    d[i * {inner} + j] = load(x + {at});")
    with writer.block("else"):
        writer.line(f"for (int i = 0; i < {inner}; i++)")
        with writer.block(f"for (int j = 0; j < {inner}; j++)"):
            rows = f"top + i >= 0 && top + i < {height}"
            writer.line(f"const int in = {rows} && left + j >= 0 && left + j < {width};")
            writer.line(f"d[i * {inner} + j] = in ? load(x + {at}) : splat(0.0f);")


def _places(block: _Block) -> tuple[list[int], list[int]]:
    """For every tile its place in a plane of inputs, and the step between blocks of channels."""
    places: list[int] = []
    steps: list[int] = []
    start = 0
    blocks = -(-block.channels // block.lanes)
    for size in block.parts:
        places += [start * blocks * block.lanes + j * block.lanes for j in range(size)]
        steps += [size * block.lanes] * size
        start += size
    return places, steps


def _products_text(block: _Block, code: KernelCode) -> str:
    """Multiply every plane of the block with the weights of that plane."""
    count = prod(block.tiles)
    parts, depth = block.parts, -(-block.channels // block.lanes)
    plane = block.step(block.w, "v", block.inner)
    if block.step(block.w, "u", block.inner) != plane * block.inner:
        raise block.instance.cannot("the weights' planes must follow one another")
    writer = Writer()
    writer.line(f"/* {block.planes} products of {count} tiles x {block.channels} channels */")
    writer.line(f"static void {NAME}(const float *w, float *s)")
    with writer.block(), writer.block(f"for (long p = 0; p < {block.planes}; p++)"):
        writer.line(f"const float *u = w + p * {plane};")
        writer.line(f"const float *v = s + p * {block.input_plane};")
        writer.line(f"float *m = s + {block.products} + p * {block.output_plane};")
        start = 0
        for size in sorted(set(parts), reverse=True):
            times = parts.count(size)
            name = code.function("winograd_part", _part_text(block, size))
            v, m = (plus(p, str(start * block.lanes * n)) for p, n in (("v", depth), ("m", 1)))
            if times > 1:
                writer.line(f"for (long j = 0; j < {times}; j++)")
                step = size * block.lanes
                writer.line(f"    {name}(u, {v} + j * {step * depth}, {m} + j * {step});")
            else:
                writer.line(f"{name}(u, {v}, {m});")
            start += size * times
    return str(writer)


def _part_text(block: _Block, size: int) -> str:
    """One register tile: ``size`` tiles of the image x all vectors of output channels."""
    lanes, vectors, count = block.lanes, block.vectors, prod(block.tiles)
    blocks, rest = divmod(block.channels, lanes)
    channel = block.step(block.w, "ci", block.channels)
    between = block.block_step(block.w, "co")
    writer = Writer()
    writer.line(f"/* {size} tiles x {vectors} vectors of output channels */")
    writer.line(f"static void {NAME}(const float *u, const float *v, float *m)")
    with writer.block():
        writer.line(f"vec a[{size}][{vectors}];")
        loop = f"UNROLL for (int j = 0; j < {size}; j++)"
        for number in range(vectors):
            writer.line(f"{loop} a[j][{number}] = splat(0.0f);")

        def step() -> None:
            for number in range(vectors):
                at = total([(channel, "i")], number * between)
                writer.line(f"const vec w{number} = load(u + {at});")
            with writer.block(loop):
                writer.line(f"const float e = v[j * {lanes} + i];")
                for number in range(vectors):
                    writer.line(f"a[j][{number}] += e * w{number};")

        if blocks:
            with writer.block(f"for (long c = 0; c < {blocks}; c++)"):
                with writer.block(f"for (long i = 0; i < {lanes}; i++)"):
                    step()
                writer.line(f"u += {channel * lanes};")
                writer.line(f"v += {lanes * size};")
        if rest:
            with writer.block(f"for (long i = 0; i < {rest}; i++)"):
                step()
        for number in range(vectors):
            writer.line(
                f"{loop} store(m + {total([(lanes, 'j')], number * count * lanes)}, "
                f"a[j][{number}]);"
            )
    return str(writer)


def _output_text(block: _Block, code: KernelCode) -> str:
    """Transform the products back, apply the rest of the chain, write what lies in the image."""
    instance, tile, lanes = block.instance, block.tile, block.lanes
    transform = _one_dimension(block, code, "output")
    rows, columns = block.tiles
    pointers = [
        f"{'' if a == instance.output else 'const '}{a.c_type} *{a.pointer}" for a in block.outside
    ]
    listed = ", ".join(["const float *s", *pointers, "long high", "long wide"])
    writer = Writer()
    writer.line(f"/* {rows} x {columns} tiles of {tile} x {tile} outputs */")
    writer.line(f"static void {NAME}({listed})")
    with writer.block():
        writer.line(f"for (long z = 0; z < {rows}; z++)")
        with writer.block(f"for (long g = 0; g < {columns}; g++)"):
            for name, room, index in (("rows", "high", "z"), ("columns", "wide", "g")):
                left = f"{room} - {index} * {tile}"
                writer.line(f"const long {name} = {left} < {tile} ? {left} : {tile};")
            for number in range(block.vectors):
                _write_output(writer, block, transform, number, lanes * rows * columns)
    return str(writer)


def _write_output(writer: Writer, block: _Block, transform: str, number: int, between: int) -> None:
    """One vector of output channels of one tile."""
    instance, tile, inner, lanes = block.instance, block.tile, block.inner, block.lanes
    rows, columns = block.tiles
    count = min(lanes, instance.size("co") - number * lanes)
    moves = [("th", rows, "z"), ("tw", columns, "g"), ("r", tile, "i"), ("s", tile, "j")]
    position = PositionOf(instance, "co", str(number), moves)
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
        if block.bias is not None:
            # It depends on the channel alone.
            value = vector_at(instance, block.bias, "co", position(block.bias), count)
            writer.line(f"const vec bias = {value};")
        writer.line("for (long i = 0; i < rows; i++)")
        with writer.block("for (long j = 0; j < columns; j++)"):
            added = " + bias" if block.bias is not None else ""
            writer.line(f"vec t = o[i * {tile} + j]{added};")
            name = write_chain(writer, instance, "t", "co", position, count)
            writer.line(store_at(instance, name, "co", position(instance.output), count))

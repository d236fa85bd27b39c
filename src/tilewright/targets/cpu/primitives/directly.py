"""A tile of a convolution once more, window by window, where Winograd's method is not finite.

The method's transforms mix all inputs of a tile: one that is infinite, not a number, or near the
greatest float spoils outputs whose windows do not hold it. Of those tiles the outputs are computed
directly, and the others are as they were.

The four outputs at a tile's corners tell. The first row of A^T has a factor for every point but
infinity, and the last one for every point but 0, so that each product is a term of a corner at
least, which it makes infinite or no number if it is one itself.
"""

from __future__ import annotations

from tilewright.codegen.c.source import Writer, literal, plus, total
from tilewright.numerics.winograd import plain_weights
from tilewright.targets.cpu.primitives.blocks import Block
from tilewright.targets.cpu.primitives.chain import weights_at
from tilewright.targets.cpu.primitives.code import KernelCode, function


def parameters(block: Block) -> str:
    """Return the C parameters of a caller: the image, the weights, the first tile's position."""
    return f"const float *image, const {block.w.c_type} *weights, long top, long left"


def write_check(writer: Writer, block: Block, code: KernelCode, number: int) -> None:
    """Compute the outputs ``o`` of tile (z, g), vector ``number``, again unless all are finite."""
    tile, count = block.tile, block.tile**2
    name = code.function("winograd_directly", _text(block))
    between = block.instance.block_step(block.w, "co")
    corners = f"(o[0] + o[{tile - 1}]) + (o[{count - tile}] + o[{count - 1}])"
    writer.line(f"const vec corners = {corners};")
    with writer.block("if (__builtin_expect(any_odd(corners), 0))"):
        writer.line(f"vec again[{count}];")
        place = plus("weights", str(number * between))
        writer.line(f"{name}(again, image, {place}, top + z * {tile}, left + g * {tile});")
        writer.line(f"UNROLL for (int k = 0; k < {count}; k++) o[k] = again[k];")


def _text(block: Block) -> str:
    """The outputs of one tile for one vector of output channels."""
    x, tile, taps, lanes = block.x, block.tile, block.taps, block.lanes
    row, column = (block.instance.step(x, dim, block.inner) for dim in ("u", "v"))
    height, width = x.shape[2:]
    channel = block.instance.step(x, "ci", min(lanes, block.channels))
    at = [(block.instance.block_step(x, "ci"), f"c / {lanes}"), (channel, f"c % {lanes}")]
    remark = f"{tile} x {tile} outputs of {taps} x {taps} windows, directly"
    listed = f"vec *o, const float *x, const {block.w.c_type} *w, long top, long left"
    with function(remark, listed, "static SELDOM void") as writer:
        writer.line(f"for (int k = 0; k < {tile * tile}; k++) o[k] = splat(0.0f);")
        with writer.block(f"for (long c = 0; c < {block.channels}; c++)"):
            writer.line(f"vec g[{taps * taps}];")
            (_write_taps if block.plain else _write_recovered)(writer, block)
            writer.line(f"const float *p = x + {total(at)};")
            with writer.block(f"for (long k = 0; k < {tile * tile}; k++)"):
                writer.line(f"const long y = top + k / {tile}, z = left + k % {tile};")
                with writer.block(f"for (long t = 0; t < {taps * taps}; t++)"):
                    writer.line(f"const long i = y + t / {taps}, j = z + t % {taps};")
                    writer.line(f"if (i >= 0 && i < {height} && j >= 0 && j < {width})")
                    writer.line(f"    o[k] += p[{total([(row, 'i'), (column, 'j')])}] * g[t];")
    return str(writer)


def _write_taps(writer: Writer, block: Block) -> None:
    """The weights of input channel ``c``, as they were."""
    taps, lanes = block.taps, block.lanes
    steps = [(block.instance.step(block.w, "ci", block.channels), "c"), (lanes, "t")]
    value = weights_at(block.instance, block.w, total(steps), lanes, "w")
    writer.line(f"for (long t = 0; t < {taps * taps}; t++) g[t] = {value};")


def _write_recovered(writer: Writer, block: Block) -> None:
    """The weights of input channel ``c``, from the planes that they became."""
    taps, inner = block.taps, block.inner
    matrix = plain_weights(block.tile, taps)
    rows = ", ".join("{" + ", ".join(literal(float(v)) for v in line) + "}" for line in matrix)
    writer.line(f"static const float l[{taps}][{inner}] = {{{rows}}};")
    writer.line(f"vec h[{taps * inner}];")
    plane = block.instance.step(block.w, "v", inner)
    channel = block.instance.step(block.w, "ci", block.channels)
    at = total([(channel, "c"), (plane * inner, "a"), (plane, "b")])
    with writer.block(f"for (int r = 0; r < {taps}; r++)"):
        with writer.block(f"for (int b = 0; b < {inner}; b++)"):
            writer.line(f"h[r * {inner} + b] = splat(0.0f);")
            writer.line(f"for (int a = 0; a < {inner}; a++)")
            writer.line(f"    if (l[r][a] != 0) h[r * {inner} + b] += l[r][a] * load(w + {at});")
        with writer.block(f"for (int s = 0; s < {taps}; s++)"):
            writer.line(f"g[r * {taps} + s] = splat(0.0f);")
            writer.line(f"for (int b = 0; b < {inner}; b++)")
            sums = f"g[r * {taps} + s] += l[s][b] * h[r * {inner} + b]"
            writer.line(f"    if (l[s][b] != 0) {sums};")

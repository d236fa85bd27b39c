"""Products of a block of tiles with weights that are transformed on their way, a row at a time.

The planes of one row, for a few input channels, are a panel that stays in a near cache. There are
two: while register tiles multiply with one of them, they transform the weights of the other, the
next row's, a few between any two blocks of input channels (double buffering). Writing costs the
second cache more than products do; so spread, it hides behind them. Sums of the channels before lie
with the products in scratch, and each register tile goes on from there.

For each input channel the window's taps are read, the row's polynomial is evaluated in every column
and those of its planes across the columns (numerics/winograd.py). The factors of G's rows are left
to the inputs, so all that is done to weights is adding and multiplying by powers of the points.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, prod

from tilewright.codegen.c.source import Writer, literal, plus, total
from tilewright.numerics.element_types import size_of
from tilewright.numerics.winograd import POINTS
from tilewright.targets.cpu.planning.blocks import panel_channels, runs_of
from tilewright.targets.cpu.primitives.ahead import Runs
from tilewright.targets.cpu.primitives.block_products import register_tile, write_steps
from tilewright.targets.cpu.primitives.blocks import Block
from tilewright.targets.cpu.primitives.chain import weights_at
from tilewright.targets.cpu.primitives.code import KernelCode, function


def transformed_products_text(block: Block, code: KernelCode) -> str:
    """Multiply every plane of the block with the weights of that plane."""
    panel = _Panel(block)
    taken, inner, lanes = panel.channels, block.inner, block.lanes
    kind = block.w.c_type
    remark = f"{block.planes} products of {prod(block.tiles)} tiles x {block.channels} channels"
    with function(remark, f"const {kind} *w, float *s, const {kind} *next") as writer:
        writer.line(f"float *u = s + {block.products + block.planes * block.output_plane};")
        # Nothing stands beside the first row's transform.
        transform = code.function("winograd_weights", _weights_text(block, 0))
        writer.line(f"for (long v = 0; v < {block.vectors}; v++)")
        writer.line(f"for (long i = 0; i < {taken}; i++)")
        source = total([(panel.vector, "v"), (panel.channel, "i")])
        place = total([(taken * lanes, "v"), (lanes, "i")])
        writer.line(f"    {transform}(w + {source}, u + {place});")
        with writer.block(f"for (long c = 0; c < {block.channels}; c += {taken})"):
            writer.line(f"const {kind} *g = w + {total([(panel.channel, 'c')])};")
            writer.line(f"const {kind} *then = g + {taken * panel.channel};")
            writer.line(f"const {kind} *ahead = c + {taken} < {block.channels} ? then : next;")
            rest = f"{block.channels} - c"
            writer.line(f"const long depth = {rest} < {taken} ? {rest} : {taken};")
            rest = f"{block.channels - taken} - c"
            writer.line(f"const long later = {rest} < {taken} ? {rest} : {taken};")
            for row in range(inner):
                last = row == inner - 1
                following = code.function(
                    "winograd_weights", _weights_text(block, 0 if last else row + 1)
                )
                with writer.block(f"for (long p = 0; p < {inner}; p++)"):
                    _write_row(writer, panel, code, row, following)
    return str(writer)


class _Panel:
    """The weights for one block of input channels, and their division among register tiles."""

    def __init__(self, block: Block) -> None:
        self.block = block
        taps, lanes = block.taps, block.lanes
        self.channel = taps * taps * lanes
        sizes = {"ci": block.channels, "kh": taps}
        steps = [block.instance.step(block.w, dim, size) for dim, size in sizes.items()]
        if (block.channels > 1 and steps[0] != self.channel) or steps[1] != taps * lanes:
            raise block.instance.cannot("the weights' taps must lie side by side, then channels")
        if block.vectors > block.inner or block.inner % 2:
            raise block.instance.cannot("rows of planes must be even, and as many as vectors")
        self.channels = panel_channels(block.channels, prod(block.tiles))
        self.vector = block.instance.block_step(block.w, "co") or block.channels * self.channel
        calls = block.inner * len(block.parts)
        # Each call transforms this many channels of one vector; all calls together, all weights.
        self.share = next(
            size
            for size in range(1, self.channels + 1)
            if not self.channels % size and block.vectors * (self.channels // size) <= calls
        )
        self.plane = (self.channels * block.vectors + 1) * lanes
        self.runs = Runs(
            self.channels,
            self.channel,
            block.vectors,
            self.vector,
            block.inner * calls,
            size_of(block.w.element),
        )


def _write_row(writer: Writer, panel: _Panel, code: KernelCode, row: int, transform: str) -> None:
    """The register tiles of plane ``p`` of a row; they transform the next row's weights."""
    block, lanes, inner = panel.block, panel.block.lanes, panel.block.inner
    count, depth = len(block.parts), ceil(block.channels / lanes)
    last = row == inner - 1
    now, other = row % 2 * inner * panel.plane, (row + 1) % 2 * inner * panel.plane
    per = panel.channels // panel.share
    for size, times, start, number in runs_of(block.parts):
        name = code.function("winograd_part", _part_text(panel, size, transform))
        call = total([(count, "p"), (1, "j")] if times > 1 else [(count, "p")], number)
        with writer.block(f"for (long j = 0; j < {times}; j++)" if times > 1 else ""):
            writer.line(f"const long call = {call};")
            writer.line(f"const long v = call / {per}, i = call % {per} * {panel.share};")
            inputs = [(block.input_plane, "p"), (size, "c")]
            products = [(block.output_plane, "p")]
            if times > 1:
                inputs.append((size * depth * lanes, "j"))
                products.append((size * lanes, "j"))
            first, then = row * inner, "then" if last else "g"
            place = panel.runs.place(f"(call + {first * count})" if row else "call")
            at = block.products + first * block.output_plane + start * lanes
            more = total([(panel.vector, "v"), (panel.channel, "i")])
            arguments = [
                f"u + {total([(panel.plane, 'p')], now)}",
                f"s + {total(inputs, first * block.input_plane + start * depth * lanes)}",
                f"s + {total(products, at)}",
                f"ahead + {place}",
                f"{then} + {more}",
                plus("u", total([(panel.channels * lanes, "v"), (lanes, "i")], other)),
                f"v < {block.vectors} ? {'later' if last else 'depth'} - i : 0",
                "depth",
                "c",
            ]
            writer.line(f"{name}({', '.join(arguments)});")


def _part_text(panel: _Panel, size: int, transform: str) -> str:
    """One register tile: ``size`` tiles of the image x all vectors of output channels."""
    block, share = panel.block, panel.share
    lanes, vectors, tiles = block.lanes, block.vectors, prod(block.tiles)
    kind = block.w.c_type
    each = ceil(share / max(1, panel.channels // lanes))
    advance = f"left--, g += {panel.channel}, o += {lanes}"
    remark = f"""\
{size} tiles x {vectors} vectors of output channels, and of the weights that
 * come next {share} input channels"""
    operands = f"const float *u, const float *v, float *m, const {kind} *ahead, const {kind} *g"
    numbers = "float *o, long left, long depth, long before"
    with function(remark, f"{operands}, {numbers}") as writer:
        places = [f"m + {total([(lanes, 'j')], n * tiles * lanes)}" for n in range(vectors)]
        starts = [f"before ? load({place}) : splat(0.0f)" for place in places]

        def beside() -> None:
            writer.line(f"for (int e = 0; e < {each} && left > 0; e++, {advance})")
            writer.line(f"    {transform}(g, o);")

        with register_tile(writer, size, starts, places):
            writer.line(f"left = left < {share} ? left : {share};")
            write_steps(
                writer,
                size,
                [number * panel.channels * lanes for number in range(vectors)],
                (f"depth / {lanes}", f"depth % {lanes}" if block.channels % lanes else "0"),
                lanes,
                ahead=panel.runs.share(),
                beside=beside,
            )
            writer.line(f"for (; left > 0; {advance})")
            writer.line(f"    {transform}(g, o);")
    return str(writer)


def _weights_text(block: Block, row: int) -> str:
    """One input channel's weights of all planes of a row, for a vector of output channels."""
    taps, lanes, points = block.taps, block.lanes, POINTS[block.inner]
    plane = (panel_channels(block.channels, prod(block.tiles)) * block.vectors + 1) * lanes
    remark = f"row {row} of the transformed weights of one input channel"
    with function(remark, f"const {block.w.c_type} *w, float *o", "INLINE void") as writer:
        rows = _needed(points[row], taps)
        for c in range(taps):
            names = {r: f"g{r}{c}" for r in rows}
            loads: list[str] = []
            for r, name in names.items():
                at = str((r * taps + c) * lanes)
                loads.append(f"{name} = {weights_at(block.instance, block.w, at, lanes, 'w')}")
            writer.line(f"const vec {', '.join(loads)};")
            value = evaluated(points[row], [names.get(r, "") for r in range(taps)])
            writer.line(f"const vec c{c} = {value};")
        for number, point in enumerate(points):
            value = evaluated(point, [f"c{c}" for c in range(taps)])
            writer.line(f"store({plus('o', str(number * plane))}, {value});")
    return str(writer)


def evaluated(point: Fraction | None, names: Sequence[str]) -> str:
    """C expression of a polynomial of the named coefficients at a point; None is infinity.

    Even and odd powers apart, so that a point and its negative share both sums.
    """
    if point is None:
        return names[-1]
    if not point:
        return names[0]
    size = abs(point)

    def some(first: int) -> str:
        terms = [
            f"{literal(float(size**k))} * {name}" if size**k != 1 else name
            for k, name in list(enumerate(names))[first::2]
        ]
        return f"({' + '.join(terms)})" if len(terms) > 1 else terms[0]

    return f"{some(0)} {'+' if point > 0 else '-'} {some(1)}"


def _needed(point: Fraction | None, count: int) -> tuple[int, ...]:
    """The coefficients that a value depends on."""
    if point is None:
        return (count - 1,)
    return tuple(range(count)) if point else (0,)

"""Products of a block of tiles with weights that are transformed on their way, in registers.

A register tile covers a few planes of one row of planes, for a part of the tiles and one vector of
output channels. For each input channel it reads the window's taps, evaluates the row's polynomial
in every column and those of its planes across the columns (numerics/winograd.py), and multiplies.
Transformed weights are up to four times as many bytes as the window; here they are never written.
The factors of G's rows are left to the inputs, so all that is done to weights is adding and
multiplying by small powers of the points.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

from tilewright.numerics.winograd import POINTS
from tilewright.planning.domain import ELEMENT_BYTES
from tilewright.targets.cpu.primitives.blocks import Block
from tilewright.targets.cpu.primitives.chain import weights_at
from tilewright.targets.cpu.primitives.code import NAME, KernelCode
from tilewright.targets.cpu.source import Writer, plus, total

CACHE_LINE = 64
"""Bytes that one instruction fetches ahead."""


def transformed_products_text(block: Block, code: KernelCode) -> str:
    """Multiply every plane of the block with the weights of that plane."""
    if block.vectors != 1:
        raise block.instance.cannot("weights are transformed for one vector of output channels")
    lanes, taps, inner = block.lanes, block.taps, block.inner
    channel = taps * taps * lanes
    steps = [block.step(block.w, "ci", block.channels), block.step(block.w, "kh", taps)]
    if (block.channels > 1 and steps[0] != channel) or steps[1] != taps * lanes:
        raise block.instance.cannot("the weights' taps must lie side by side, then channels")
    groups = plane_groups(inner, block.instance.options["planes"])
    parts, depth = block.parts, ceil(block.channels / lanes)
    # The weights of the next output channels are fetched by the first part of as many register
    # tiles as it takes, so many lines for each input channel.
    line = CACHE_LINE // ELEMENT_BYTES[block.w.element]
    lines = channel / line
    each = ceil(lines / (inner * len(groups)))
    writer = Writer()
    writer.line(
        f"/* {block.planes} products of {prod(block.tiles)} tiles x {block.channels} channels */"
    )
    writer.line(f"static void {NAME}(const {block.w.c_type} *w, float *s)")
    with writer.block():
        writer.line(f"float *m = s + {block.products};")
        writer.line(f"const {block.w.c_type} *next = w + {channel * block.channels};")
        for number, (row, planes) in enumerate((i, q) for i in range(inner) for q in groups):
            ahead = number * each * block.channels * line
            fetches = ahead < channel * block.channels
            first = row * inner
            start = 0
            for size in sorted(set(parts), reverse=True):
                times = parts.count(size)
                text = _part_text(block, size, row, planes, each)
                name = code.function("winograd_transformed_part", text)
                v = plus("s", str(first * block.input_plane + start * depth * lanes))
                m = plus("m", str(first * block.output_plane + start * lanes))
                step = size * lanes
                if times > 1:
                    writer.line(f"for (long j = 0; j < {times}; j++)")
                    v, m = f"{v} + j * {step * depth}", f"{m} + j * {step}"
                    fetch = f"j ? 0 : {line}"
                else:
                    fetch = str(line if not start else 0)
                fetch = fetch if fetches and not start else "0"
                where = plus("next", str(ahead if fetches else 0))
                writer.line(f"{'    ' if times > 1 else ''}{name}(w, {v}, {where}, {m}, {fetch});")
                start += size * times
    return str(writer)


def plane_groups(inner: int, count: int) -> list[tuple[int, ...]]:
    """The planes of a row in groups of ``count``; in pairs those of one point but for its sign."""
    order = [0, inner - 1, *range(1, inner - 1)] if count == 2 else list(range(inner))
    return [tuple(order[start : start + count]) for start in range(0, inner, count)]


def evaluated(point: int | None, names: Sequence[str]) -> str:
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
            f"{float(size**k)}f * {name}" if size**k > 1 else name
            for k, name in list(enumerate(names))[first::2]
        ]
        return f"({' + '.join(terms)})" if len(terms) > 1 else terms[0]

    return f"{some(0)} {'+' if point > 0 else '-'} {some(1)}"


def _needed(point: int | None, count: int) -> tuple[int, ...]:
    """The coefficients that a value depends on."""
    if point is None:
        return (count - 1,)
    return tuple(range(count)) if point else (0,)


def _part_text(block: Block, size: int, row: int, planes: Sequence[int], fetched: int) -> str:
    """One register tile: ``size`` tiles of the image x some planes of a row."""
    lanes, taps, points = block.lanes, block.taps, POINTS[block.inner]
    blocks, rest = divmod(block.channels, lanes)
    columns = sorted({c for plane in planes for c in _needed(points[plane], taps)})
    channel = taps * taps * lanes
    listed = ", ".join(map(str, planes))
    writer, instance = Writer(), block.instance
    writer.line(f"/* {size} tiles x planes {listed} of row {row}, one vector of output channels */")
    kinds = ((block.w.c_type, "w"), ("float", "v"), (block.w.c_type, "next"))
    listed = ", ".join(f"const {kind} *{name}" for kind, name in kinds)
    writer.line(f"static void {NAME}({listed}, float *m, long step)")
    with writer.block():
        writer.line(f"vec a[{size}][{len(planes)}];")
        loop = f"UNROLL for (int j = 0; j < {size}; j++)"
        for number in range(len(planes)):
            writer.line(f"{loop} a[j][{number}] = splat(0.0f);")

        def step() -> None:
            for c in columns:
                rows = _needed(points[row], taps)
                taken = {
                    r: weights_at(instance, block.w, str((r * taps + c) * lanes), lanes, "w")
                    for r in rows
                }
                if len(rows) == 1:
                    writer.line(f"const vec c{c} = {taken[rows[0]]};")
                    continue
                loads = ", ".join(f"g{c}{r} = {text}" for r, text in taken.items())
                writer.line(f"const vec {loads};")
                names = [f"g{c}{r}" for r in range(taps)]
                writer.line(f"const vec c{c} = {evaluated(points[row], names)};")
            for number, plane in enumerate(planes):
                text = evaluated(points[plane], [f"c{c}" for c in range(taps)])
                writer.line(f"const vec u{number} = {text};")
            for number in range(fetched):
                writer.line(f"fetch({plus('next', total([(number, 'step')]))});")
            with writer.block(loop):
                for number, plane in enumerate(planes):
                    at = total([(lanes, "j")], plane * block.input_plane)
                    writer.line(f"a[j][{number}] += v[{at} + i] * u{number};")
            writer.line(f"w += {channel};")
            writer.line(f"next += {total([(fetched, 'step')])};")

        if blocks:
            with writer.block(f"for (long c = 0; c < {blocks}; c++)"):
                with writer.block(f"for (long i = 0; i < {lanes}; i++)"):
                    step()
                writer.line(f"v += {lanes * size};")
        if rest:
            with writer.block(f"for (long i = 0; i < {rest}; i++)"):
                step()
        for number, plane in enumerate(planes):
            at = total([(lanes, "j")], plane * block.output_plane)
            writer.line(f"{loop} store(m + {at}, a[j][{number}]);")
    return str(writer)

"""The products of a block of tiles: every plane of inputs with the weights of that plane."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.primitives.blocks import Block
from tilewright.targets.cpu.primitives.code import NAME, KernelCode
from tilewright.targets.cpu.source import Writer, plus, total


def products_text(block: Block, code: KernelCode) -> str:
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


def _part_text(block: Block, size: int) -> str:
    """One register tile: ``size`` tiles of the image x all vectors of output channels."""
    lanes, vectors, count = block.lanes, block.vectors, prod(block.tiles)
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

        steps = [number * between for number in range(vectors)]
        write_steps(writer, size, steps, block.channels, lanes, channel)
        for number in range(vectors):
            writer.line(
                f"{loop} store(m + {total([(lanes, 'j')], number * count * lanes)}, "
                f"a[j][{number}]);"
            )
    return str(writer)


def write_steps(
    writer: Writer, size: int, places: Sequence[int], depth: int, lanes: int, channel: int = 0
) -> None:
    """Write the reduction of a register tile, of ``size`` points, that reads ``v`` and ``u``.

    ``v`` are the points' inputs, [block][point][lane]; ``u`` the weights, of which vectors of
    output channels lie at ``places``, ``channel`` elements (a vector) from one input to the next.
    """
    blocks, rest = divmod(depth, lanes)
    channel = channel or lanes

    def step() -> None:
        for number, place in enumerate(places):
            writer.line(f"const vec w{number} = load(u + {total([(channel, 'i')], place)});")
        with writer.block(f"UNROLL for (int j = 0; j < {size}; j++)"):
            writer.line(f"const float e = v[j * {lanes} + i];")
            for number in range(len(places)):
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


def write_first(instance: Instance, line: str, writer: Writer) -> None:
    """Write what is done once for all output channels of a block: with the first of them.

    Cores that share the loop over output channels have scratch of their own, and each its first.
    """
    extent = instance.dims["co"]
    if 0 not in extent.starts:
        return
    if len(extent.starts) > 1:
        writer.line(f"if ({extent.start} == {extent.first})")
        line = "    " + line
    writer.line(line)

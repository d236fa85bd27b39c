"""The products of a block of tiles: every plane of inputs with the weights of that plane."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from math import prod

from tilewright.codegen.c.source import Writer, plus, total
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.planning.blocks import runs_of
from tilewright.targets.cpu.primitives.ahead import Ahead, Runs
from tilewright.targets.cpu.primitives.blocks import Block
from tilewright.targets.cpu.primitives.code import KernelCode, function

FLOAT_BYTES = 4


def products_text(block: Block, code: KernelCode) -> str:
    """Multiply every plane of the block with the weights of that plane."""
    count = prod(block.tiles)
    parts, depth = block.parts, -(-block.channels // block.lanes)
    plane = block.instance.step(block.w, "v", block.inner)
    if block.instance.step(block.w, "u", block.inner) != plane * block.inner:
        raise block.instance.cannot("the weights' planes must follow one another")
    remark = f"{block.planes} products of {count} tiles x {block.channels} channels"
    with (
        function(remark, "const float *w, float *s, const float *next") as writer,
        writer.block(f"for (long p = 0; p < {block.planes}; p++)"),
    ):
        writer.line(f"const float *u = w + p * {plane};")
        writer.line(f"const float *v = s + p * {block.input_plane};")
        writer.line(f"float *m = s + {block.products} + p * {block.output_plane};")
        writer.line(f"const float *ahead = p < {block.planes - 1} ? u + {plane} : next;")
        between = block.instance.block_step(block.w, "co")
        runs = Runs(block.channels, block.lanes, block.vectors, between, len(parts), FLOAT_BYTES)
        # Weights from main memory would keep the first cache's few requests waiting; those that
        # one block after another reads come from the second, or from the level after it.
        share = runs.share(near=block.again)
        for size, times, start, number in runs_of(parts):
            name = code.function("winograd_part", _part_text(block, size, share))
            v, m = (plus(p, str(start * block.lanes * n)) for p, n in (("v", depth), ("m", 1)))
            if times > 1:
                writer.line(f"for (long j = 0; j < {times}; j++)")
                step = size * block.lanes
                call = f"({total([(1, 'j')], number)})"
                v, m = f"{v} + j * {step * depth}", f"{m} + j * {step}"
                writer.line(f"    {name}(u, {v}, {m}, ahead + {runs.place(call)});")
            else:
                writer.line(f"{name}(u, {v}, {m}, ahead + {runs.place(str(number))});")
    return str(writer)


def _part_text(block: Block, size: int, share: Ahead) -> str:
    """One register tile: ``size`` tiles of the image x all vectors of output channels."""
    channel = block.instance.step(block.w, "ci", block.channels)
    between = block.instance.block_step(block.w, "co")
    places = [number * between for number in range(block.vectors)]
    return part_text(size, places, block.channels, block.lanes, prod(block.tiles), channel, share)


def part_text(
    size: int,
    places: Sequence[int],
    depth: int,
    lanes: int,
    count: int,
    channel: int = 0,
    share: Ahead | None = None,
) -> str:
    """One register tile of ``write_steps``; its vectors of products lie ``count`` tiles apart."""
    vectors = len(places)
    remark = f"{size} tiles x {vectors} vectors of output channels"
    pointers = "const float *u, const float *v, float *m, const float *ahead"
    with function(remark, pointers) as writer:
        results = [f"m + {total([(lanes, 'j')], n * count * lanes)}" for n in range(vectors)]
        with register_tile(writer, size, ["splat(0.0f)"] * vectors, results):
            write_steps(writer, size, places, depth, lanes, channel, share)
    return str(writer)


@contextmanager
def register_tile(
    writer: Writer, points: int, starts: Sequence[str], places: Sequence[str]
) -> Generator[None]:
    """Write the sums ``a`` of ``points`` points ``j`` by vectors, around their reduction.

    ``starts`` are C of what each vector's sums begin with, ``places`` of where they are stored.
    """
    each = f"UNROLL for (int j = 0; j < {points}; j++)"
    writer.line(f"vec a[{points}][{len(places)}];")
    for number, start in enumerate(starts):
        writer.line(f"{each} a[j][{number}] = {start};")
    yield
    for number, place in enumerate(places):
        writer.line(f"{each} store({place}, a[j][{number}]);")


def write_products(writer: Writer, points: int, weights: Sequence[str], element: str) -> None:
    """Write a step of these sums: C of the vectors of weights, and of point ``j``'s element."""
    for number, value in enumerate(weights):
        writer.line(f"const vec w{number} = {value};")
    with writer.block(f"UNROLL for (int j = 0; j < {points}; j++)"):
        writer.line(f"const float e = {element};")
        for number in range(len(weights)):
            writer.line(f"a[j][{number}] += e * w{number};")


def write_steps(
    writer: Writer,
    size: int,
    places: Sequence[int],
    depth: int | tuple[str, str],
    lanes: int,
    channel: int = 0,
    ahead: Ahead | None = None,
    beside: Callable[[], None] | None = None,
) -> None:
    """Write the reduction of a register tile, of ``size`` points, that reads ``v`` and ``u``.

    ``v`` are the points' inputs, [block][point][lane]; ``u`` the weights, of which vectors of
    output channels lie at ``places``, ``channel`` elements (a vector) from one input to the next.
    ``depth`` is the number of inputs, or C expressions of how many blocks of them there are and
    how many more. ``ahead`` is what each step asks for of the weights that come next; ``beside``
    writes what else is done with each block.
    """
    whole = (str(depth // lanes), str(depth % lanes)) if isinstance(depth, int) else depth
    blocks, rest = whole
    channel = channel or lanes

    def step() -> None:
        if ahead is not None:
            ahead.write(writer)
        weights = [f"load(u + {total([(channel, 'i')], place)})" for place in places]
        write_products(writer, size, weights, f"v[j * {lanes} + i]")

    if blocks != "0":
        with writer.block(f"for (long c = 0; c < {blocks}; c++)"):
            if beside is not None:
                beside()
            with writer.block(f"for (long i = 0; i < {lanes}; i++)"):
                step()
            writer.line(f"u += {channel * lanes};")
            writer.line(f"v += {lanes * size};")
    if rest != "0":
        with writer.block(f"for (long i = 0; i < {rest}; i++)"):
            step()


def write_first(instance: Instance, line: str, writer: Writer) -> None:
    """Write what is done once for all output channels of a block: with the first of them."""
    condition = first_condition(instance)
    if condition is None:
        return
    if condition:
        writer.line(f"if ({condition})")
        line = "    " + line
    writer.line(line)


def first_condition(instance: Instance) -> str | None:
    """C condition of the first output channels of a block; "" if there are no others.

    None if these are never the first. Cores that share the loop over output channels have scratch
    of their own, and each its first.
    """
    extent = instance.dims["co"]
    if 0 not in extent.starts:
        return None
    return f"{extent.start} == {extent.first}" if len(extent.starts) > 1 else ""

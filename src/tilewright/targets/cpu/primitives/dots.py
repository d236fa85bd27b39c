"""Matrix product on weights that lie as [co, ci]: each element is a dot product along both rows.

Lanes run along the reduction. A group of accumulators holds a few output channels of a few points;
when the reduction ends, a square of vectors is turned over and added up, which gives one vector of
output channels for each point.
"""

from __future__ import annotations

from tilewright.codegen.c.address import Address
from tilewright.codegen.c.source import Writer, plus, total
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.planning.dots import group_of
from tilewright.targets.cpu.primitives.chain import lane_suffix
from tilewright.targets.cpu.primitives.code import KernelCode
from tilewright.targets.cpu.primitives.product import emit_tile, tile_of
from tilewright.targets.cpu.primitives.steps import Tile
from tilewright.targets.cpu.primitives.windows import Columns


def emit(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the call of the tile's function."""
    tile = tile_of(instance)
    if tile.rows > 1 or tile.vectors > 1 or instance.split:
        raise instance.cannot("dot products are of one row of points and one vector of channels")
    emit_tile(tile, instance.tensor(0), instance.tensor(1), code, writer, reduce=write_dots)


def write_dots(
    writer: Writer, tile: Tile, x: Address, w: Address, columns: Columns, rows: str
) -> None:
    """Add the dot products of a tile to its accumulators."""
    del columns, rows  # Products of matrices have no windows.
    lanes, points = tile.instance.lanes, tile.columns
    channels = tile.instance.size("co")
    writer.line(f"vec s[{points}][{lanes}];")
    for unused in range(channels, lanes):
        writer.line(f"UNROLL for (int j = 0; j < {points}; j++) s[j][{unused}] = splat(0.0f);")
    size = group_of(points, lanes)
    for first in range(0, channels, size):
        _write_group(writer, tile, x, w, first, min(size, channels - first))
    with writer.block(f"UNROLL for (int j = 0; j < {points}; j++)"):
        writer.line("transpose_v(s[j]);")
        terms = [f"s[j][{lane}]" for lane in range(lanes)]
        while len(terms) > 1:
            terms = [f"({a} + {b})" for a, b in zip(terms[::2], terms[1::2], strict=True)]
        writer.line(f"a[j][0] += {terms[0]};")


def _write_group(
    writer: Writer, tile: Tile, x: Address, w: Address, first: int, count: int
) -> None:
    """The dot products of ``count`` output channels from ``first`` on, of all points."""
    instance = tile.instance
    lanes, points, depth = instance.lanes, tile.columns, instance.size("ci")
    down = tile.step(w, "co", instance.size("co"))
    across = tile.point_steps[1]
    full, rest = divmod(depth, lanes)

    def step(index: str, part: int) -> None:
        for j in range(points):
            place = plus("x", total([(tile.step(x, "ci", depth), index)], j * across))
            writer.line(f"const vec e{j} = {_loaded(tile, x, place, part)};")
        for number in range(count):
            place = plus("w", total([(1, index)], (first + number) * down))
            with writer.block():
                writer.line(f"vec u = {_loaded(tile, w, place, part)};")
                if points > 1:
                    writer.line("PIN(u);")
                for j in range(points):
                    writer.line(f"t[{j}][{number}] += e{j} * u;")

    with writer.block():
        writer.line(f"vec t[{points}][{count}];")
        each = f"UNROLL for (int j = 0; j < {points}; j++)"
        for number in range(count):
            writer.line(f"{each} t[j][{number}] = splat(0.0f);")
        if full:
            with writer.block(f"for (long i = 0; i < {full * lanes}; i += {lanes})"):
                step("i", 0)
        if rest:
            with writer.block():
                writer.line(f"const long i = {full * lanes};")
                step("i", rest)
        for number in range(count):
            writer.line(f"{each} s[j][{first + number}] = t[j][{number}];")


def _loaded(tile: Tile, operand: Address, place: str, part: int) -> str:
    """A vector along the reduction; ``part`` lanes of it, the others zero, where that is not 0."""
    instance = tile.instance
    suffix, lanes = lane_suffix(instance, operand), instance.lanes
    stride = tile.step(operand, "ci", instance.size("ci"))
    if stride not in (0, 1):
        value = f"gather{suffix}({place}, {stride}, {part or lanes})"
    else:
        value = f"load_part{suffix}({place}, {part})" if part else f"load{suffix}({place})"
    return f"__builtin_convertvector({value}, vec)" if operand.element == "int16" else value

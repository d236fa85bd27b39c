"""Convolutions and matrix products in pieces of bfloat16, on a processor's matrix tiles.

With the first of the output channels a block of points is split into scratch (planning/pieces.py);
its weights were split before, and lie as they are read. A register tile is two tiles of points by
two vectors of output channels: their sums stay in four of the processor's eight tiles while the
whole reduction passes through the others. Then results leave as any product's do. Where a register
tile is smaller, its sums are several, or one would wait for the one before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.numerics.pieces import groups
from tilewright.planning.domain import Affine
from tilewright.planning.pieces import POINTS, TILE_WORDS
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.primitives.block_products import write_first
from tilewright.targets.cpu.primitives.chain import PositionOf, store_at, vector_at, write_chain
from tilewright.targets.cpu.primitives.code import NAME, KernelCode, call
from tilewright.targets.cpu.primitives.piece_points import (
    LINE_WORDS,
    STEP_WORDS,
    Pieces,
    rows_text,
    windows_text,
)
from tilewright.targets.cpu.source import Writer, plus


def emit(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the calls: points with the first of the output channels, then the products."""
    made = Pieces.of(instance)
    x, s = made.x, made.scratch
    with writer.block():
        if made.windows:
            n, c, _, _ = x.window
            origin = replace(x, window=(n, c, Affine(), Affine()))
            arguments = [plus(x.pointer, origin.offset(instance.dims)), s.pointer]
            arguments += [x.index(axis, instance.dims, {}) for axis in (2, 3)]
            text = windows_text(made)
        else:
            arguments = [plus(x.pointer, x.offset(instance.dims)), s.pointer]
            text = rows_text(made)
        write_first(instance, call(code.function("piece_points", text), arguments), writer)
        name = code.function("piece_products", _products_text(made, code))
        pointers = [plus(a.pointer, a.offset(instance.dims)) for a in made.outside]
        writer.line(call(name, [s.pointer, *pointers]))


def _couples(count: int) -> Iterator[tuple[int, int, int]]:
    """(size, number of the first pair, how many) of runs of pairs, and of one left over."""
    if count > 1:
        yield 2, 0, count // 2
    if count % 2:
        yield 1, count // 2, 1


def _products_text(made: Pieces, code: KernelCode) -> str:
    """Multiply the block with every two vectors of output channels, and write its results."""
    geometry, names = made.geometry, ", ".join(a.pointer for a in made.results)
    writer = Writer()
    count = geometry.rows * geometry.columns
    writer.line(f"/* products of {count} points x {made.instance.size('co')} output channels */")
    writer.line(f"static void {NAME}(const float *s, {made.parameters(made.outside)})")
    with writer.block():
        writer.line("begin_tiles();")
        for columns, first, times in _couples(made.vectors):
            last = first + times == -(-made.vectors // 2)
            partial = last and made.instance.size("co") % POINTS
            runs = [(first, first + times, False)]
            if partial:
                runs = [(first, first + times - 1, False), (first + times - 1, first + times, True)]
            for start, end, cut in runs:
                if start == end:
                    continue
                with writer.block(f"for (long v = {start}; v < {end}; v++)"):
                    _write_points(writer, made, code, columns, names, cut=bool(cut))
        writer.line("end_tiles();")
    return str(writer)


def _write_points(
    writer: Writer, made: Pieces, code: KernelCode, columns: int, names: str, *, cut: bool
) -> None:
    """All tiles of points by the vectors of output channels of number ``v``."""
    weights = f"(const uint32_t *){made.w.pointer} + v * {made.couple_words}L"
    writer.line(f"const uint32_t *u = {weights};")
    for rows, first, times in _couples(made.geometry.tiles):
        name = code.function("piece_part", _part_text(made, rows, columns, cut=cut))
        with writer.block(f"for (long p = {first}; p < {first + times}; p++)"):
            points = f"(const uint32_t *)s + p * {2 * TILE_WORDS}"
            writer.line(f"{name}({points}, u, {names}, v, p);")


def _write_ahead(writer: Writer, made: Pieces) -> None:
    """Ask for weights that are needed next.

    Where there are few register tiles, the first of them waits for the weights, and asks for those
    of its next step. Of many each asks for its share of the weights of the next output channels.
    """
    share = made.share
    if not share:
        writer.line(f"for (int e = 0; p == 0 && e < {STEP_WORDS}; e += {LINE_WORDS})")
        writer.line(f"    fetch(u + {STEP_WORDS} + e);")
        return
    writer.line(f"for (int e = 0; e < {share}; e += {LINE_WORDS})")
    writer.line("    fetch(ahead + e);")
    writer.line(f"ahead += {share};")


def _multiply(writer: Writer, rows: int, columns: int) -> None:
    """Write the products of one step, the greatest last."""
    grid = [(r, c) for r in range(rows) for c in range(columns)]
    reads = ((("a", 0), ("u", 1)), (("u", 0),), (("a", 1),))
    for number, read in enumerate(reads):
        for letter, piece in read:
            count, base = (rows, 4) if letter == "a" else (columns, 6)
            further = f" + {'plane' if letter == 'a' else 2 * TILE_WORDS}" if piece else ""
            for k in range(count):
                writer.line(f"TILE_READ({base + k}, {letter}{k + 1 if k else ''}{further});")
        for index, (r, c) in enumerate(grid):
            tile = index + number % SUMS[len(grid)] * len(grid)
            writer.line(f"TILE_ADD({tile}, {4 + r}, {6 + c});")


AWAKE = 32
"""Products of blocks between two stores of a tile: after some 40, of three products each, a Xeon
(Sapphire Rapids) takes 0.2 us more to store one; any store before prevents it (measured)."""

SUMS = {4: 1, 2: 2, 1: 3}
"""Sums to a tile of results, by how many of these a register tile has."""


def _part_text(made: Pieces, rows: int, columns: int, *, cut: bool) -> str:
    """One register tile: the whole reduction, and its results."""
    geometry = made.geometry
    results, sums = rows * columns, SUMS[rows * columns]
    writer = Writer()
    size = f"{rows * POINTS} points x {columns} vectors of output channels"
    writer.line(f"/* {size}, from point {2 * POINTS} p */")
    writer.line(
        f"static void {NAME}(const uint32_t *i, const uint32_t *u, "
        f"{made.parameters(made.results)}, long v, long p)"
    )
    taps = geometry.taps
    with writer.block():
        writer.line("TILES;")
        if made.vectors == 1:
            writer.line("(void)v;")
        writer.line(f"const long plane = {geometry.plane};")
        if len(taps) > 1:
            listed = ", ".join(map(str, taps))
            writer.line(f"static const int taps[{len(taps)}] = {{{listed}}};")
        count = results * TILE_WORDS
        writer.line(f"float m[{count}] __attribute__((aligned(64)));")
        for number in range(results * sums):
            writer.line(f"TILE_CLEAR({number});")
        if made.share:
            place = f"{made.couple_words}L + p * {made.share * geometry.steps}L"
            writer.line(f"const uint32_t *ahead = u + {place};")
        awake = AWAKE // results
        if geometry.steps > awake:
            writer.line("long steps = 0;")
        head = f"for (long c = 0; c < {groups(geometry.channels)}; c++, i += {geometry.group})"
        with writer.block(head):
            over = f"for (int t = 0; t < {len(taps)}; t++)" if len(taps) > 1 else ""
            with writer.block(over):
                writer.line(f"const uint32_t *a = i{' + taps[t]' if over else ''};")
                if rows > 1:
                    writer.line(f"const uint32_t *a2 = a + {TILE_WORDS};")
                if columns > 1:
                    writer.line(f"const uint32_t *u2 = u + {TILE_WORDS};")
                _multiply(writer, rows, columns)
                _write_ahead(writer, made)
                writer.line(f"u += {STEP_WORDS};")
                if geometry.steps > awake:
                    writer.line(f"if (++steps % {awake} == 0)")
                    writer.line("    TILE_WRITE(6, m); /* or the next ones begin late */")
        for number in range(results):
            writer.line(f"TILE_WRITE({number}, m + {number * TILE_WORDS});")
        if sums > 1:
            writer.line(f"float more[{TILE_WORDS}] __attribute__((aligned(64)));")
        for number in range(results, results * sums):
            writer.line(f"TILE_WRITE({number}, more);")
            writer.line(f"for (int i = 0; i < {TILE_WORDS}; i += LANES)")
            at = plus("m", str(number % results * TILE_WORDS))
            writer.line(f"    store({at} + i, load({at} + i) + load(more + i));")
        _write_results(writer, made, rows, columns, cut=cut)
    return str(writer)


def _write_results(writer: Writer, made: Pieces, rows: int, columns: int, *, cut: bool) -> None:
    """What becomes of the sums: bias, the rest of the chain, and the output."""
    instance, geometry = made.instance, made.geometry
    row, column = made.grid
    first = f"p * {2 * POINTS}"
    counts = [POINTS] * columns
    if cut:
        counts[-1] = instance.size("co") - (made.vectors - 1) * POINTS
    left = f"{geometry.points} - {first}"
    size = rows * POINTS
    writer.line(f"const long count = {left} < {size} ? {left} : {size};")
    wraps = geometry.rows > 1
    if wraps:
        # Along the rows of the image in scratch, over the columns that are no points.
        writer.line(f"long h = {first} / {geometry.pitch}, z = {first} % {geometry.pitch};")
        head = "for (long n = 0; n < count; n++, z++)"
    else:
        head = "for (long n = 0; n < count; n++)"
    with writer.block(head):
        if wraps:
            with writer.block(f"if (z >= {geometry.columns})"):
                over = geometry.pitch - geometry.columns
                if over:
                    writer.line(f"n += {geometry.pitch} - z;")
                    writer.line("if (n >= count)")
                    writer.line("    break;")
                writer.line("z = 0, h++;")
        else:
            writer.line(f"const long z = {first} + n;")
        place = f"n / {POINTS} * {columns * TILE_WORDS} + n % {POINTS} * {POINTS}"
        writer.line(f"const float *t = m + {place};")
        for number, lanes in enumerate(counts):
            vector = f"(2 * v + {number})" if number else "2 * v"
            moves = [(column, geometry.columns, "z")]
            if row:
                moves.insert(0, (row, geometry.rows, "h" if wraps else "0"))
            position = PositionOf(instance, "co", vector, moves)
            with writer.block():
                value = f"load({plus('t', str(number * TILE_WORDS))})"
                if made.bias is not None:
                    at = position(made.bias)
                    value += f" + {vector_at(instance, made.bias, 'co', at, lanes)}"
                writer.line(f"const vec d = {value};")
                name = write_chain(writer, instance, "d", "co", position, lanes)
                writer.line(store_at(instance, name, "co", position(instance.output), lanes))

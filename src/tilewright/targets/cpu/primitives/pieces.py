"""Convolutions and matrix products in pieces of bfloat16, on a processor's matrix tiles.

With the first of the output channels a block of points is split into scratch
(targets/cpu/planning/pieces.py). A register tile is two tiles of points by two vectors of output
channels: their sums stay in four of the processor's eight tiles while the whole reduction passes
through the others. Then results leave as any product's do. A register tile of one tile of points
has two sums to each tile of results, or one would wait for the one before. All output channels of a
point are added up alike: of equal weights they have equal results, which networks that tell classes
by little differences need.

Weights of two pieces were split before, and lie as they are read. Those of three are split between
the products of the first register tile that takes them, a step ahead, into scratch, where the
others find them: vectors compute while tiles do, and memory holds no more than float32.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.codegen.c.source import Writer, plus, total
from tilewright.numerics.pieces import PRODUCTS, groups
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.planning.pieces import POINTS, TILE_WORDS
from tilewright.targets.cpu.primitives.block_products import write_first
from tilewright.targets.cpu.primitives.chain import Lanes
from tilewright.targets.cpu.primitives.code import KernelCode, call, function, parameters
from tilewright.targets.cpu.primitives.piece_points import (
    LINE_WORDS,
    STORED_WORDS,
    Pieces,
    rows_text,
    windows_text,
)


def emit(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the calls: points with the first of the output channels, then the products."""
    block = Pieces.of(instance)
    x, s = block.x, block.scratch
    with writer.block():
        if block.windows:
            image, *place = instance.origin(x)
            arguments, text = [image, s.pointer, *place], windows_text(block)
        else:
            arguments, text = [x.first(instance.dims), s.pointer], rows_text(block)
        write_first(instance, call(code.function("piece_points", text), arguments), writer)
        name = code.function("piece_products", _products_text(block, code))
        pointers = [a.first(instance.dims) for a in block.outside]
        writer.line(call(name, [s.pointer, *pointers]))


def _couples(count: int) -> Iterator[tuple[int, int, int]]:
    """(size, number of the first pair, how many) of runs of pairs, and of one left over."""
    if count > 1:
        yield 2, 0, count // 2
    if count % 2:
        yield 1, count // 2, 1


def _products_text(block: Pieces, code: KernelCode) -> str:
    """Multiply the block with every two vectors of output channels, and write its results."""
    geometry, names = block.geometry, ", ".join(a.pointer for a in block.results)
    count = geometry.rows * geometry.columns
    remark = f"products of {count} points x {block.instance.size('co')} output channels"
    scratch = "float *s" if block.whole else "const float *s"
    with function(remark, f"{scratch}, {parameters(block.instance, (), block.outside)}") as writer:
        writer.line("begin_tiles();")
        for columns, first, times in _couples(block.vectors):
            last = first + times == -(-block.vectors // 2)
            partial = last and block.instance.size("co") % POINTS
            runs = [(first, first + times, False)]
            if partial:
                runs = [(first, first + times - 1, False), (first + times - 1, first + times, True)]
            for start, end, cut in runs:
                if start == end:
                    continue
                with writer.block(f"for (long v = {start}; v < {end}; v++)"):
                    _write_points(writer, block, code, columns, names, cut=bool(cut))
        writer.line("end_tiles();")
    return str(writer)


def _write_points(
    writer: Writer, block: Pieces, code: KernelCode, columns: int, names: str, *, cut: bool
) -> None:
    """All tiles of points by the vectors of output channels of number ``v``."""
    if block.whole:
        writer.line(f"const float *f = {block.w.pointer} + v * {block.couple_words}L;")
        writer.line(f"uint32_t *u = (uint32_t *)s + {block.geometry.point_words};")
    else:
        weights = f"(const uint32_t *){block.w.pointer} + v * {block.couple_words}L"
        writer.line(f"const uint32_t *u = {weights};")
    operands = "u, f" if block.whole else "u"
    runs = [(rows, first, times, False) for rows, first, times in _couples(block.geometry.tiles)]
    if block.whole:
        rows, first, times, _ = runs[0]
        runs[:1] = [(rows, 0, 1, True), *([(rows, 1, times - 1, False)] if times > 1 else [])]
    for rows, first, times, splits in runs:
        text = _part_text(block, rows, columns, cut=cut, splits=splits)
        name = code.function("piece_part", text)
        with writer.block(f"for (long p = {first}; p < {first + times}; p++)"):
            points = f"(const uint32_t *)s + p * {2 * TILE_WORDS}"
            writer.line(f"{name}({points}, {operands}, {names}, v, p);")


def _write_ahead(writer: Writer, block: Pieces) -> None:
    """Ask for weights that are needed next.

    Where there are few register tiles, the first of them waits for the weights, and asks for those
    of its next step. Of many each asks for its share of the weights of the next output channels.
    """
    share = block.share
    if not share:
        if not block.whole:
            writer.line(f"for (int e = 0; p == 0 && e < {STORED_WORDS}; e += {LINE_WORDS})")
            writer.line(f"    fetch(u + {STORED_WORDS} + e);")
        return
    writer.line(f"for (int e = 0; e < {share}; e += {LINE_WORDS})")
    writer.line("    fetch(ahead + e);")
    writer.line(f"ahead += {share};")


def _multiply(writer: Writer, block: Pieces, rows: int, columns: int, *, splits: bool) -> None:
    """Write the products of one step; with its share of splitting the next step's weights."""
    grid = [(r, c) for r in range(rows) for c in range(columns)]
    products = PRODUCTS[block.geometry.pieces]
    loaded: tuple[int | None, int | None] = (None, None)
    for number, product in enumerate(products):
        for letter, piece, before in zip("au", product, loaded, strict=True):
            if piece == before:
                continue
            count, base = (rows, 4) if letter == "a" else (columns, 6)
            distance = [(piece, "plane")] if letter == "a" else []
            constant = 0 if letter == "a" else piece * 2 * TILE_WORDS
            further = total(distance, constant) if piece else "0"
            for k in range(count):
                place = plus(f"{letter}{k + 1 if k else ''}", further)
                writer.line(f"TILE_READ({base + k}, {place});")
        loaded = product
        for index, (r, c) in enumerate(grid):
            tile = index + number % SUMS[rows] * len(grid)
            writer.line(f"TILE_ADD({tile}, {4 + r}, {6 + c});")
        if splits:
            lines = columns * POINTS
            begin, end = (lines * n // len(products) for n in (number, number + 1))
            writer.line("if (more)")
            target, source = f"u + {block.geometry.step}", f"f + {STORED_WORDS}"
            writer.line(f"    split_rows({target}, {source}, {begin}, {end});")


AWAKE = 96
"""Products of tiles between two stores of one: after some 120 a Xeon (Sapphire Rapids) takes 0.2 us
more to store one; any store before prevents it (measured)."""

SUMS = {2: 1, 1: 2}
"""Sums to a tile of results, by how many tiles of points a register tile has."""


def _part_text(block: Pieces, rows: int, columns: int, *, cut: bool, splits: bool) -> str:
    """One register tile: the whole reduction, and its results; perhaps it splits the weights."""
    geometry = block.geometry
    results, sums = rows * columns, SUMS[rows]
    size = f"{rows * POINTS} points x {columns} vectors of output channels"
    remark = f"{size}, from point {2 * POINTS} p{'; splits the weights' if splits else ''}"
    weights = f"{'' if splits else 'const '}uint32_t *u{', const float *f' if block.whole else ''}"
    pointers = parameters(block.instance, ("long v", "long p"), block.results)
    listed = f"const uint32_t *i, {weights}, {pointers}"
    taps = geometry.taps
    with function(remark, listed) as writer:
        writer.line("TILES;")
        if block.vectors == 1:
            writer.line("(void)v;")
        writer.line(f"const long plane = {geometry.plane};")
        writer.line(f"static const int taps[{len(taps)}] = {{{', '.join(map(str, taps))}}};")
        count = results * TILE_WORDS
        writer.line(f"float m[{count}] __attribute__((aligned(64)));")
        for number in range(results * sums):
            writer.line(f"TILE_CLEAR({number});")
        if block.share:
            place = f"{block.couple_words}L + p * {block.share * geometry.steps}L"
            stored = "const float *ahead = f" if block.whole else "const uint32_t *ahead = u"
            writer.line(f"{stored} + {place};")
        writer.line("const uint32_t *const points = i;")
        writer.line(f"const void *const given = {'f' if block.whole else 'u'};")
        awake = AWAKE // (results * len(PRODUCTS[geometry.pieces]))
        if geometry.steps > awake:
            writer.line("long steps = 0;")
        if splits:
            writer.line(f"long left = {geometry.steps};")
            writer.line(f"split_rows(u, f, 0, {columns * POINTS});")
        head = f"for (long c = 0; c < {groups(geometry.channels)}; c++, i += {geometry.group})"
        with writer.block(head):
            over = f"for (int t = 0; t < {len(taps)}; t++)" if len(taps) > 1 else ""
            with writer.block(over):
                writer.line(f"const uint32_t *a = i{' + taps[t]' if over else ''};")
                if rows > 1:
                    writer.line(f"const uint32_t *a2 = a + {TILE_WORDS};")
                if columns > 1:
                    writer.line(f"const uint32_t *u2 = u + {TILE_WORDS};")
                if splits:
                    writer.line("const int more = --left > 0;")
                _multiply(writer, block, rows, columns, splits=splits)
                _write_ahead(writer, block)
                writer.line(f"u += {geometry.step};")
                if splits:
                    writer.line(f"f += {STORED_WORDS};")
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
        _write_results(writer, block, rows, columns, cut=cut)
    return str(writer)


def _write_results(writer: Writer, block: Pieces, rows: int, columns: int, *, cut: bool) -> None:
    """Write the code that stores the sums: bias, the rest of the chain, and the output."""
    instance, geometry = block.instance, block.geometry
    row, column = block.grid
    first = f"p * {2 * POINTS}"
    counts = [POINTS] * columns
    if cut:
        counts[-1] = instance.size("co") - (block.vectors - 1) * POINTS
    left = f"{geometry.points} - {first}"
    size = rows * POINTS
    writer.line(f"const long count = {left} < {size} ? {left} : {size};")
    # Points that are not there are no reason.
    writer.line(f"if (!all_finite(m, count, {columns}))")
    sizes = f"{geometry.pieces}, plane, {geometry.group}, {groups(geometry.channels)}"
    sizes += f", taps, {len(geometry.taps)}"
    writer.line(f"    multiply_again(m, points, given, {sizes}, count, {columns});")
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
            channels = Lanes(instance, "co", vector, lanes, moves)
            with writer.block():
                value = f"load({plus('t', str(number * TILE_WORDS))})"
                if block.bias is not None:
                    value += f" + {channels.load(block.bias)}"
                writer.line(f"const vec d = {value};")
                channels.finish(writer, "d")

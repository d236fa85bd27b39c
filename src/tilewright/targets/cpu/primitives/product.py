"""Convolution and matrix product: a register tile of points x vectors of output channels.

Accumulators for ``points * vectors`` stay in registers while the reduction runs: one load of the
weights' vector, one broadcast of an input element, one multiply-add for each. Input channels come
in blocks (NCHW16c) or one after another (NCHW, rows of a matrix).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tilewright.codegen.c.address import Address
from tilewright.codegen.c.source import Writer, plus
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.primitives.ahead import ahead_of
from tilewright.targets.cpu.primitives.chain import Lanes
from tilewright.targets.cpu.primitives.code import KernelCode, function, parameters
from tilewright.targets.cpu.primitives.reduction import write_reduction
from tilewright.targets.cpu.primitives.steps import Tile
from tilewright.targets.cpu.primitives.windows import (
    Columns,
    axis_of,
    classes_of,
    rows_of,
    write_calls,
)


def emit(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the call of the tile's function, one for each class of columns."""
    x, w = instance.tensor(0), instance.tensor(1)
    tile = tile_of(instance)
    between = w.block_stride("co", instance.lanes, instance.size("co"), instance.dims)
    elements = tile.word.elements if tile.word else 1
    prefetch = ahead_of(instance, w, between or 0, elements)
    if prefetch is None:
        emit_tile(tile, x, w, code, writer)
    else:
        ahead, place = prefetch
        emit_tile(replace(tile, ahead=ahead), x, w, code, writer, following=place)


Reduce = Callable[[Writer, Tile, Address, Address, Columns, str], None]
"""Writes the reduction of a tile's function; see ``write_reduction``."""


def emit_tile(
    tile: Tile,
    x: Address,
    w: Address,
    code: KernelCode,
    writer: Writer,
    reduce: Reduce = write_reduction,
    moved: int = 0,
    following: str = "",
) -> None:
    """Write the calls of a register tile's functions; ``x`` is read ``moved`` elements further.

    ``following`` is where a call's share of the next weights begins, if the tile fetches ahead.
    """
    instance = tile.instance
    with writer.block():
        rows = rows_of(writer, instance, axis_of(instance, x, "kh"))
        classes = classes_of(instance, axis_of(instance, x, "kw"), tile.columns)
        extra: dict[str, str] = {}
        if tile.ahead is not None:
            extra[f"const {w.c_type} *ahead"] = plus(w.pointer, following)
        if not rows.constant:
            extra["long rows"] = rows.count
        if instance.split:
            extra |= {"int first_part": instance.first, "int last_part": instance.last}

        def text(columns: Columns, names: Sequence[str]) -> str:
            return _text(tile, x, w, columns, rows.count, names, reduce)

        write_calls(writer, code, instance, (x, w), rows, classes, extra, text, moved)


def tile_of(instance: Instance) -> Tile:
    """The register tile of an instance: the dims of points that are wider than 1."""
    parallel = [d for d in instance.dims if d not in instance.reduction and d != "co"]
    wide = [dim for dim in parallel if instance.size(dim) > 1]
    if len(wide) > 2:
        raise instance.cannot(f"tiles of more than two dims of points ({', '.join(wide)})")
    column = "ow" if "ow" in parallel else (wide[-1] if wide else parallel[-1])
    row = next((dim for dim in wide if dim != column), "")
    return Tile(instance, row, column)


def _text(
    tile: Tile,
    x: Address,
    w: Address,
    columns: Columns,
    rows: str,
    extra: Sequence[str],
    reduce: Reduce,
) -> str:
    instance = tile.instance
    size = f"{tile.rows} x {tile.columns}" if tile.rows > 1 else str(tile.columns)
    remark = f"{size} points x {tile.vectors} vectors of output channels"
    with function(remark, parameters(instance, extra)) as writer:
        writer.line(f"{tile.lane_type} a[{tile.rows * tile.columns}][{tile.vectors}];")
        _start(writer, tile)
        if all(low == high for low, high in columns.spans):
            # Padding only: nothing is added.
            more = [*(["ahead"] if tile.ahead else []), *(["rows"] if not rows.isdigit() else [])]
            for name in ("x", "w", *more):
                writer.line(f"(void){name};")
        else:
            reduce(writer, tile, x, w, columns, rows)
        _finish(writer, tile)
    return str(writer)


def _start(writer: Writer, tile: Tile) -> None:
    """Set the accumulators: to bias and what else is summed, or to what earlier parts left."""
    instance = tile.instance
    bias = instance.anchor.inputs[2] if len(instance.anchor.inputs) > 2 else None

    def initial(v: int) -> None:
        at = _lanes(tile, v)
        if isinstance(bias, Address):
            value = at.load(bias)
        else:
            value = "splat_int(0)" if tile.bytes else "splat(0.0f)"
        for operand in instance.summed_first:
            value += f" + {at.load(operand)}"
        writer.line(f"{tile.loops()} a[{tile.point}][{v}] = {value};")

    def earlier(v: int) -> None:
        value = _lanes(tile, v).load(instance.output)
        writer.line(f"{tile.loops()} a[{tile.point}][{v}] = {value};")

    if not instance.split:
        for v in range(tile.vectors):
            initial(v)
        return
    with writer.block("if (first_part)"):
        for v in range(tile.vectors):
            initial(v)
    with writer.block("else"):
        for v in range(tile.vectors):
            earlier(v)


def _lanes(tile: Tile, v: int) -> Lanes:
    moves = [(tile.column, tile.columns, "j")]
    if tile.rows > 1:
        moves.append((tile.row, tile.rows, "q"))
    return Lanes(tile.instance, "co", str(v), tile.lanes(v), moves)


def _finish(writer: Writer, tile: Tile) -> None:
    """Apply the rest of the chain and write the tile."""
    instance = tile.instance
    chain = len(instance.steps) > 1 + len(instance.summed_first)

    def write(v: int, with_chain: bool) -> None:
        at = _lanes(tile, v)
        with writer.block(tile.loops()):
            writer.line(f"const {tile.lane_type} t = a[{tile.point}][{v}];")
            writer.line(at.store(at.chain(writer, "t") if with_chain else "t"))

    if instance.split and chain:
        with writer.block("if (last_part)"):
            for v in range(tile.vectors):
                write(v, True)
        with writer.block("else"):
            for v in range(tile.vectors):
                write(v, False)
        return
    if instance.split:
        writer.line("(void)last_part;")
    for v in range(tile.vectors):
        write(v, True)

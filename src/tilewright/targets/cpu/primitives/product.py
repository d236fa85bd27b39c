"""Convolution and matrix product: a register tile of points x vectors of output channels.

Accumulators for ``points * vectors`` stay in registers while the reduction runs: one load of the
weights' vector, one broadcast of an input element, one multiply-add for each. Input channels come
in blocks (NCHW16c) or one after another (NCHW, rows of a matrix).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.targets.cpu.address import Address
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.primitives.chain import PositionOf, store_at, vector_at, write_chain
from tilewright.targets.cpu.primitives.code import NAME, KernelCode, call, parameters
from tilewright.targets.cpu.primitives.windows import Columns, axis_of, classes_of, rows_of
from tilewright.targets.cpu.source import Writer, plus, total


@dataclass(frozen=True)
class _Tile:
    """The register tile: ``rows`` x ``columns`` points, ``vectors`` of output channels."""

    instance: Instance
    row: str
    column: str

    @property
    def rows(self) -> int:
        return self.instance.size(self.row)

    @property
    def columns(self) -> int:
        return self.instance.size(self.column)

    @property
    def vectors(self) -> int:
        return -(-self.instance.size("co") // self.instance.lanes)

    @property
    def last_lanes(self) -> int:
        """Lanes in use of the last vector."""
        return self.instance.size("co") - (self.vectors - 1) * self.instance.lanes

    def loops(self) -> str:
        """Unrolled loops over the tile's vectors, rows (q) and columns (j)."""
        rows = f"UNROLL for (int q = 0; q < {self.rows}; q++) " if self.rows > 1 else ""
        return rows + f"UNROLL for (int j = 0; j < {self.columns}; j++)"

    @property
    def point(self) -> str:
        return f"q * {self.columns} + j" if self.rows > 1 else "j"


def emit(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the call of the tile's function, one for each class of columns."""
    tile = _tile_of(instance)
    x, w = _operands(instance)
    column = axis_of(instance, x, "kw")
    with writer.block():
        rows = rows_of(writer, instance, axis_of(instance, x, "kh"))
        classes = classes_of(instance, column, tile.columns)
        for number, (condition, columns) in enumerate(classes):
            extra: list[str] = []
            arguments: list[str] = []
            for address in instance.addresses:
                added = {"kh": rows.first} if address in (x, w) and rows.first != "0" else {}
                offset = address.offset(instance.dims, added)
                if address == x and columns.origin:
                    step = _fixed(instance, x, "kw", 2) // (column.dilation if column else 1)
                    offset = f"{offset} + {columns.origin * step}"
                arguments.append(plus(address.pointer, offset))
            if not rows.constant:
                extra.append("long rows")
                arguments.append(rows.count)
            if instance.split:
                extra += ["int first_part", "int last_part"]
                arguments += [instance.first, instance.last]
            text = _function(tile, x, w, columns, rows.count, extra)
            line = call(code.function(f"{instance.anchor.operation}_tile", text), arguments)
            if len(classes) > 1:
                prefix = f"if ({condition})" if not number else f"else if ({condition})"
                writer.line(prefix if condition else "else")
                writer.line("    " + line)
            else:
                writer.line(line)


def _tile_of(instance: Instance) -> _Tile:
    parallel = [d for d in instance.dims if d not in instance.reduction and d != "co"]
    wide = [dim for dim in parallel if instance.size(dim) > 1]
    if len(wide) > 2:
        raise instance.cannot(f"tiles of more than two dims of points ({', '.join(wide)})")
    column = "ow" if "ow" in parallel else (wide[-1] if wide else parallel[-1])
    row = next((dim for dim in wide if dim != column), "")
    return _Tile(instance, row, column)


def _operands(instance: Instance) -> tuple[Address, Address]:
    x, w = instance.anchor.inputs[:2]
    if not isinstance(x, Address) or not isinstance(w, Address):
        raise instance.cannot("the anchor's operands must be tensors")
    return x, w


def _fixed(instance: Instance, operand: Address, dim: str, count: int) -> int:
    """The operand's stride along a dim, which must be constant; 0 if it does not depend on it."""
    if dim not in operand.dims():
        return 0
    stride = operand.stride(dim, count, instance.dims)
    if stride is None:
        raise instance.cannot(f"operand {operand.pointer} has no fixed stride along {dim}")
    return stride


def _function(
    tile: _Tile, x: Address, w: Address, columns: Columns, rows: str, extra: list[str]
) -> str:
    instance = tile.instance
    writer = Writer()
    size = f"{tile.rows} x {tile.columns}" if tile.rows > 1 else str(tile.columns)
    writer.line(f"/* {size} points x {tile.vectors} vectors of output channels */")
    writer.line(f"static void {NAME}({parameters(instance, extra)})")
    with writer.block():
        writer.line(f"vec a[{tile.rows * tile.columns}][{tile.vectors}];")
        _start(writer, tile)
        if all(low == high for low, high in columns.spans):
            # Padding only: nothing is added.
            for name in ("x", "w", *(["rows"] if not rows.isdigit() else [])):
                writer.line(f"(void){name};")
        else:
            _reduce(writer, tile, x, w, columns, rows)
        _finish(writer, tile)
    return str(writer)


def _start(writer: Writer, tile: _Tile) -> None:
    """Set the accumulators: to the bias, or to what earlier parts of the reduction left."""
    instance = tile.instance
    bias = instance.anchor.inputs[2] if len(instance.anchor.inputs) > 2 else None
    output = instance.output

    def initial(v: int) -> None:
        count = tile.last_lanes if v == tile.vectors - 1 else instance.lanes
        position = _positions(tile, v)
        if isinstance(bias, Address):
            value = vector_at(instance, bias, "co", position(bias), count)
        else:
            value = "splat(0.0f)"
        writer.line(f"{tile.loops()} a[{tile.point}][{v}] = {value};")

    def earlier(v: int) -> None:
        count = tile.last_lanes if v == tile.vectors - 1 else instance.lanes
        value = vector_at(instance, output, "co", _positions(tile, v)(output), count)
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


def _positions(tile: _Tile, v: int) -> PositionOf:
    moves = [(tile.column, tile.columns, "j")]
    if tile.rows > 1:
        moves.append((tile.row, tile.rows, "q"))
    return PositionOf(tile.instance, "co", str(v), moves)


def _reduce(
    writer: Writer, tile: _Tile, x: Address, w: Address, columns: Columns, rows: str
) -> None:
    """The loops over input channels and taps."""
    instance = tile.instance
    lanes, depth = instance.lanes, instance.size("ci")
    if x.stride("ci", depth, instance.dims) is not None and (
        w.stride("ci", depth, instance.dims) is not None
    ):
        step_x, step_w = (_fixed(instance, t, "ci", depth) for t in (x, w))
        outermost = step_w > _fixed(instance, w, "kw", 2) > 0
        if outermost:
            with writer.block(f"for (long i = 0; i < {depth}; i++)"):
                writer.line(f"const float *xi = {plus('x', total([(step_x, 'i')]))};")
                writer.line(f"const float *wi = {plus('w', total([(step_w, 'i')]))};")
                _taps(writer, tile, x, w, columns, rows, "xi", "wi", 0)
        else:
            _taps(writer, tile, x, w, columns, rows, "x", "w", depth)
        return
    blocks, rest = divmod(depth, lanes)
    steps = [t.block_stride("ci", lanes, depth, instance.dims) for t in (x, w)]
    if steps[0] is None or steps[1] is None:
        raise instance.cannot("input channels do not lie in blocks of the vector's lanes")
    if blocks:
        with writer.block(f"for (long c = 0; c < {blocks}; c++)"):
            writer.line(f"const float *xc = {plus('x', total([(steps[0], 'c')]))};")
            writer.line(f"const float *wc = {plus('w', total([(steps[1], 'c')]))};")
            _taps(writer, tile, x, w, columns, rows, "xc", "wc", lanes)
    if rest:
        with writer.block():
            writer.line(f"const float *xc = x + {blocks * steps[0]};")
            writer.line(f"const float *wc = w + {blocks * steps[1]};")
            _taps(writer, tile, x, w, columns, rows, "xc", "wc", rest)


def _taps(
    writer: Writer,
    tile: _Tile,
    x: Address,
    w: Address,
    columns: Columns,
    rows: str,
    xp: str,
    wp: str,
    depth: int,
) -> None:
    """Loops over rows and columns of the window, then over ``depth`` channels (0: no loop)."""
    instance = tile.instance
    if rows == "1":
        _columns(writer, tile, x, w, columns, xp, wp, depth)
        return
    step_x, step_w = (_fixed(instance, t, "kh", 2) for t in (x, w))
    with writer.block(f"for (long k = 0; k < {rows}; k++)"):
        writer.line(f"const float *xk = {plus(xp, total([(step_x, 'k')]))};")
        writer.line(f"const float *wk = {plus(wp, total([(step_w, 'k')]))};")
        _columns(writer, tile, x, w, columns, "xk", "wk", depth)


def _columns(
    writer: Writer,
    tile: _Tile,
    x: Address,
    w: Address,
    columns: Columns,
    xp: str,
    wp: str,
    depth: int,
) -> None:
    instance = tile.instance
    step_x, step_w = (_fixed(instance, t, "kw", 2) for t in (x, w))
    taps = len(columns.spans)
    if columns.uniform and taps > 1 and columns.spans[0] == (0, tile.columns):
        with writer.block(f"for (long m = 0; m < {taps}; m++)"):
            _multiply(
                writer,
                tile,
                x,
                w,
                (0, tile.columns),
                plus(xp, total([(step_x, "m")])),
                plus(wp, total([(step_w, "m")])),
                0,
                depth,
            )
        return
    axis = axis_of(instance, x, "kw")
    for tap, span in enumerate(columns.spans):
        if span[0] == span[1]:
            continue
        shift = 0
        if axis is not None:
            # Input column of the span's first element, from the class's origin.
            shift = span[0] * axis.stride + tap * axis.dilation - columns.origin
            shift *= step_x // axis.dilation
        _multiply(
            writer,
            tile,
            x,
            w,
            span,
            xp,
            plus(wp, str(tap * step_w)) if tap * step_w else wp,
            shift,
            depth,
        )


def _multiply(
    writer: Writer,
    tile: _Tile,
    x: Address,
    w: Address,
    span: tuple[int, int],
    xp: str,
    wp: str,
    shift: int,
    depth: int,
) -> None:
    """One tap: for each channel, one row of broadcasts against the weights' vectors."""
    instance = tile.instance
    low, high = span
    step_x = _fixed(instance, x, "ci", depth) if depth else 0
    step_w = _fixed(instance, w, "ci", depth) if depth else 0
    step_j = _fixed(instance, x, tile.column, tile.columns)
    step_q = _fixed(instance, x, tile.row, tile.rows) if tile.rows > 1 else 0
    block = w.block_stride("co", instance.lanes, instance.size("co"), instance.dims)
    if block is None:
        raise instance.cannot("the weights have no stride between vectors of output channels")

    def body() -> None:
        for v in range(tile.vectors):
            count = tile.last_lanes if v == tile.vectors - 1 else instance.lanes
            position = total([(step_w, "i")], v * block)
            value = vector_at(instance, w, "co", position, count, wp)
            writer.line(f"const vec w{v} = {value};")
        head = f"UNROLL for (int j = {low}; j < {high}; j++)"
        if tile.rows > 1:
            head = f"UNROLL for (int q = 0; q < {tile.rows}; q++) {head}"
        index = total([(step_x, "i"), (step_j, "j"), (step_q, "q")], shift - low * step_j)
        with writer.block(head):
            pointer = f"({xp})" if " " in xp else xp
            writer.line(f"const float e = {pointer}[{index}];")
            for v in range(tile.vectors):
                writer.line(f"a[{tile.point}][{v}] += e * w{v};")

    if depth > 1:
        with writer.block(f"for (long i = 0; i < {depth}; i++)"):
            body()
    else:
        with writer.block():
            body()


def _finish(writer: Writer, tile: _Tile) -> None:
    """Apply the rest of the chain and write the tile."""
    instance = tile.instance
    chain = len(instance.steps) > 1

    def write(v: int, with_chain: bool) -> None:
        count = tile.last_lanes if v == tile.vectors - 1 else instance.lanes
        positions = _positions(tile, v)
        with writer.block(tile.loops()):
            writer.line(f"vec t = a[{tile.point}][{v}];")
            name = "t"
            if with_chain:
                name = write_chain(writer, instance, "t", "co", positions, count)
            writer.line(store_at(instance, name, "co", positions(instance.output), count))

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

"""Depthwise convolution and pooling: a window per channel, one vector of channels at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from tilewright.codegen.c.address import Address
from tilewright.codegen.c.source import Writer, literal, plus, total
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.primitives.chain import (
    Lanes,
    lane_type,
    vector_at,
    weights_at,
)
from tilewright.targets.cpu.primitives.code import KernelCode, function, parameters
from tilewright.targets.cpu.primitives.windows import (
    Axis,
    Columns,
    Rows,
    axis_of,
    classes_of,
    rows_of,
    write_calls,
)

WRITTEN_TAPS = 32
"""Taps of a row that are written out one by one; more that are alike are a loop, so that C of
windows of hundreds of taps stays short."""


def emit(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the call of the tile's function, one for each class of columns."""
    anchor = instance.anchor
    x = instance.tensor(0)
    w = instance.tensor(1) if anchor.operation == "depthwise_conv" else None
    if instance.size("c") > instance.lanes or instance.split:
        raise instance.cannot("tiles hold one vector of channels and the whole window")
    wide = [d for d in instance.dims if d not in (*instance.reduction, "c", "ow")]
    if any(instance.size(dim) > 1 for dim in wide):
        raise instance.cannot("tiles hold points of one row")
    column, height = axis_of(instance, x, "kw"), axis_of(instance, x, "kh")
    mean = anchor.operation == "average_pool"
    counted = [0, 0, 0, 0]
    if mean:
        counted = list(anchor.attributes.get("counted", counted))
    with writer.block():
        rows = rows_of(writer, instance, height)
        divisor = Rows("0", "1")
        if mean:
            widened = _counted(height, counted[0], counted[2])
            same = widened == height
            names = ("counted_row", "counted_first", "counted_rows")
            divisor = rows if same else rows_of(writer, instance, widened, names)
        across = _counted(column, counted[1], counted[3]) if mean else None
        classes = classes_of(instance, column, instance.size("ow"), across)
        extra: dict[str, str] = {}
        if not rows.constant:
            extra["long rows"] = rows.count
        if mean and not divisor.constant:
            extra["long counted"] = divisor.count
        count = divisor.count if divisor.constant else "counted"

        def text(columns: Columns, names: Sequence[str]) -> str:
            return _text(instance, x, w, columns, rows.count, count, names)

        sliding = [x] if w is None else [x, w]
        write_calls(writer, code, instance, sliding, rows, classes, extra, text)


def _counted(axis: Axis | None, before: int, after: int) -> Axis | None:
    """The axis with that much of its padding taken for image."""
    if axis is None:
        return None
    return replace(axis, before=axis.before - before, extent=axis.extent + before + after)


def _text(
    instance: Instance,
    x: Address,
    w: Address | None,
    columns: Columns,
    rows: str,
    divisor: str,
    extra: Sequence[str],
) -> str:
    operation, width = instance.anchor.operation, instance.size("ow")
    count = instance.size("c")
    each = f"UNROLL for (int j = 0; j < {width}; j++)"
    remark = f"{width} points of {count} channels"
    with function(remark, parameters(instance, extra)) as writer:
        lane = lane_type(instance.anchor.result.element)
        start = "splat(-INFINITY)" if operation == "max_pool" else "splat(0.0f)"
        if lane == "ivec":
            start = "splat_int(0)"  # also the least of the unsigned numbers
        if w is not None and len(instance.anchor.inputs) > 2:
            start = vector_at(instance, instance.tensor(2), "c", "0", count)
        writer.line(f"{lane} a[{width}];")
        writer.line(f"{each} a[j] = {start};")
        if all(low == high for low, high in columns.spans):
            for name in (
                "x",
                *("w" for _ in [w] if w),
                *("rows" for _ in [rows] if not rows.isdigit()),
            ):
                writer.line(f"(void){name};")
        else:
            with writer.block(f"for (long k = 0; k < {rows}; k++)"):
                row = total([(instance.step(x, "kh", 2), "k")])
                writer.line(f"const {x.c_type} *xk = {plus('x', row)};")
                if w is not None:
                    row = total([(instance.step(w, "kh", 2), "k")])
                    writer.line(f"const {w.c_type} *wk = {plus('w', row)};")
                _taps(writer, instance, x, w, columns, count)
        if operation == "average_pool":
            _divide(writer, columns, divisor, width)
        with writer.block(each):
            writer.line(f"const {lane} t = a[j];")
            Lanes(instance, "c", "0", count, [("ow", width, "j")]).finish(writer, "t")
    return str(writer)


def _taps(
    writer: Writer,
    instance: Instance,
    x: Address,
    w: Address | None,
    columns: Columns,
    count: int,
) -> None:
    """Every tap of one row of the window; many that are alike are a loop."""
    axis = axis_of(instance, x, "kw")
    dilation = axis.dilation if axis else 1
    step_x = instance.step(x, "kw", 2) // dilation
    step_j = instance.step(x, "ow", instance.size("ow"))
    step_w = 0 if w is None else instance.step(w, "kw", 2)
    for tap, number, (low, high) in _runs_of(columns.spans):
        if low == high:
            continue
        shift = 0
        if axis is not None:
            shift = (low * axis.stride + tap * dilation - columns.origin) * step_x
        terms = [(step_j, "j"), *([(dilation * step_x, "t")] if number > 1 else [])]
        value = vector_at(instance, x, "c", total(terms, shift - low * step_j), count, "xk")
        with writer.block(f"for (long t = 0; t < {number}; t++)" if number > 1 else ""):
            if w is not None:
                position = total([(step_w, "t")] if number > 1 else [], tap * step_w)
                weight = weights_at(instance, w, position, count, "wk")
                lane = "vec" if w.element == "int16" else lane_type(w.element)
                writer.line(f"const {lane} wt = {weight};")
            head = f"UNROLL for (int j = {low}; j < {high}; j++)"
            if w is not None and w.element == "int8":
                writer.line(f"{head} a[j] = multiply_add_v(a[j], {value}, wt);")
            elif w is not None:
                writer.line(f"{head} a[j] += {value} * wt;")
            elif instance.anchor.operation == "max_pool":
                larger = "larger" if lane_type(x.element) == "vec" else "larger_int"
                writer.line(f"{head} a[j] = {larger}({value}, a[j]);")
            else:
                writer.line(f"{head} a[j] += {value};")


def _runs_of(
    spans: Sequence[tuple[int, int]],
) -> Iterator[tuple[int, int, tuple[int, int]]]:
    """First tap, number and span of taps that one loop computes: of each tap alone, or of more than
    WRITTEN_TAPS beside each other that have one span."""
    first = 0
    for span, alike in groupby(spans):
        number = len(list(alike))
        if number > WRITTEN_TAPS:
            yield first, number, span
        else:
            yield from ((first + offset, 1, span) for offset in range(number))
        first += number


def _divide(writer: Writer, columns: Columns, divisor: str, width: int) -> None:
    """Turn sums into means."""
    counts = columns.counts or (1,) * width
    if len(set(counts)) == 1:
        if divisor.isdigit():
            by = literal(float(int(divisor) * counts[0]))
        else:
            by = f"(float)({divisor} * {counts[0]})"
        writer.line(f"UNROLL for (int j = 0; j < {width}; j++) a[j] /= {by};")
        return
    listed = ", ".join(str(count) for count in counts)
    writer.line(f"static const int taps[{width}] = {{{listed}}};")
    writer.line(f"UNROLL for (int j = 0; j < {width}; j++) a[j] /= (float)({divisor} * taps[j]);")

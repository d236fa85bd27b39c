"""Depthwise convolution and pooling: a window per channel, one vector of channels at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.codegen.c.address import Address
from tilewright.codegen.c.source import Writer, literal, plus, total
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.primitives.chain import (
    PositionOf,
    lane_type,
    store_at,
    vector_at,
    weights_at,
    write_chain,
)
from tilewright.targets.cpu.primitives.code import NAME, KernelCode, parameters
from tilewright.targets.cpu.primitives.windows import (
    Axis,
    Columns,
    Rows,
    axis_of,
    classes_of,
    rows_of,
    write_calls,
)


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

        def function(columns: Columns, names: Sequence[str]) -> str:
            return _function(instance, x, w, columns, rows.count, count, names)

        sliding = [x] if w is None else [x, w]
        write_calls(writer, code, instance, sliding, rows, classes, extra, function)


def _counted(axis: Axis | None, before: int, after: int) -> Axis | None:
    """The axis with that much of its padding taken for image."""
    if axis is None:
        return None
    return replace(axis, before=axis.before - before, extent=axis.extent + before + after)


def _function(
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
    positions = PositionOf(instance, "c", "0", [("ow", width, "j")])
    each = f"UNROLL for (int j = 0; j < {width}; j++)"
    writer = Writer()
    writer.line(f"/* {width} points of {count} channels */")
    writer.line(f"static void {NAME}({parameters(instance, extra)})")
    with writer.block():
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
            name = write_chain(writer, instance, "t", "c", positions, count)
            writer.line(store_at(instance, name, "c", positions(instance.output), count))
    return str(writer)


def _taps(
    writer: Writer,
    instance: Instance,
    x: Address,
    w: Address | None,
    columns: Columns,
    count: int,
) -> None:
    """Every tap of one row of the window."""
    axis = axis_of(instance, x, "kw")
    step_x = instance.step(x, "kw", 2) // (axis.dilation if axis else 1)
    step_j = instance.step(x, "ow", instance.size("ow"))
    for tap, (low, high) in enumerate(columns.spans):
        if low == high:
            continue
        shift = 0
        if axis is not None:
            shift = (low * axis.stride + tap * axis.dilation - columns.origin) * step_x
        value = vector_at(
            instance, x, "c", total([(step_j, "j")], shift - low * step_j), count, "xk"
        )
        with writer.block():
            if w is not None:
                position = str(tap * instance.step(w, "kw", 2))
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

"""Softmax of rows: lanes along the row, or a row in each lane where rows lie side by side."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.codegen.c.address import Address
from tilewright.codegen.c.source import Writer
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.primitives.chain import Lanes
from tilewright.targets.cpu.primitives.code import (
    KernelCode,
    function,
    parameters,
    write_call,
    write_vectors,
)
from tilewright.targets.cpu.primitives.general import element_offset, write_scalar_chain


def emit(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the call that normalises one row along the axis, or as many as there are lanes."""
    x, y, lanes = instance.tensor(0), instance.output, instance.lanes
    count = instance.size("axis")
    wide = [dim for dim in instance.dims if dim != "axis" and instance.size(dim) > 1]
    if len(wide) > 1:
        raise instance.cannot("tiles hold rows of the axis that lie side by side")
    steps = [a.stride("axis", count, instance.dims) for a in (x, y)]
    floats = x.element == "float32"
    ended = "axis" in instance.ends
    more = ["long end"] if ended else []
    with function(f"{count} elements", parameters(instance, more)) as inner:
        size = instance.size(wide[0]) if wide else 1
        beside = [a.stride(wide[0], size, instance.dims) for a in (x, y)] if wide else []
        if ended:
            heads = [f"for (long row = 0; row < {size}; row++)"] if wide else []
            with inner.block(*heads):
                _elements(inner, instance, x, {wide[0]: "row"} if wide else {}, "end")
        elif floats and beside == [1, 1] and None not in steps and size <= lanes:
            _lanes(inner, instance, x, wide[0])
        elif not wide and steps == [1, 1] and floats and count >= lanes:
            _row(inner, instance, x)
        elif wide:
            with inner.block(f"for (long row = 0; row < {size}; row++)"):
                _elements(inner, instance, x, {wide[0]: "row"})
        else:
            _elements(inner, instance, x, {})
    more = [instance.ends["axis"]] if ended else []
    write_call(instance, code, writer, "softmax_tile", inner, more)


def _row(inner: Writer, instance: Instance, x: Address) -> None:
    """One row. Exponentials are kept in the result if nothing follows, or else computed twice."""
    count, lanes = instance.size("axis"), instance.lanes
    full, rest = divmod(count, lanes)
    kept = len(instance.steps) == 1 and instance.output.element == "float32"
    inner.line("vec m = splat(-INFINITY), s = splat(0.0f);")
    inner.line("float most, sum = 0.0f;")
    with inner.block(f"for (long i = 0; i < {full}; i++)"):
        inner.line(f"m = max_v(load(x + i * {lanes}), m);")
    inner.line("most = m[0];")
    inner.line("for (int i = 1; i < LANES; i++)")
    inner.line("    most = max_s(most, m[i]);")
    if rest:
        inner.line(f"for (long i = {full * lanes}; i < {count}; i++)")
        inner.line("    most = max_s(most, x[i]);")
    with inner.block(f"for (long i = 0; i < {full}; i++)"):
        inner.line(f"const vec e = exp_low_v(load(x + i * {lanes}) - most);")
        inner.line("s += e;")
        if kept:
            inner.line(f"store(y + i * {lanes}, e);")
    if rest:
        with inner.block():
            inner.line(f"vec e = exp_low_v(load_part(x + {full * lanes}, {rest}) - most);")
            inner.line(f"e = (vec)((mask)e & first_lanes({rest}));")
            inner.line("s += e;")
            if kept:
                inner.line(f"store_part(y + {full * lanes}, e, {rest});")
    inner.line("sum = 1.0f / sum_v(s);")

    def write(at: str, part: int) -> None:
        along = Lanes(instance, "axis", at, part)
        value = along.load(instance.output) if kept else f"exp_low_v({along.load(x)} - most)"
        inner.line(f"const vec t = {value} * sum;")
        along.finish(inner, "t")

    write_vectors(inner, count, lanes, write)


def _lanes(inner: Writer, instance: Instance, x: Address, dim: str) -> None:
    """A row in each lane."""
    count, part = instance.size("axis"), instance.size(dim)
    kept = len(instance.steps) == 1 and instance.output.element == "float32"
    rows = Lanes(instance, dim, "0", part, [("axis", count, "i")])
    inner.line("vec m = splat(-INFINITY), s = splat(0.0f);")
    head = f"for (long i = 0; i < {count}; i++)"
    value = rows.load(x)
    inner.line(head)
    inner.line(f"    m = max_v({value}, m);")
    with inner.block(head):
        inner.line(f"const vec e = exp_low_v({value} - m);")
        inner.line("s += e;")
        if kept:
            inner.line(rows.store("e"))
    inner.line("s = 1.0f / s;")
    with inner.block(head):
        value = rows.load(instance.output) if kept else f"exp_low_v({value} - m)"
        inner.line(f"const vec t = {value} * s;")
        rows.finish(inner, "t")


def _elements(
    inner: Writer, instance: Instance, x: Address, row: Mapping[str, str], end: str = ""
) -> None:
    """One row, one element after another; ``row`` says which of several, ``end`` is C of where it
    ends if it may end early."""
    count = end or str(instance.size("axis"))
    at = {**row, **({"axis": "i"} if instance.size("axis") > 1 else {})}
    source = f"x[{element_offset(instance, x, at)}]"
    kind, form = ("double", "d") if x.element == "float64" else ("float", "s")
    inner.line(f"{kind} most = -INFINITY, sum = 0;")
    inner.line(f"for (long i = 0; i < {count}; i++)")
    inner.line(f"    most = max_{form}(most, {source});")
    inner.line(f"for (long i = 0; i < {count}; i++)")
    inner.line(f"    sum += exp_{form}({source} - most);")
    with inner.block(f"for (long i = 0; i < {count}; i++)"):
        inner.line(f"const {kind} t = exp_{form}({source} - most) / sum;")
        name = write_scalar_chain(inner, instance, "t", at)
        inner.line(f"y[{element_offset(instance, instance.output, at)}] = {name};")

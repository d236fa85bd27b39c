"""Operations on whole rows: running sums and products, and the order of the elements."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.codegen.c.address import Address
from tilewright.codegen.c.source import Writer
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.primitives.code import (
    KernelCode,
    accumulator,
    function,
    parameters,
    write_call,
)
from tilewright.targets.cpu.primitives.general import element_offset


def emit(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the call of the function that computes one row."""
    anchor, count = instance.anchor, instance.size("axis")
    x = instance.tensor(0)
    outer = [dim for dim in instance.dims if dim != "axis"]
    if any(instance.size(dim) > 1 for dim in outer):
        raise instance.cannot("tiles hold one row of the axis")
    with function(f"{count} elements", parameters(instance)) as inner:
        if anchor.operation == "arg_sort":
            _sort(inner, instance, x, count)
        else:
            _run(inner, instance, x, count)
    write_call(instance, code, writer, f"{anchor.operation}_row", inner)


def _run(inner: Writer, instance: Instance, x: Address, count: int) -> None:
    """Add, or multiply, one element after another."""
    product = instance.anchor.operation == "running_product"
    inner.line(f"{accumulator(x.element)} t = {1 if product else 0};")
    with inner.block(f"for (long i = 0; i < {count}; i++)"):
        at = {"axis": "i"} if count > 1 else {}
        sign = "*" if product else "+"
        inner.line(f"t {sign}= x[{element_offset(instance, x, at)}];")
        inner.line(f"y[{element_offset(instance, instance.output, at)}] = t;")


def _sort(inner: Writer, instance: Instance, x: Address, count: int) -> None:
    """Merge runs that double in length; of equal elements the first stays first.

    NaN is above all numbers, as in the reference.
    """

    def key(index: str) -> str:
        return f"x[{element_offset(instance, x, {'axis': index} if count > 1 else {})}]"

    result = element_offset(instance, instance.output, {"axis": "i"} if count > 1 else {})
    if x.element == "bool":
        _divide(inner, key, count, result, first=bool(instance.anchor.attributes.get("descending")))
        return
    _ = accumulator(x.element)  # Elements that C compares, that is.
    before = ">" if instance.anchor.attributes.get("descending") else "<"
    second = f"{key('from[b]')} {before} {key('from[a]')}"
    if x.element.startswith("float"):
        above, below = ("b", "a") if before == ">" else ("a", "b")
        above, below = (f"{key(f'from[{run}]')}" for run in (above, below))
        second = f"({second} || ({above} != {above} && {below} == {below}))"
    inner.line(f"int32_t places[2][{count}];")
    inner.line(f"for (long i = 0; i < {count}; i++)")
    inner.line("    places[0][i] = (int32_t)i;")
    write_merges(inner, str(count), second)
    inner.line(f"for (long i = 0; i < {count}; i++)")
    inner.line(f"    y[{result}] = places[now][i];")


def write_merges(inner: Writer, count: str, second: str) -> None:
    """Sort ``places[0]`` into ``places[now]``: the next of run b goes before that of run a where
    ``second`` says so."""
    inner.line("int now = 0;")
    widths = f"for (long width = 1; width < {count}; width *= 2, now = !now)"
    runs = f"for (long start = 0; start < {count}; start += 2 * width)"
    with inner.block(widths), inner.block(runs):
        inner.line(f"const long middle = start + width < {count} ? start + width : {count};")
        inner.line(f"const long end = middle + width < {count} ? middle + width : {count};")
        inner.line("const int32_t *from = places[now];")
        inner.line("long a = start, b = middle;")
        with inner.block("for (long i = start; i < end; i++)"):
            inner.line(f"const int take = a >= middle || (b < end && {second});")
            inner.line("places[!now][i] = take ? from[b++] : from[a++];")


def _divide(
    inner: Writer, key: Callable[[str], str], count: int, result: str, *, first: bool
) -> None:
    """Booleans are in order once those that are true, or false, come first."""
    inner.line("long n = 0;")
    for wanted in ("" if first else "!", "!" if first else ""):
        each = f"for (long at = 0; at < {count}; at++)"
        with inner.block(each), inner.block(f"if ({wanted}{key('at')})"):
            inner.line("const long i = n++;")
            inner.line("(void)i;")
            inner.line(f"y[{result}] = at;")

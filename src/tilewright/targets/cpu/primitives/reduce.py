"""Sums, means, products and extremes along axes, in vectors.

Where the axis that lies innermost is reduced, lanes run along it, several vectors side by side, and
are put together at the end. Where it is kept, each lane is an element of the result.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from math import prod

from tilewright.codegen.c.address import Address
from tilewright.codegen.c.source import Writer, literal, plus, total
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.primitives import general
from tilewright.targets.cpu.primitives.chain import Lanes
from tilewright.targets.cpu.primitives.code import (
    KernelCode,
    function,
    loops,
    parameters,
    write_call,
)

SIDE_BY_SIDE = 4
"""Vectors that a row is reduced to at once: sums wait for their last value alone."""

STARTS = {
    "reduce_max": "-INFINITY",
    "reduce_min": "INFINITY",
    "reduce_product": "1.0f",
}

COMBINED = {
    "reduce_max": "max_{form}({new}, {old})",
    "reduce_min": "min_{form}({new}, {old})",
    "reduce_product": "{old} * {new}",
}


def emit(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the call that reduces one row, or a few vectors of results side by side."""
    x = instance.tensor(0)
    if instance.split:
        raise instance.cannot("the reduction must be whole")
    wide = [d for d in instance.dims if d not in instance.reduction and instance.size(d) > 1]
    runs = _runs(instance, x)
    ended = any(dim in instance.ends for dim in instance.reduction)
    if runs is None or len(wide) > 1 or ended:
        general.emit(instance, code, writer)
        return
    if not wide and runs and runs[-1][1] == 1 and runs[-1][0] >= instance.lanes:
        inner = _row(instance, x, runs)
    elif wide and _in_lanes(instance, x, wide[0]):
        inner = _lanes(instance, x, runs, wide[0])
    else:
        general.emit(instance, code, writer)
        return
    write_call(instance, code, writer, f"{instance.anchor.operation}_tile", inner)


def _runs(instance: Instance, x: Address) -> list[tuple[int, int]] | None:
    """Count and step of every loop over reduced elements, the longest steps first; None if the
    elements do not lie at fixed steps."""
    runs: list[tuple[int, int]] = []
    for dim in instance.reduction:
        count = instance.size(dim)
        step = x.stride(dim, count, instance.dims)
        if step is None:
            # An axis in blocks of lanes: the blocks, and what lies in each.
            block, inside = instance.lanes, x.stride(dim, instance.lanes, instance.dims)
            step = x.block_stride(dim, block, count, instance.dims)
            if step is None or inside is None or count % block:
                return None
            runs.append((block, inside))
            count //= block
        if count > 1:
            runs.append((count, step))
    runs.sort(key=lambda run: -run[1])
    joined: list[tuple[int, int]] = []
    for count, step in runs:
        if joined and joined[-1][1] == step * count:
            joined[-1] = joined[-1][0] * count, step
        else:
            joined.append((count, step))
    return joined


def _in_lanes(instance: Instance, x: Address, dim: str) -> bool:
    """Return True if the input and the result both have stride 1 along a dim."""
    size = instance.size(dim)
    return all(a.stride(dim, size, instance.dims) == 1 for a in (x, instance.output))


def _combined(operation: str, new: str, old: str, form: str) -> str:
    return COMBINED.get(operation, "{old} + {new}").format(new=new, old=old, form=form)


@contextmanager
def _elements(writer: Writer, x: Address, runs: list[tuple[int, int]]) -> Generator[None]:
    """Write loops over the reduced elements; ``p`` points to the one that they stand at."""
    with loops(writer, [(f"r{number}", count) for number, (count, _) in enumerate(runs)]):
        offset = total([(step, f"r{number}") for number, (_, step) in enumerate(runs)])
        writer.line(f"const float *p = {plus(x.pointer, offset)};")
        yield


def _row(instance: Instance, x: Address, runs: list[tuple[int, int]]) -> Writer:
    """One result: lanes along the innermost axis."""
    operation, lanes = instance.anchor.operation, instance.lanes
    start = STARTS.get(operation, "0.0f")
    full, rest = divmod(runs[-1][0], lanes)
    groups, left = divmod(full, SIDE_BY_SIDE)
    with function(f"{runs[-1][0]} elements of a row", parameters(instance)) as inner:
        inner.line(f"vec s[{SIDE_BY_SIDE}];")
        inner.line(f"float t = {start};")
        inner.line(f"UNROLL for (int u = 0; u < {SIDE_BY_SIDE}; u++) s[u] = splat({start});")
        with _elements(inner, x, runs[:-1]):
            if groups:
                with inner.block(
                    f"for (long i = 0; i < {groups * SIDE_BY_SIDE}; i += {SIDE_BY_SIDE})"
                ):
                    value = _combined(operation, f"load(p + (i + u) * {lanes})", "s[u]", "v")
                    inner.line(f"UNROLL for (int u = 0; u < {SIDE_BY_SIDE}; u++) s[u] = {value};")
            for number in range(left):
                at = (groups * SIDE_BY_SIDE + number) * lanes
                value = _combined(operation, f"load(p + {at})", f"s[{number}]", "v")
                inner.line(f"s[{number}] = {value};")
            if rest:
                inner.line(f"for (long i = {full * lanes}; i < {runs[-1][0]}; i++)")
                inner.line(f"    t = {_combined(operation, 'p[i]', 't', 's')};")
        for half in (2, 1):
            for number in range(half):
                value = _combined(operation, f"s[{number + half}]", f"s[{number}]", "v")
                inner.line(f"s[{number}] = {value};")
        inner.line("UNROLL for (int i = 0; i < LANES; i++)")
        inner.line(f"    t = {_combined(operation, 's[0][i]', 't', 's')};")
        if operation == "reduce_mean":
            inner.line(f"t /= {literal(float(_count(instance)))};")
        general.finish(inner, instance)
    return inner


def _lanes(instance: Instance, x: Address, runs: list[tuple[int, int]], dim: str) -> Writer:
    """A result in each lane."""
    operation, lanes, size = instance.anchor.operation, instance.lanes, instance.size(dim)
    full, rest = divmod(size, lanes)
    vectors = full + (1 if rest else 0)
    with function(f"{size} rows side by side", parameters(instance)) as inner:
        inner.line(f"vec s[{vectors}];")
        start = STARTS.get(operation, "0.0f")
        inner.line(f"UNROLL for (int u = 0; u < {vectors}; u++) s[u] = splat({start});")
        with _elements(inner, x, runs):
            if full:
                value = _combined(operation, f"load(p + u * {lanes})", "s[u]", "v")
                inner.line(f"UNROLL for (int u = 0; u < {full}; u++) s[u] = {value};")
            if rest:
                value = _combined(
                    operation, f"load_part(p + {full * lanes}, {rest})", f"s[{full}]", "v"
                )
                inner.line(f"s[{full}] = {value};")
        for number in range(vectors):
            count = lanes if number < full else rest
            with inner.block():
                value = f"s[{number}]"
                if operation == "reduce_mean":
                    value += f" / {literal(float(_count(instance)))}"
                inner.line(f"const vec t = {value};")
                Lanes(instance, dim, str(number), count).finish(inner, "t")
    return inner


def _count(instance: Instance) -> int:
    """Elements that one result is made of."""
    return prod(instance.extents[dim] for dim in instance.reduction)

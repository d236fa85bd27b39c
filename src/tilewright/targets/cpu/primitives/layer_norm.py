"""Layer normalisation: rows that stay in the first cache, read three times."""

from __future__ import annotations

from tilewright.codegen.c.address import Address
from tilewright.codegen.c.source import Writer, literal, plus
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.primitives.chain import Lanes, loaded
from tilewright.targets.cpu.primitives.code import (
    KernelCode,
    function,
    parameters,
    write_call,
    write_vectors,
)

SUMS = 4
"""Sums that run side by side, for one would wait for each addition."""


def emit(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the call that normalises one row."""
    anchor, output = instance.anchor, instance.output
    operands = [operand for operand in anchor.inputs if isinstance(operand, Address)]
    axis = output.window[-1].dims[0]
    outer = [dim for dim in output.dims() if dim != axis]
    if len(operands) < len(anchor.inputs) or any(instance.size(dim) > 1 for dim in outer):
        raise instance.cannot("tiles hold one row of the axis")
    count, lanes = instance.size(axis), instance.lanes
    if any(a.stride(axis, count, instance.dims) is None for a in (operands[0], output)):
        raise instance.cannot("rows have no fixed stride")
    full, rest = divmod(count, lanes)

    def vector(operand: Address, at: str, part: int) -> str:
        place = plus(operand.pointer, Lanes(instance, axis, at, part).place(operand))
        stride = operand.stride(axis, count, instance.dims)
        if stride != 1 and count > 1:
            return f"gather({place}, {stride}, {part})"
        return loaded(instance, "", place, part)

    def add_up(inner: Writer, expression: str) -> None:
        """The sum of an expression of ``v`` over the row, into ``total``."""
        inner.line(f"vec s[{SUMS}] = {{{{0}}}};")
        groups, left = divmod(full, SUMS)
        if groups:
            loop = f"for (long i = 0; i < {groups}; i++)"
            with inner.block(f"{loop} UNROLL for (int u = 0; u < {SUMS}; u++)"):
                inner.line(f"const vec v = {vector(operands[0], f'(i * {SUMS} + u)', lanes)};")
                inner.line(f"s[u] += {expression};")
        for number in range(left):
            with inner.block():
                at = str(groups * SUMS + number)
                inner.line(f"const vec v = {vector(operands[0], at, lanes)};")
                inner.line(f"s[{number}] += {expression};")
        if rest:
            with inner.block():
                inner.line(f"const vec v = {vector(operands[0], str(full), rest)};")
                cleared = f"(vec)((mask)({expression}) & first_lanes({rest}))"
                inner.line(f"s[0] += {cleared};")
        inner.line("total = sum_v((s[0] + s[1]) + (s[2] + s[3]));")

    with function(f"{count} elements", parameters(instance)) as inner:
        inner.line("float total, mean = 0.0f;")
        if anchor.attributes.get("centred", True):
            with inner.block():
                add_up(inner, "v")
                inner.line(f"mean = total / {literal(count)};")
        with inner.block():
            add_up(inner, "(v - mean) * (v - mean)")
        epsilon = literal(float(anchor.attributes.get("epsilon", 1e-5)))
        inner.line(f"const float factor = 1.0f / sqrtf(total / {literal(count)} + {epsilon});")

        def write(at: str, part: int) -> None:
            inner.line(f"vec t = ({vector(operands[0], at, part)} - mean) * factor;")
            for operand, sign in zip(operands[1:], ("*", "+"), strict=False):
                inner.line(f"t = t {sign} {vector(operand, at, part)};")
            Lanes(instance, axis, at, part).finish(inner, "t")

        write_vectors(inner, count, lanes, write)
    write_call(instance, code, writer, "layer_norm_row", inner)

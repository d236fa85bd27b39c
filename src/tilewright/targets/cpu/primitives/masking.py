"""A choice by a mask where the result lies in its operand's place: what is chosen is there.

The network asks for it where values end early in a run: of an image whose rows all count, nothing
is written (graph/sized_network.py).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from tilewright.codegen.c.address import Address
from tilewright.codegen.c.source import Writer
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.primitives import indexing
from tilewright.targets.cpu.primitives.code import loops


@contextmanager
def in_place(instance: Instance, writer: Writer) -> Generator[None]:
    """Write the loops of a result in its operand's place, and around others what is written within
    the context."""
    operands = _operands(instance)
    if operands is None:
        yield
        return
    mask, x, other = operands
    output = instance.output
    names = {
        dim: f"{dim}_" if str(instance.dims[dim].start) == dim else dim
        for dim in instance.dims
        if instance.size(dim) > 1
    }
    outer = [dim for dim in names if dim in mask.dims()]
    inner = [dim for dim in names if dim not in outer]
    counts = {dim: (names[dim], instance.size(dim)) for dim in names}
    with (
        writer.block(f"if ({x.pointer} == {output.pointer})"),
        loops(writer, [counts[dim] for dim in outer]),
    ):
        chosen = indexing.element(instance, mask, names)
        with writer.block(f"if (!{chosen})"), loops(writer, [counts[dim] for dim in inner]):
            place = indexing.element(instance, output, names)
            writer.line(f"{place} = {indexing.element(instance, other, names)};")
    with writer.block("else"):
        yield


def _operands(instance: Instance) -> tuple[Address, Address, Address] | None:
    """The mask, which is one for some dims, the operand, and the one element in its place."""
    if len(instance.steps) != 1 or instance.anchor.operation != "select":
        return None
    output = instance.output
    match instance.anchor.inputs:
        case (Address() as mask, Address() as x, Address() as other):
            alike = (x.element, x.shape, x.window, x.layout, x.strides)
            same = alike == (
                output.element, output.shape, output.window, output.layout, output.strides,
            )  # fmt: skip
            dims = {dim for dim in instance.dims if instance.size(dim) > 1}
            some = bool(mask.dims()) and bool(dims - {*mask.dims()})
            return (mask, x, other) if same and some and not other.dims() else None
        case _:
            return None

"""Padding of images, row by row: filled, or copied with what is filled before and after it."""

from __future__ import annotations

from contextlib import ExitStack

from tilewright.codegen.c.address import Address
from tilewright.codegen.c.source import Writer, plus
from tilewright.codegen.nest.value import variable
from tilewright.numerics.element_types import size_of
from tilewright.planning.layout import Layout
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.primitives.code import loops


def emit(instance: Instance, writer: Writer) -> bool:
    """Write the rows' copies if the instance is such a padding; whether it is."""
    block = _block(instance)
    x, y = instance.anchor.inputs[0], instance.output
    if not block or not isinstance(x, Address):
        return False
    size = size_of(x.element) * block
    fill = _filled(instance)
    top, left = (-x.window[axis].offset for axis in (2, 3))
    (_, _, height, width), columns = x.shape, y.shape[3]
    counts = [instance.size("d0"), -(-instance.size("d1") // block), instance.size("d2")]
    starts = [instance.dims[f"d{axis}"].start for axis in range(3)]
    starts[1] //= block
    names = ["p0", "p1", "p2"]
    with ExitStack() as nest:
        nest.enter_context(writer.block())
        for axis, count in enumerate(counts):
            nest.enter_context(loops(writer, [(f"i{axis}", count)]))
            writer.line(f"const long p{axis} = {variable(f'i{axis}') + starts[axis]};")
        place = " + ".join(f"{n} * {s}" for n, s in zip(names, y.strides, strict=False))
        writer.line(f"{y.c_type} *q = {y.pointer} + {place};")
        writer.line(f"const long row = {plus('p2', f'-{top}' if top else '0')};")
        with writer.block(f"if (row < 0 || row >= {height})"):
            writer.line(f"memset(q, {fill}, {columns * size});")
        with writer.block("else"):
            names[2] = "row"
            place = " + ".join(f"{n} * {s}" for n, s in zip(names, x.strides, strict=False))
            if left:
                writer.line(f"memset(q, {fill}, {left * size});")
            writer.line(f"memcpy(q + {left * block}, {x.pointer} + {place}, {width * size});")
            after = columns - left - width
            if after:
                writer.line(f"memset(q + {(left + width) * block}, {fill}, {after * size});")
    return True


def _filled(instance: Instance) -> str:
    """The byte that lies around the image."""
    computed = instance.anchor.inputs[1:]
    if computed and isinstance(computed[0], Address):
        return f"*{computed[0].pointer}"
    return str(int(instance.anchor.attributes.get("value", 0.0)) & 255)


def _block(instance: Instance) -> int:
    """Channels that lie innermost (1: rows of pixels); 0 if the instance is no such padding."""
    step, y = instance.anchor, instance.output
    x = step.inputs[0]
    if step.operation != "pad" or len(instance.steps) != 1 or not isinstance(x, Address):
        return 0
    value = float(step.attributes.get("value", 0.0))
    zeros = len(step.inputs) == 1 and str(value) == "0.0"
    if size_of(x.element) > 1 and not zeros:
        return 0
    if len(x.shape) != 4 or x.layout != y.layout or x.shape[:2] != y.shape[:2]:
        return 0
    for axis, (source, target) in enumerate(zip(x.window, y.window, strict=True)):
        plain = ((f"d{axis}", 1),)
        if source.terms not in (plain, ()) or target.terms not in (plain, ()) or target.offset:
            return 0
        if source.terms != target.terms or (axis < 2 and source.offset) or source.offset > 0:
            return 0
    if y.window[2].terms == () or y.window[3].terms == ():
        return 0
    factors = x.layout.factors
    block = factors[-1].modulus or 1
    wanted = f"NCHW{block}c" if block > 1 else ""
    if x.layout != Layout.parse(wanted, 4):
        return 0
    if any(a.strides[3] != block or (block > 1 and a.strides[4] != 1) for a in (x, y)):
        return 0
    channels = instance.dims.get("d1")
    if channels is None or instance.size("d3") != y.shape[3] or "d0" not in instance.dims:
        return 0
    whole = channels.size == y.shape[1]
    return block if whole or not (channels.size % block or channels.multiple % block) else 0

"""The C code that copies the caller's arrays into the workspace and out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tilewright.codegen.c.source import Writer
from tilewright.codegen.host.copies import ArrayInC, write_copy
from tilewright.codegen.host.ports import NamedPort
from tilewright.graph.placement import WEIGHTS
from tilewright.numerics.element_types import dtype_named

DIVIDED_BYTES, DIVIDED_ROWS = 1 << 16, 64
"""The least bytes and rows of an image that all threads copy together, each some of the rows."""


def enter_text(ports: Sequence[NamedPort], sizes: Mapping[str, str]) -> str:
    """Lines that copy one thread's part of the caller's arrays into the workspace; ``sizes`` are C
    of the sizes at which axes end."""
    writer = Writer(1)
    for port in ports:
        if divided(port):
            _write_part(writer, port)
    others = [port for port in ports if not divided(port)]
    if others:
        writer.line("if (part)")
        writer.line("    return;")
    for port in others:
        _write_copy(writer, port, sizes, entering=True)
    return "\n".join(writer.lines)


def leave_text(ports: Sequence[NamedPort], sizes: Mapping[str, str]) -> str:
    """Lines that copy the results to the caller's arrays; see ``enter_text``."""
    writer = Writer(1)
    for port in ports:
        _write_copy(writer, port, sizes, entering=False)
    return "\n".join(writer.lines)


def divided(port: NamedPort) -> bool:
    """Return True if an input is so large that all threads copy it."""
    if port.ends or not port.dense or len(port.shape) < 2 or port.shape[-2] < DIVIDED_ROWS:
        return False
    return port.elements * dtype_named(port.dtype).itemsize >= DIVIDED_BYTES


def _write_part(writer: Writer, port: NamedPort) -> None:
    """Copy this thread's rows of an image: those that it reads first if kernels divide rows."""
    rows, columns = port.shape[-2:]
    place = f"({port.c_type} *)((unsigned char *)workspace + {port.offset}) + at"
    with writer.block():
        writer.line(f"const long first = {rows}L * part / parts * {columns};")
        writer.line(f"const long end = {rows}L * (part + 1) / parts * {columns};")
        head = f"for (long at = first; at < {port.elements}; at += {rows * columns})"
        with writer.block(head):
            size = f"(size_t)(end - first) * sizeof({port.c_type})"
            writer.line(f"memcpy({place}, {port.identifier} + at, {size});")


def _write_copy(
    writer: Writer, port: NamedPort, sizes: Mapping[str, str], *, entering: bool
) -> None:
    arena = "weights" if port.arena == WEIGHTS else "workspace"
    constant = "" if entering else "const "
    place = f"({constant}{port.c_type} *)(({constant}unsigned char *){arena} + {port.offset})"
    inside, outside = ArrayInC.of(port, place), ArrayInC.dense(port.identifier, port.shape)
    if port.ends:
        ends = {axis: sizes[size] for axis, size in port.ends.items()}
        _write_begin(writer, port, inside, ends, entering=entering)
        return
    to, source = (inside, outside) if entering else (outside, inside)
    write_copy(writer, port.c_type, to, source)


def _write_begin(
    writer: Writer, port: NamedPort, inside: ArrayInC, ends: Mapping[int, str], *, entering: bool
) -> None:
    """Copy the elements before the ends of axes: ``inside`` has room for more. Axes after the
    last of these are copied at once where they are contiguous in both.
    """
    extents = [ends.get(axis, str(extent)) for axis, extent in enumerate(port.shape)]
    once = max(ends) if port.dense else len(extents)
    indices = [f"a{axis}" for axis in range(once)]
    outer = "0"
    for index, extent in zip(indices, extents, strict=False):
        writer.line(f"for (long {index} = 0; {index} < {extent}; {index}++)")
        outer = index if outer == "0" else f"({outer} * {extent} + {index})"
    writer.depth += bool(indices)
    if once < len(extents):
        count = f"{extents[once]} * {prod(port.shape[once + 1 :])}"
        at = inside.element([*indices, *["0"] * (len(extents) - once)])
        places = [f"{inside.pointer} + {at}", f"{port.identifier} + {outer} * {count}"]
        to, source = places if entering else places[::-1]
        size = f"(size_t)({count}) * sizeof({port.c_type})"
        writer.line(f"memcpy({to}, {source}, {size});")
    else:
        places = [f"({inside.pointer})[{inside.element(indices)}]", f"{port.identifier}[{outer}]"]
        to, source = places if entering else places[::-1]
        writer.line(f"{to} = {source};")
    writer.depth -= bool(indices)

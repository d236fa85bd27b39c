"""The C code that copies the caller's arrays into the workspace and out of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.codegen.c.source import Writer
from tilewright.codegen.host.ports import Port
from tilewright.graph.placement import WEIGHTS
from tilewright.planning.layout import Layout

DIVIDED_BYTES, DIVIDED_ROWS = 1 << 16, 64
"""Images of so many bytes and rows are copied by all threads, each some of the rows."""


def enter_text(ports: Sequence[Port]) -> str:
    """Lines that copy one thread's part of the caller's arrays into the workspace."""
    writer = Writer(1)
    for port in ports:
        if divided(port):
            _write_part(writer, port)
    others = [port for port in ports if not divided(port)]
    if others:
        writer.line("if (part)")
        writer.line("    return;")
    for port in others:
        _write_copy(writer, port, True)
    return "\n".join(writer.lines)


def leave_text(ports: Sequence[Port]) -> str:
    """Lines that copy the results to the caller's arrays."""
    writer = Writer(1)
    for port in ports:
        _write_copy(writer, port, False)
    return "\n".join(writer.lines)


def divided(port: Port) -> bool:
    """Return True if an input is so large that all threads copy it."""
    if not port.dense or len(port.shape) < 2 or port.shape[-2] < DIVIDED_ROWS:
        return False
    return port.elements * np.dtype(port.dtype).itemsize >= DIVIDED_BYTES


def _write_part(writer: Writer, port: Port) -> None:
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


def _write_copy(writer: Writer, port: Port, entering: bool) -> None:
    arena = "weights" if port.arena == WEIGHTS else "workspace"
    constant = "" if entering else "const "
    place = f"({constant}{port.c_type} *)(({constant}unsigned char *){arena} + {port.offset})"
    if port.dense:
        size = f"{port.elements} * sizeof({port.c_type})"
        if entering:
            writer.line(f"memcpy({place}, {port.identifier}, {size});")
        else:
            writer.line(f"memcpy({port.identifier}, {place}, {size});")
        return
    layout = Layout.parse(port.layout, len(port.shape))
    with writer.block():
        writer.line(f"{constant}{port.c_type} *place = {place};")
        writer.line("long i = 0;")
        for axis, extent in enumerate(port.shape):
            writer.line(f"for (long a{axis} = 0; a{axis} < {extent}; a{axis}++)")
        terms: list[str] = []
        for factor, stride in zip(layout.factors, port.strides, strict=True):
            digit = f"a{factor.axis}"
            digit += f" / {factor.divisor}" if factor.divisor > 1 else ""
            digit += f" % {factor.modulus}" if factor.modulus else ""
            terms.append(f"{digit} * {stride}")
        target = f"place[{' + '.join(terms) or '0'}]"
        mine = f"{port.identifier}[i++]"
        writer.line("    " + (f"{target} = {mine};" if entering else f"{mine} = {target};"))

"""The C code that copies the caller's arrays into the workspace and out of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.codegen.c.source import Writer
from tilewright.codegen.host.copies import ArrayInC, write_copy
from tilewright.codegen.host.ports import NamedPort
from tilewright.graph.placement import WEIGHTS

DIVIDED_BYTES, DIVIDED_ROWS = 1 << 16, 64
"""The least bytes and rows of an image that all threads copy together, each some of the rows."""


def enter_text(ports: Sequence[NamedPort]) -> str:
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


def leave_text(ports: Sequence[NamedPort]) -> str:
    """Lines that copy the results to the caller's arrays."""
    writer = Writer(1)
    for port in ports:
        _write_copy(writer, port, False)
    return "\n".join(writer.lines)


def divided(port: NamedPort) -> bool:
    """Return True if an input is so large that all threads copy it."""
    if not port.dense or len(port.shape) < 2 or port.shape[-2] < DIVIDED_ROWS:
        return False
    return port.elements * np.dtype(port.dtype).itemsize >= DIVIDED_BYTES


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


def _write_copy(writer: Writer, port: NamedPort, entering: bool) -> None:
    arena = "weights" if port.arena == WEIGHTS else "workspace"
    constant = "" if entering else "const "
    place = f"({constant}{port.c_type} *)(({constant}unsigned char *){arena} + {port.offset})"
    inside, outside = ArrayInC.of(port, place), ArrayInC.dense(port.identifier, port.shape)
    to, source = (inside, outside) if entering else (outside, inside)
    write_copy(writer, port.c_type, to, source)

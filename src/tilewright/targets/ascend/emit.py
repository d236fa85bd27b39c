"""A program as CCE C: what a CCE compiler takes, and any C compiler beside shim/cce.h.

CCE compilers read it as C++, where a function's symbol is its own name only if it is declared so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from tilewright.codegen.c.source import Writer, comment
from tilewright.codegen.nest.value import of
from tilewright.targets.ascend.isa import element_of
from tilewright.targets.ascend.program import (
    ASSIGNMENTS,
    BLOCK_INDEX,
    LENGTH,
    Command,
    Flag,
    Loop,
    Place,
    Program,
    Statement,
    Tensor,
)

WIDTH = 100
"""The most columns of a line of C."""

QUALIFIERS = {
    "gm": "__gm__",
    "cbuf": "__cbuf__",
    "ca": "__ca__",
    "cb": "__cb__",
    "cc": "__cc__",
    "ub": "__ubuf__",
}
"""Address spaces in CCE C."""

PROLOGUE = """\
#ifndef __CCE_AICORE__ /* of no CCE compiler, but on the host */
#include "cce.h"
#endif
"""

EXTREMES = {"MIN": "<", "MAX": ">"}
"""Macros of those kernels that take the smaller or the larger of two numbers."""

LINKAGE = """\
#ifdef __cplusplus
extern "C"
#endif
"""


def signature(program: Program) -> str:
    """Return the kernel's declaration in CCE C."""
    parameters = [f"__gm__ {tensor.element} *{tensor.name}" for tensor in program.tensors]
    if program.longest:
        parameters.append(f"int64_t {LENGTH}")
    return f"__global__ __aicore__ void {program.name}({', '.join(parameters)})"


def kernel_text(program: Program) -> str:
    """The C file of one kernel."""
    writer = Writer()
    for line in program.about.splitlines():
        writer.line(f"/* {comment(line)} */")
    writer.lines += PROLOGUE.splitlines()
    writer.line()
    head = len(writer.lines)
    writer.lines += LINKAGE.splitlines()
    writer.line(f"{signature(program)};")
    writer.line()
    with writer.block(signature(program)):
        for buffer in program.buffers:
            slots = f", {buffer.slots} slots" if buffer.slots > 1 else ""
            text = f"{buffer.name}: {buffer.bytes} bytes of {buffer.memory} at {buffer.address}"
            writer.line(f"/* {comment(text + slots)} */")
        if program.longest:
            writer.line(f"/* {LENGTH}: 1 to {program.longest} */")
        if program.blocks > 1:
            writer.line(f"/* {BLOCK_INDEX}: 0 to {program.blocks - 1} */")
        for name, value in program.constants:
            writer.line(f"const int64_t {name} = {value};")
        start = len(writer.lines)
        _body(writer, program.body)
        body = "\n".join(writer.lines[start:])
        unused = [each.name for each in program.tensors if not _names(body, each.name)]
        writer.lines[start:start] = [f"    (void){name};" for name in unused]
    text = str(writer)
    used = [
        f"#define {name}(a, b) ((a) {sign} (b) ? (a) : (b))"
        for name, sign in EXTREMES.items()
        if f"{name}(" in text
    ]
    writer.lines[head:head] = [*used, ""] if used else []
    return str(writer)


def _names(text: str, name: str) -> bool:
    """Return True if C names something."""
    return re.search(rf"\b{name}\b", text) is not None


def uses_length(program: Program) -> bool:
    """Return True if anything in a kernel depends on ``LENGTH``."""
    return _names(kernel_text(replace(program, longest=0, about="")), str(LENGTH))


def _body(writer: Writer, body: Sequence[Statement]) -> None:
    for statement in body:
        if isinstance(statement, Loop) and statement.count == 1:
            _body(writer, statement.body)
        elif isinstance(statement, Loop):
            name = statement.name
            head = f"for (int64_t {name} = 0; {name} < {statement.count}; {name}++)"
            with writer.block(head):
                _body(writer, statement.body)
        elif isinstance(statement, Command) and statement.name in ASSIGNMENTS:
            name, value = statement.arguments
            writer.line(f"{ASSIGNMENTS[statement.name]}{name} = {value};")
        elif isinstance(statement, Command):
            _call(writer, statement)
        elif isinstance(statement, Flag):
            event = statement.event
            shown = f"EVENT_ID{event}" if isinstance(event, int) else f"(event_t)({event})"
            pair = f"PIPE_{statement.source}, PIPE_{statement.target}"
            writer.line(f"{statement.kind}_flag({pair}, {shown});")
        else:
            writer.line(f"pipe_barrier(PIPE_{statement.pipe});")


def _call(writer: Writer, command: Command) -> None:
    words = [_argument(argument) for argument in command.arguments]
    lines = [f"{command.name}("]
    room = WIDTH - 4 * writer.depth
    for number, word in enumerate(words):
        piece = word + (");" if number == len(words) - 1 else ",")
        space = "" if lines[-1].endswith("(") else " "
        if len(lines[-1]) + len(space) + len(piece) <= room:
            lines[-1] += space + piece
        else:
            lines.append(" " * 8 + piece)
    for line in lines:
        writer.line(line)


def _argument(argument: object) -> str:
    if isinstance(argument, Place):
        return pointer(argument)
    if isinstance(argument, tuple):
        rows = [of(row.address).text for row in argument if isinstance(row, Place)]
        return "((uint64_t[]){" + ", ".join(rows) + "})"
    return str(argument)


def pointer(place: Place) -> str:
    """An address as a pointer of its memory and element."""
    kind = f"({QUALIFIERS[place.memory]} {element_of(place)} *)"
    address = place.address
    if isinstance(place.home, Tensor):
        if address == 0 and element_of(place) == place.home.element:
            return place.home.name
        base = f"(__gm__ uint8_t *){place.home.name}"
        return f"{kind}({base} + {address})" if address != 0 else f"{kind}{place.home.name}"
    shown = hex(address) if isinstance(address, int) else f"({address})"
    return f"{kind}(uintptr_t){shown}"

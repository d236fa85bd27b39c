"""main.c: allocation, parameters and input, computation in the order of dependences, output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.codegen.c.source import Writer
from tilewright.codegen.host.loops import LoopCopies
from tilewright.codegen.host.main import Main
from tilewright.system.template import filled
from tilewright.targets.sunway.emit.layer import TEMPLATES, LayerHead

WIDTH = 100
"""Columns of a line of C."""


@dataclass(frozen=True)
class Call:
    """A call of a layer: its function, the arguments in C, and where its result lies."""

    layer: LayerHead
    arguments: tuple[str, ...]
    result: tuple[str, int]
    """The place of the result in C, and its bytes up to the last."""
    groups: int = 1
    """Core groups that have a part of it; one of several is the first."""


@dataclass(frozen=True)
class LoopCalls:
    """A loop of layers: the number of its rounds, and what is copied around each."""

    name: str
    about: str
    rounds: int
    copies: LoopCopies
    calls: tuple[Call | LoopCalls, ...]
    result: tuple[str, int]
    """The place of its result in C, and its bytes up to the last."""


def layer_calls(calls: Sequence[Call | LoopCalls]) -> Iterator[Call]:
    """The calls of layers, those in loops included."""
    for call in calls:
        if isinstance(call, LoopCalls):
            yield from layer_calls(call.calls)
        else:
            yield call


def main_text(network: str, calls: Sequence[Call | LoopCalls], main: Main, groups: int = 1) -> str:
    """The file. With several core ``groups``, a thread on each MPE calls the layers, and all meet
    after each."""
    computation, body, count = Writer(1), Writer(), len(main.listed)
    _write_computation(computation, calls, groups)
    with main.write(body, f"layers = count > {count} ? words[{count}] : NULL;"):
        body.line("/* Computation. */")
        if groups > 1:
            body.text(filled(TEMPLATES / "threads.c.in", groups=groups).rstrip("\n"))
        else:
            body.lines += computation.lines
    return filled(
        TEMPLATES / "main.c.in",
        network=network,
        copies=any(isinstance(call, LoopCalls) for call in calls),
        usage=main.usage,
        threads=groups > 1,
        declaration=main.declaration,
        computation="\n".join(computation.lines),
        main="\n".join(body.lines),
    )


def _write_computation(writer: Writer, calls: Sequence[Call | LoopCalls], groups: int) -> None:
    """Write the calls of the layers by an MPE, one of several if there are more ``groups``."""
    writer.line("athread_init();")
    for call in calls:
        _write_call(writer, call, groups)
        name = call.name if isinstance(call, LoopCalls) else call.layer.name
        function = "done(group, " if groups > 1 else "save("
        writer.line(f'{function}"{name}", {call.result[0]}, {call.result[1]});')
    writer.line("athread_halt();")


def _write_call(writer: Writer, call: Call | LoopCalls, groups: int) -> None:
    """Write a call, after which several core groups have yet to meet."""
    if isinstance(call, LoopCalls):
        _write_loop(writer, call, groups)
        return
    writer.line(f"/* {call.layer.about} */")
    if call.groups < groups:
        writer.line(f"if (group < {call.groups})")
    writer.lines += _call(call, writer.depth + (call.groups < groups))


def _write_loop(writer: Writer, loop: LoopCalls, groups: int) -> None:
    """Write a loop. With several core groups the first one copies, and the others wait for it."""
    writer.line(f"/* {loop.about} */")
    _write_copies(writer, loop.copies.begin, groups)
    with writer.block(f"for (long round = 0; round < {loop.rounds}; round++)"):
        _write_copies(writer, loop.copies.enter, groups)
        for call in loop.calls:
            if groups > 1:
                writer.line("pthread_barrier_wait(&all);")
            _write_call(writer, call, groups)
        if groups > 1:
            writer.line("pthread_barrier_wait(&all);")
        _write_copies(writer, loop.copies.leave, groups)


def _write_copies(writer: Writer, copies: Writer, groups: int) -> None:
    if not copies.lines:
        return
    if groups == 1:
        writer.text("\n".join(copies.lines))
        return
    with writer.block("if (group == 0)"):
        writer.text("\n".join(copies.lines))


def _call(call: Call, depth: int) -> list[str]:
    """The call of a layer, as many arguments on a line as find room."""
    first = "    " * depth + f"{call.layer.name}("
    arguments = [*(["group"] if call.layer.grouped else []), *call.arguments]
    lines = [first + arguments[0]]
    for argument in arguments[1:]:
        if len(lines[-1]) + len(argument) + 4 <= WIDTH:
            lines[-1] += f", {argument}"
        else:
            lines[-1] += ","
            lines.append(" " * len(first) + argument)
    lines[-1] += ");"
    return lines


def layers_text(calls: Sequence[Call | LoopCalls]) -> str:
    """layers.h, which declares the layers for main.c."""
    names = dict.fromkeys(call.layer.name for call in layer_calls(calls))
    return "\n".join(["/* The layers. */", *(f'#include "{name}.h"' for name in names), ""])

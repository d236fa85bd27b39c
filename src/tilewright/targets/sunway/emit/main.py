"""main.c: allocation, parameters and input, computation in the order of dependences, output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.codegen.c.source import Writer
from tilewright.codegen.host.main import Main
from tilewright.targets.sunway.emit.layer import LayerHead

WIDTH = 100
"""Columns of a line of C."""


@dataclass(frozen=True)
class Call:
    """A call of a layer: its function, the arguments in C, and where its result lies."""

    layer: LayerHead
    arguments: tuple[str, ...]
    result: tuple[str, int]
    """Where it writes in C, and how many bytes up to the last."""
    groups: int = 1
    """Core groups that have a part of it; one of several is the first."""


def main_text(network: str, calls: Sequence[Call], main: Main, groups: int = 1) -> str:
    """The file. With several core ``groups``, a thread on each MPE calls the layers, and all meet
    behind each."""
    writer = Writer()
    writer.text(f"""\
/* {network}: MAIN {main.usage}

   Inputs are read from and outputs written to files of their elements, row-major. With
   LAYERS, a directory, the memory of every layer's result is written there, too, as
   LAYER.bin, once the layer is done. */""")
    if groups > 1:
        writer.line("#define _GNU_SOURCE")
    writer.text(f"""\
#include <stdio.h>
#include <stdlib.h>

#include <athread.h>

#include "{"core_groups" if groups > 1 else "save"}.h"
#include "layers/layers.h"

{main.declaration}
""")
    if groups > 1:
        writer.line("/* What the MPE of a core group runs. */")
        with writer.block("static void *core_group(void *number)"):
            writer.line("const long group = (long)number;")
            writer.line("bind(group);")
            _computation(writer, calls, groups)
            writer.line("return NULL;")
        writer.line()
    count = len(main.listed)
    with main.write(writer, f"layers = count > {count} ? words[{count}] : NULL;"):
        writer.line("/* Computation. */")
        if groups > 1:
            writer.text(_THREADS.replace("GROUPS", str(groups)))
        else:
            _computation(writer, calls, groups)
    return str(writer)


def _computation(writer: Writer, calls: Sequence[Call], groups: int) -> None:
    """Write the calls of the layers by an MPE, one of several if there are more ``groups``."""
    writer.line("athread_init();")
    for call in calls:
        writer.line(f"/* {call.layer.about} */")
        if call.groups < groups:
            writer.line(f"if (group < {call.groups})")
        writer.lines += _call(call, writer.depth + (call.groups < groups))
        function = "done(group, " if groups > 1 else "save("
        writer.line(f'{function}"{call.layer.name}", {call.result[0]}, {call.result[1]});')
    writer.line("athread_halt();")


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


def layers_text(calls: Sequence[Call]) -> str:
    """layers.h, which declares the layers for main.c."""
    names = dict.fromkeys(call.layer.name for call in calls)
    return "\n".join(["/* The layers. */", *(f'#include "{name}.h"' for name in names), ""])


_THREADS = """\
pthread_t threads[GROUPS];
pthread_barrier_init(&all, NULL, GROUPS);
for (long group = 0; group < GROUPS; group++)
    if (pthread_create(&threads[group], NULL, core_group, (void *)group)) {
        fprintf(stderr, "no thread for core group %ld\\n", group);
        return 1;
    }
for (long group = 0; group < GROUPS; group++)
    pthread_join(threads[group], NULL);
pthread_barrier_destroy(&all);"""

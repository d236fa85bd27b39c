"""main.c: allocation, parameters and input, computation in the order of dependences, output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.codegen.c.files import FILES
from tilewright.codegen.c.source import Writer, comment, string
from tilewright.codegen.host.ports import Port
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


def main_text(
    network: str,
    calls: Sequence[Call],
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    sizes: Sequence[int],
    groups: int = 1,
) -> str:
    """The file; ``sizes`` are bytes of weights, activations and the temporary space.

    With several core ``groups``, a thread on each MPE calls the layers, and all meet behind each.
    """
    writer = Writer()
    line = writer.line
    names = [comment(port.name) for port in (*inputs, *outputs)]
    line(f"/* {network}: MAIN weights.bin {' '.join(names)} [LAYERS]")
    line()
    line("   Inputs are read from and outputs written to files of their elements, row-major. With")
    line("   LAYERS, a directory, the memory of every layer's result is written there, too, as")
    line("   LAYER.bin, once the layer is done. */")
    if groups > 1:
        line("#define _GNU_SOURCE")
    line("#include <stdio.h>")
    line("#include <stdlib.h>")
    line()
    line("#include <athread.h>")
    line()
    if groups > 1:
        line('#include "core_groups.h"')
    line('#include "files.h"')
    line('#include "layers/layers.h"')
    line()
    writer.lines += _ALLOCATE.splitlines()
    line()
    if groups > 1:
        line("/* What the threads of all core groups see. */")
        line(f"static void *weights, *activations{', *temporary' if sizes[2] else ''};")
        line()
        _core_group(writer, calls, groups)
        line()
    with writer.block("int main(int count, char **words)"):
        files = 1 + len(inputs) + len(outputs)
        with writer.block(f"if (count < {files + 1} || count > {files + 2})"):
            text = string(f"%s weights.bin {' '.join(names)} [LAYERS]\\n")
            line(f"fprintf(stderr, {text.replace(chr(92) + '134n', chr(92) + 'n')}, words[0]);")
            line("return 2;")
        kind = "" if groups > 1 else "const char *"
        line(f"{kind}layers = count > {files + 1} ? words[{files + 1}] : NULL;")
        line()
        line("/* Memory. */")
        kind = "" if groups > 1 else "void *"
        line(f"{kind}weights = allocate({sizes[0]});")
        line(f"{kind}activations = allocate({sizes[1]});")
        if sizes[2]:
            line("/* One space for what layers need while they run, as large as any needs. */")
            line(f"{kind}temporary = allocate({sizes[2]});")
        line()
        line("/* Parameters and input. */")
        line(f"read_file(words[1], weights, {sizes[0]});")
        for number, port in enumerate(inputs, 2):
            line(f"/* {comment(port.name)}: {port.dtype}{comment(str(list(port.shape)))} */")
            line(f"read_file(words[{number}], {_place(port)}, {port.bytes});")
        line()
        line("/* Computation. */")
        if groups > 1:
            writer.lines += [f"    {text}" for text in _threads(groups)]
        else:
            line("athread_init();")
            for call in calls:
                line(f"/* {call.layer.about} */")
                writer.lines += _call(call, writer.depth)
                place, size = call.result
                line(f'save(layers, "{call.layer.name}", {place}, {size});')
            line("athread_halt();")
        line()
        line("/* Output. */")
        for number, port in enumerate(outputs, 2 + len(inputs)):
            line(f"/* {comment(port.name)}: {port.dtype}{comment(str(list(port.shape)))} */")
            line(f"write_file(words[{number}], {_place(port)}, {port.bytes});")
        line()
        if sizes[2]:
            line("free(temporary);")
        line("free(activations);")
        line("free(weights);")
        line("return 0;")
    return str(writer)


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


def _core_group(writer: Writer, calls: Sequence[Call], groups: int) -> None:
    """Write the function that a core group's MPE runs: its part of each layer in turn."""
    line = writer.line
    line("/* What the MPE of a core group runs. */")
    with writer.block("static void *core_group(void *number)"):
        line("const long group = (long)number;")
        line("bind(group);")
        line("athread_init();")
        for call in calls:
            line(f"/* {call.layer.about} */")
            if call.groups < groups:
                line(f"if (group < {call.groups})")
            writer.lines += _call(call, writer.depth + (call.groups < groups))
            place, size = call.result
            line(f'done(group, "{call.layer.name}", {place}, {size});')
        line("athread_halt();")
        line("return NULL;")


def _threads(groups: int) -> list[str]:
    """C that runs a thread for each core group."""
    return f"""\
pthread_t threads[{groups}];
pthread_barrier_init(&all, NULL, {groups});
for (long group = 0; group < {groups}; group++)
    if (pthread_create(&threads[group], NULL, core_group, (void *)group)) {{
        fprintf(stderr, "no thread for core group %ld\\n", group);
        return 1;
    }}
for (long group = 0; group < {groups}; group++)
    pthread_join(threads[group], NULL);
pthread_barrier_destroy(&all);""".splitlines()


def _place(port: Port) -> str:
    arena = "weights" if port.arena == "weights" else "activations"
    return f"{arena} + {port.offset}"


_ALLOCATE = """\
static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory) {
        fprintf(stderr, "%lu bytes of memory are not there\\n", (unsigned long)bytes);
        exit(1);
    }
    return memory;
}"""

_FILES = """\
/* Reads and writes whole files for main.c, or ends the program with the reason. */
#ifndef FILES_H
#define FILES_H

#include <stdio.h>
#include <stdlib.h>

BODY
/* Writes the memory of a layer's result into the directory LAYERS, if there is one. */
static void save(const char *layers, const char *layer, const char *data, size_t bytes)
{
    char path[4096];
    if (!layers)
        return;
    snprintf(path, sizeof path, "%s/%s.bin", layers, layer);
    write_file(path, data, bytes);
}

#endif
"""

_GROUPS = """\
/* Threads of main.c, one for the MPE of each core group: where they run, and how they meet. */
#ifndef CORE_GROUPS_H
#define CORE_GROUPS_H

#include <pthread.h>
#include <sched.h>

#include "files.h"

static const char *layers;
static pthread_barrier_t all;

/* Runs this thread on the MPE of a core group: processors 0, 4, 8, 12. */
static void bind(long group)
{
    cpu_set_t processors;
    CPU_ZERO(&processors);
    CPU_SET(4 * group, &processors);
    if (pthread_setaffinity_np(pthread_self(), sizeof processors, &processors)) {
        fprintf(stderr, "core group %ld of GROUPS has no MPE\\n", group);
        exit(1);
    }
}

/* Waits until all core groups have done a layer. */
static void done(long group, const char *layer, const char *data, size_t bytes)
{
    pthread_barrier_wait(&all);
    if (!layers)
        return;
    if (group == 0)
        save(layers, layer, data, bytes);
    pthread_barrier_wait(&all);
}

#endif
"""


def main_headers(groups: int) -> dict[str, str]:
    """Return the headers that main.c includes beside layers.h, by file."""
    headers = {"files.h": _FILES.replace("BODY\n", FILES + "\n")}
    if groups > 1:
        headers["core_groups.h"] = _GROUPS.replace("of GROUPS", f"of {groups}")
    return headers

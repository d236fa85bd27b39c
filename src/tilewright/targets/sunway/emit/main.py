"""main.c: allocation, parameters and input, computation in the order of dependences, output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.codegen.c.files import FILES
from tilewright.codegen.c.source import Writer, comment, string
from tilewright.targets.cpu.ports import Port
from tilewright.targets.sunway.emit.layer import LayerHead


@dataclass(frozen=True)
class Call:
    """A call of a layer: its function, the arguments in C, and where its result lies."""

    layer: LayerHead
    arguments: tuple[str, ...]
    result: tuple[int, int]
    """Of what it writes among the activations: the first byte, and how many up to the last."""


def main_text(
    network: str,
    calls: Sequence[Call],
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    sizes: tuple[int, int, int],
) -> str:
    """The file; ``sizes`` are bytes of weights, activations and the temporary space."""
    writer = Writer()
    line = writer.line
    names = [comment(port.name) for port in (*inputs, *outputs)]
    line(f"/* {network}: MAIN weights.bin {' '.join(names)} [LAYERS]")
    line()
    line("   Inputs are read from and outputs written to files of their elements, row-major. With")
    line("   LAYERS, a directory, the memory of every layer's result is written there, too, as")
    line("   LAYER.bin, once the layer is done. */")
    line("#include <stdio.h>")
    line("#include <stdlib.h>")
    line()
    line("#include <athread.h>")
    line()
    for call in dict.fromkeys(call.layer.name for call in calls):
        line(f'#include "layers/{call}.h"')
    line()
    writer.lines += [*FILES.splitlines(), "", *_HELPERS.splitlines()]
    line()
    with writer.block("int main(int count, char **words)"):
        files = 1 + len(inputs) + len(outputs)
        with writer.block(f"if (count < {files + 1} || count > {files + 2})"):
            text = string(f"%s weights.bin {' '.join(names)} [LAYERS]\\n")
            line(f"fprintf(stderr, {text.replace(chr(92) + '134n', chr(92) + 'n')}, words[0]);")
            line("return 2;")
        line(f"const char *layers = count > {files + 1} ? words[{files + 1}] : NULL;")
        line()
        line("/* Memory. */")
        line(f"char *weights = allocate({sizes[0]});")
        line(f"char *activations = allocate({sizes[1]});")
        if sizes[2]:
            line("/* One space for what layers need while they run, as large as any needs. */")
            line(f"char *temporary = allocate({sizes[2]});")
        line()
        line("/* Parameters and input. */")
        line(f"read_file(words[1], weights, {sizes[0]});")
        for number, port in enumerate(inputs, 2):
            line(f"/* {comment(port.name)}: {port.dtype}{comment(str(list(port.shape)))} */")
            line(f"read_file(words[{number}], {_place(port)}, {port.bytes});")
        line()
        line("/* Computation. */")
        line("athread_init();")
        for call in calls:
            line(f"/* {call.layer.about} */")
            head = f"{call.layer.name}("
            for number, argument in enumerate(call.arguments):
                end = ");" if number == len(call.arguments) - 1 else ","
                line(f"{head if not number else ' ' * len(head)}{argument}{end}")
            start, size = call.result
            line(f'save(layers, "{call.layer.name}", activations + {start}, {size});')
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


def _place(port: Port) -> str:
    arena = "weights" if port.arena == "weights" else "activations"
    return f"{arena} + {port.offset}"


_HELPERS = """\
static char *allocate(size_t bytes)
{
    char *memory = malloc(bytes ? bytes : 1);
    if (!memory) {
        fprintf(stderr, "%lu bytes of memory are not there\\n", (unsigned long)bytes);
        exit(1);
    }
    return memory;
}

static void save(const char *layers, const char *layer, const char *data, size_t bytes)
{
    char path[4096];
    if (!layers)
        return;
    snprintf(path, sizeof path, "%s/%s.bin", layers, layer);
    write_file(path, data, bytes);
}"""

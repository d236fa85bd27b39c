"""The C of a package: functions of the kernels, the machine's header, and the host's functions.

include/PREFIX.h      what whoever owns the machine provides
include/NETWORK.h     the network's kernels
src/*.c               a file per kernel, and the table of them
shim/                 the machine's functions for the host
main.c, files.h, Makefile
                      a program that runs kernels on files
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from tilewright.codegen.c.source import Writer, comment
from tilewright.codegen.host.main import FILES
from tilewright.codegen.program.interface import CompiledKernel
from tilewright.errors import Refusals
from tilewright.graph.names import Namer, network_name
from tilewright.targets.generic.c.calls import MEMORY, kernel_body
from tilewright.targets.generic.c.host import check_host, host_text
from tilewright.targets.generic.c.records import c_of, header_text
from tilewright.targets.generic.isa import InstructionSet
from tilewright.targets.generic.lower import Lowering
from tilewright.tile.dialect import ProgramOp

FOLDER = "c"
"""Below a package's program."""

FLAGS = ("-std=gnu99", "-O2", "-fPIC", "-Wall", "-Wextra")


def write_c(
    directory: Path,
    name: str,
    instructions: InstructionSet,
    lowering: Lowering,
    kernels: Sequence[CompiledKernel],
    sizes: Sequence[int],
) -> None:
    """Write all files; raises KernelError for kernels that the functions cannot say, and
    TilewrightError for a machine whose functions the host does not compute.

    ``lowering`` is one of its own, whose tables lie as those of the package's words do; ``sizes``
    are bytes of weights, activations and tables.
    """
    check_host(instructions)
    network, prefix = network_name(name), c_of(instructions.machine).prefix
    namer = Namer()
    functions = [f"{network}_{namer.unique(item.kernel.symbol)}" for item in kernels]
    texts = {
        f"include/{prefix}.h": header_text(instructions),
        f"include/{network}_network.h": _network_header(network, prefix, kernels, functions),
        f"src/{network}.c": _table(network, prefix, functions),
        f"shim/{prefix}_host.c": host_text(instructions),
        "main.c": _main(network, prefix, sizes),
        "files.h": FILES,
        "Makefile": _makefile(network),
    }
    refused = Refusals()
    for item, function in zip(kernels, functions, strict=True):
        symbol, nodes = item.kernel.symbol, item.kernel.nodes
        with refused.of(symbol):
            own = f"{symbol}: {', '.join(nodes)}"
            text = kernel_text(lowering, item.programs, own, function, network, prefix)
            texts[f"src/{function}.c"] = text
    refused.check()
    for package, names in (
        ("tilewright.codegen.c", ("queues.c", "queues.h")),
        ("tilewright.targets.generic.c", ("families.c", "families.h")),
    ):
        for file_name in names:
            texts[f"shim/{file_name}"] = (files(package) / "shim" / file_name).read_text()
    for path, text in texts.items():
        place = directory / FOLDER / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def kernel_text(
    lowering: Lowering,
    programs: Sequence[ProgramOp],
    about: str,
    function: str,
    network: str,
    prefix: str,
) -> str:
    """The file of one kernel, ``about`` some nodes."""
    writer = Writer()
    writer.text(f"""\
/* {comment(about)} */
#include "{network}_network.h"
""")
    with writer.block(f"void {function}(const struct {prefix}_memory *{MEMORY})"):
        several = len(programs) > 1
        for number, program in enumerate(programs):
            if several:
                writer.line("{")
            name = f"{function}_{number}" if several else function
            writer.lines += kernel_body(lowering, program, name)
            if several:
                writer.line("}")
        writer.line(f"(void){MEMORY};")
    return str(writer)


def _network_header(
    network: str, prefix: str, kernels: Sequence[CompiledKernel], functions: Sequence[str]
) -> str:
    guard = f"{network}_NETWORK_H".upper()
    declared = "\n".join(
        f"/* {comment(', '.join(item.kernel.nodes))} */\n"
        f"void {function}(const struct {prefix}_memory *{MEMORY});"
        for item, function in zip(kernels, functions, strict=True)
    )
    return f"""\
/* {network}: its kernels, in their order. Each returns when its results are in
   main memory. */
#ifndef {guard}
#define {guard}

#include "{prefix}.h"

{declared}

#define {network.upper()}_KERNELS {len(kernels)}

/* Runs kernel 0, 1, ... */
void {network}_kernel(int number, const struct {prefix}_memory *{MEMORY});

#endif
"""


def _table(network: str, prefix: str, functions: Sequence[str]) -> str:
    writer = Writer()
    writer.text(f'#include "{network}_network.h"\n')
    head = f"void {network}_kernel(int number, const struct {prefix}_memory *{MEMORY})"
    with writer.block(head), writer.block("switch (number)"):
        for number, function in enumerate(functions):
            writer.line(f"case {number}: {function}({MEMORY}); break;")
        writer.line("default: break;")
    return str(writer)


def _main(network: str, prefix: str, sizes: Sequence[int]) -> str:
    weights, activations, tables = sizes
    return f"""\
/* Runs kernels on files: main weights.bin tables.bin activations.bin [FIRST [LAST [ORDER]]]

   The activations are read, kernels FIRST to LAST run on them, and they are written back. */
#include "files.h"
#include "{network}_network.h"

void {prefix}_host_start(unsigned order);

int main(int count, char **words)
{{
    if (count < 4) {{
        fprintf(stderr, "%s weights.bin tables.bin activations.bin [FIRST [LAST [ORDER]]]\\n",
                words[0]);
        return 2;
    }}
    void *weights = loaded(words[1], {weights}), *tables = loaded(words[2], {tables});
    void *activations = loaded(words[3], {activations});
    int first = count > 4 ? atoi(words[4]) : 0;
    int last = count > 5 ? atoi(words[5]) : {network.upper()}_KERNELS - 1;
    struct {prefix}_memory memory = {{
        (uintptr_t)weights, (uintptr_t)activations, (uintptr_t)tables,
    }};
    {prefix}_host_start(count > 6 ? (unsigned)atoi(words[6]) : 0);
    for (int number = first; number <= last; number++)
        {network}_kernel(number, &memory);
    write_file(words[3], activations, {activations});
    return 0;
}}
"""


def _makefile(network: str) -> str:
    return f"""\
# make: the network with the machine's functions of shim/. For the machine itself, put your own
# sources in place of shim/*.c: make FUNCTIONS="driver.c".
CC ?= cc
CFLAGS ?= -O2 -Wall -Wextra
FUNCTIONS ?= $(wildcard shim/*.c)

{network}: main.c $(wildcard src/*.c) $(FUNCTIONS) $(wildcard *.h include/*.h)
	$(CC) -std=gnu99 $(CFLAGS) -Iinclude -Ishim main.c $(wildcard src/*.c) $(FUNCTIONS) -o $@

clean:
	rm -f {network}

.PHONY: clean
"""

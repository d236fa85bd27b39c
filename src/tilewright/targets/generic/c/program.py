"""The C of a package: functions of the kernels, the machine's header, and the host's functions.

include/PREFIX.h      what whoever owns the machine provides
include/NETWORK.h     the network's kernels
src/*.c               a file per kernel, and the table of them
shim/                 the machine's functions for the host
main.c, files.h, Makefile
                      a program that runs kernels on files
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.codegen.c.source import Writer, comment
from tilewright.codegen.host.main import FILES
from tilewright.codegen.program.interface import CompiledKernel
from tilewright.errors import Refusals
from tilewright.graph.names import Namer, network_name
from tilewright.system.template import filled
from tilewright.targets.generic.c.calls import MEMORY, kernel_body
from tilewright.targets.generic.c.host import shim_texts
from tilewright.targets.generic.c.records import TEMPLATES, c_of, header_text
from tilewright.targets.generic.isa import InstructionSet
from tilewright.targets.generic.lower import Lowering
from tilewright.tile.dialect import ProgramOp

FOLDER = "c"
"""Below a package's program."""

FLAGS = ("-std=c99", "-O2", "-ffp-contract=off", "-fPIC", "-Wall", "-Wextra")
"""Without contraction every step in float32 is rounded by itself, as the interpreter's is."""


def write_c(
    directory: Path,
    name: str,
    instructions: InstructionSet,
    lowering: Lowering,
    kernels: Sequence[CompiledKernel],
    sizes: Mapping[str, int],
) -> None:
    """Write all files; raises KernelError for kernels that the functions cannot say.

    ``lowering`` is one of its own, whose tables lie as those of the package's words do; ``sizes``
    are bytes of ``weights``, ``activations`` and ``tables``.
    """
    network, prefix = network_name(name), c_of(instructions.machine).prefix
    namer = Namer()
    functions = [f"{network}_{namer.unique(item.kernel.symbol)}" for item in kernels]
    names = {"network": network, "upper": network.upper(), "prefix": prefix}
    texts = {
        f"include/{prefix}.h": header_text(instructions),
        f"include/{network}_network.h": filled(
            TEMPLATES / "network.h.in",
            **names,
            declared=_declared(prefix, kernels, functions),
            count=len(kernels),
            memory=MEMORY,
        ),
        f"src/{network}.c": _table(network, prefix, functions),
        **{f"shim/{file}": text for file, text in shim_texts(instructions).items()},
        "main.c": filled(TEMPLATES / "main.c.in", **names, **sizes),
        "files.h": FILES,
        "Makefile": filled(TEMPLATES / "Makefile.in", network=network),
    }
    refused = Refusals()
    for item, function in zip(kernels, functions, strict=True):
        symbol, nodes = item.kernel.symbol, item.kernel.nodes
        with refused.of(symbol):
            about = f"{symbol}: {', '.join(nodes)}"
            text = kernel_text(lowering, item.programs, about, function, network, prefix)
            texts[f"src/{function}.c"] = text
    refused.check()
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


def _declared(prefix: str, kernels: Sequence[CompiledKernel], functions: Sequence[str]) -> str:
    """The kernels' declarations, each with its nodes, and what an earlier one has to leave it."""
    return "\n".join(
        f"/* {comment(', '.join(item.kernel.nodes) + _found(item))} */\n"
        f"void {function}(const struct {prefix}_memory *{MEMORY});"
        for item, function in zip(kernels, functions, strict=True)
    )


def _found(item: CompiledKernel) -> str:
    """The operands that a kernel finds on the chip, as words after its nodes."""
    stays = () if item.schedule is None else item.schedule.stays
    found = ", ".join(resident.operand for resident in stays if resident.live_in)
    return f"; finds {found} on the chip" if found else ""


def _table(network: str, prefix: str, functions: Sequence[str]) -> str:
    writer = Writer()
    writer.text(f'#include "{network}_network.h"\n')
    head = f"void {network}_kernel(int number, const struct {prefix}_memory *{MEMORY})"
    with writer.block(head), writer.block("switch (number)"):
        for number, function in enumerate(functions):
            writer.line(f"case {number}: {function}({MEMORY}); break;")
        writer.line("default: break;")
    return str(writer)

"""Host C of a network on an Ascend processor, in the thesis's six steps (5.2.1).

    acl/main.c         1 initialise, 2 allocate memory of the device and load it, 3 register the
                       device object and its functions, 4 launch kernels in the network's order,
                       5 wait for the stream, 6 copy results back and release everything
    acl/layers.c       what the host computes itself: the cpu target's C
    acl/acl.h, acl.c   the calls' meaning on a host, where misuse is an error; core.h, shim/: the
                       host core that runs kernels; Makefile

Values that kernels of the device hand to each other stay in its memory, in one arena whose places
device_memory.py plans. Inputs, weights and constants are copied there once, in front of all
launches, and outputs back behind them; what the host computes between is copied where it is needed.
The device object holds the functions of cce/: on a host a shared object, on an Ascend
processor what the CCE compiler makes of the same files. A network whose length comes with a run
takes it as a word, and hands it to kernels as the last of their arguments; memory is that of the
longest run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

from tilewright.codegen.c.files import FILES
from tilewright.codegen.c.prune import prune_folder
from tilewright.codegen.c.source import Writer, comment, string
from tilewright.codegen.host.calls import KERNEL, KernelCall
from tilewright.codegen.host.compiler import host_compiler
from tilewright.codegen.host.ports import Port
from tilewright.codegen.host.steps import steps_of
from tilewright.codegen.program.files import KernelRow
from tilewright.codegen.program.interface import Compilation
from tilewright.errors import TilewrightError, refuse
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.graph.names import network_name
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS
from tilewright.ir import SSAValue
from tilewright.targets.ascend.device_memory import Box, DeviceMemory, device_memory
from tilewright.targets.ascend.host import QUEUES, SHIM
from tilewright.targets.ascend.lowering.launches import Argument, Launch, Length
from tilewright.targets.ascend.machine import DaVinci

FOLDER = "acl"

ACL = Path(__file__).parent / "acl"
"""The files that are the same for every network."""


def write_host(
    compilation: Compilation,
    directory: Path,
    core: DaVinci,
    rows: Sequence[KernelRow],
    launches: Sequence[Launch],
    *,
    constants: int,
    length: Length | None = None,
) -> None:
    """Write the files, or, where the host computes what has no C or a length counts several axes of
    one file, README.md with the reason alone.

    ``rows`` are the kernels of the device and their launches, ``constants`` the bytes of
    constants.bin.
    """
    folder = directory / FOLDER
    folder.mkdir()
    try:
        main, layers = _texts(compilation, rows, launches, constants, length)
    except TilewrightError as error:
        (folder / "README.md").write_text(f"The network has no host code.\n\n{error}\n")
        return
    (folder / "main.c").write_text(main)
    headers = host_compiler().headers
    texts = {"layers.c": layers, **headers}
    prune_folder(texts, "", tuple(headers))
    for name, text in texts.items():
        (folder / name).write_text(text)
    for name in ("acl.h", "acl.c", "Makefile"):
        (folder / name).write_text((ACL / name).read_text())
    (folder / "core.h").write_text(core_text(core))
    shim = folder / "shim"
    shim.mkdir()
    for source in (SHIM, QUEUES):
        for path in sorted(source.glob("*.[ch]")):
            (shim / path.name).write_text(path.read_text())


def _texts(
    compilation: Compilation,
    rows: Sequence[KernelRow],
    launches: Sequence[Launch],
    constants: int,
    length: Length | None,
) -> tuple[str, str]:
    """main.c and layers.c; raises TilewrightError where the host computes what has no C."""
    network = network_of(compilation.network)
    layers, calls = _layers(host_compiler().calls(compilation))
    on_device = {row.symbol: row for row in rows}
    steps: list[KernelOp] = []
    for _, op in steps_of(network):
        if not isinstance(op, KernelOp):
            raise refuse("ascend-host", "the host's C has kernels alone", op.name)
        steps.append(op)
    ports = [
        [Port.of(name, value) for name, value in side] for side in (network.inputs, network.outputs)
    ]
    for port in (*ports[0], *ports[1]):
        if not port.dense:
            raise refuse("ascend-host", "its layout is not that of a file", port.name)
    for axes in ({}, {}) if length is None else (length.inputs, length.outputs):
        for name, counted in axes.items():
            if len(counted) > 1:
                raise refuse("ascend-host", "has several axes of the run's length", name)
    functions = list(dict.fromkeys(launch.function for launch in launches))
    writer = Writer()
    _head(writer, network_name(network.symbol.data), calls, functions)
    plan = device_memory(steps, {row.symbol: launches[row.start : row.end] for row in rows})
    for number, op in enumerate(steps, 1):
        if op.symbol.data in on_device:
            row = on_device[op.symbol.data]
            _kernel(writer, row, launches[row.start : row.end], number, op, plan)
    arenas = compilation.arenas
    sizes = (arenas.get(WEIGHTS, 0), arenas.get(ACTIVATIONS, 0), constants)
    _main(writer, steps, calls, functions, ports, sizes, length, plan)
    return str(writer), layers


def core_text(core: DaVinci) -> str:
    """``core.h``: the core that acl.c runs kernels on."""
    sizes = ", ".join(str(size) for size in (core.l1, core.l0a, core.l0b, core.l0c, core.ub))
    return (
        f"/* {core.name}: L1, L0A, L0B, L0C and UB. */\n"
        f"#define CORE_MEMORIES {{{sizes}}}\n"
        f"#define CORE_EVENTS {core.events}\n"
        f"#define CORE_BARRIER_BLOCKS {int(core.barrier_blocks.value)}\n"
    )


def _layers(hosted: Sequence[KernelCall]) -> tuple[str, dict[str, tuple[str, str]]]:
    """The C of the host's kernels, and by symbol each one's declaration and call."""
    text = [f"/* What the host computes. */\n#define LANES {host_compiler().lanes}\n"]
    text += ['#include "pieces.h"\n']
    calls: dict[str, tuple[str, str]] = {}
    for call in hosted:
        symbol, source = call.kernel.kernel.symbol, call.source
        text.append(source.text.replace(KERNEL, symbol))
        declaration = f"{source.prototype.replace(KERNEL, symbol)};"
        calls[symbol] = declaration, f"{symbol}({', '.join(call.arguments())});"
    return "\n".join(text), calls


def _head(
    writer: Writer, name: str, calls: Mapping[str, tuple[str, str]], functions: Sequence[str]
) -> None:
    line = writer.line
    line(f"/* {comment(name)}, host code: main DEVICE-OBJECT WEIGHTS CONSTANTS INPUTS OUTPUTS")
    line()
    line("   Files hold elements, row-major. */")
    for header in ("<stdio.h>", "<stdlib.h>", "<string.h>", '"acl.h"'):
        line(f"#include {header}")
    line()
    writer.lines += [*FILES.splitlines(), "", *(ACL / "helpers.c").read_text().splitlines()]
    line()
    for declaration, _ in calls.values():
        line(declaration)
    line()
    line("/* What a function of the device is known by: an address of its own. */")
    for function in functions:
        line(f"static const char {function}_stub;")


def _kernel(
    writer: Writer,
    row: KernelRow,
    launches: Sequence[Launch],
    step: int,
    op: KernelOp,
    plan: DeviceMemory,
) -> None:
    """A function that runs a kernel of the device."""
    line = writer.line
    line()
    nodes = ", ".join(row.nodes)
    if nodes:
        line(f"/* {comment(nodes)} */")
    places: dict[tuple[str, int], int] = {}
    for launch in launches:
        for argument in launch.arguments:
            key = argument.kind, argument.number
            if argument.kind == "operand":
                places[key] = plan.offset(op.inputs[argument.number])
            elif argument.kind == "result":
                places[key] = plan.offset(op.result)
            elif argument.kind == "work":
                places[key] = plan.work[step, argument.number]
    with writer.block(f"static void {row.symbol}(void)"):
        if step in plan.before:
            line(
                "/* 2: what the host has computed; nothing runs that might still use the place. */"
            )
            line("CHECK(aclrtSynchronizeStream(stream));")
            for value in plan.before[step]:
                line(_copy("in", plan.offset(value), value))
        for (kind, number), offset in places.items():
            line(f"char *const {kind}{number} = arena + {offset};")
        line("/* 4: the launches. */")
        for launch in launches:
            words = [_pointer(each) for each in launch.arguments]
            if launch.longest:
                words.append("(void *)(uintptr_t)length")
            pointers, count = ", ".join(words), len(words)
            stub = f"&{launch.function}_stub, {launch.blocks}"
            line(f"launch({stub}, (void *[]){{{pointers}}}, {count});")
        if step in plan.after:
            line("/* 5 and 6: the stream's end, and the result for the host. */")
            line("CHECK(aclrtSynchronizeStream(stream));")
            line(_copy("out", plan.offset(op.result), op.result))


def _copy(way: str, offset: int, value: SSAValue) -> str:
    return f"copy_{way}(arena + {offset}, {Box.of(value).arguments()});"


def _pointer(argument: Argument) -> str:
    if argument.kind == "constant":
        return f"constants + {argument.number + argument.offset}"
    name = f"{argument.kind}{argument.number}"
    return f"{name} + {argument.offset}" if argument.offset else name


def _main(
    writer: Writer,
    steps: Sequence[KernelOp],
    calls: Mapping[str, tuple[str, str]],
    functions: Sequence[str],
    ports: Sequence[Sequence[Port]],
    sizes: tuple[int, int, int],
    length: Length | None,
    plan: DeviceMemory,
) -> None:
    line = writer.line
    inputs, outputs = ports
    first = 4 if length is None else 5
    count = first + len(inputs) + len(outputs)
    line()
    with writer.block("int main(int count, char **words)"):
        names = " ".join(comment(port.name) for port in (*inputs, *outputs))
        with writer.block(f"if (count != {count})"):
            word = "" if length is None else "LENGTH "
            text = string(f"%s DEVICE-OBJECT WEIGHTS CONSTANTS {word}{names}")
            line(f"fprintf(stderr, {text}, words[0]);")
            line("return 2;")
        if length is not None:
            line(f"length = take_length(words[4], {length.longest});")
        line(f"weights = loaded(words[2], {sizes[0]});")
        line(f"activations = memory({sizes[1]});")
        for number, port in enumerate(inputs, first):
            axes = () if length is None else length.inputs.get(port.name, ())
            place = f"words[{number}], activations + {port.offset}"
            line(_transfer("read", place, port, axes))
        line()
        line("/* 1: initialise. */")
        line("CHECK(aclInit(NULL));")
        line("CHECK(aclrtSetDevice(0));")
        line("CHECK(aclrtCreateStream(&stream));")
        line("/* 2: memory of the device; constants, inputs and weights. */")
        if sizes[2]:
            line(f"char *image = loaded(words[3], {sizes[2]});")
            line(f"constants = on_device({sizes[2]});")
            room = f"{sizes[2]}, image, {sizes[2]}"
            line(f"CHECK(aclrtMemcpy(constants, {room}, ACL_MEMCPY_HOST_TO_DEVICE));")
            line("free(image);")
        if plan.bytes:
            line(f"arena = on_device({plan.bytes});")
        for value in plan.before.get(0, ()):
            line(_copy("in", plan.offset(value), value))
        line("/* 3: the device object and its functions. */")
        line("register_object(words[1]);")
        for function in functions:
            line(f'register_function(&{function}_stub, "{function}");')
        line("/* 4: the launches, and the host's own kernels between them. */")
        for op in steps:
            line(calls[op.symbol.data][1] if op.symbol.data in calls else f"{op.symbol.data}();")
        line("/* 5: the stream's end. */")
        line("CHECK(aclrtSynchronizeStream(stream));")
        line("/* 6: the outputs, and no memory any more. */")
        for value in plan.end:
            line(_copy("out", plan.offset(value), value))
        for name in ("constants", "arena"):
            line(f"if ({name})")
            line(f"    CHECK(aclrtFree({name}));")
        line("CHECK(aclrtDestroyStream(stream));")
        line("CHECK(aclrtResetDevice(0));")
        line("CHECK(aclFinalize());")
        line()
        for number, port in enumerate(outputs, first + len(inputs)):
            arena = "weights" if port.arena == WEIGHTS else "activations"
            axes = () if length is None else length.outputs.get(port.name, ())
            place = f"words[{number}], {arena} + {port.offset}"
            line(_transfer("write", place, port, axes))
        line("free(activations);")
        line("free(weights);")
        line("free(object);")
        line("return 0;")


def _transfer(verb: str, place: str, port: Port, axes: Sequence[int]) -> str:
    """A file to an input's place, or from an output's; where the length counts an axis, the file
    has as many indices."""
    if not axes:
        return f"{verb}_file({place}, {port.bytes});"
    before, extent = prod(port.shape[: axes[0]]), port.shape[axes[0]]
    return f"{verb}_rows({place}, {before}, {port.bytes // (before * extent)}, {extent});"

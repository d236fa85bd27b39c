"""Host C of a network on an Ascend processor, in the thesis's six steps (5.2.1).

    acl/main.c         1 initialise, 2 allocate memory of the device and load it, 3 register the
                       device object and its functions, 4 launch kernels in the network's order,
                       5 wait for the stream, 6 copy results back and release everything
    acl/layers.c       what the host computes itself: the cpu target's C
    acl/acl.h, acl.c   the calls' meaning on a host, where misuse is an error; core.h, shim/: the
                       host core that runs kernels; Makefile

Values that kernels of the device hand to each other stay in its memory, in one arena whose places
device_memory.py plans. Inputs, weights and constants are copied there once, before all
launches, and outputs back after them; what the host computes between is copied where it is needed.
The device object holds the functions of cce/: on a host a shared object, on an Ascend
processor what the CCE compiler makes of the same files. A network whose length comes with a run
takes it as a word, and hands it to kernels as the last of their arguments; memory is that of the
longest run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path

from tilewright.codegen.c.parameters import place_text
from tilewright.codegen.c.prune import prune_folder
from tilewright.codegen.c.source import Writer, comment
from tilewright.codegen.host.calls import KernelCall
from tilewright.codegen.host.compiler import host_compiler
from tilewright.codegen.host.main import FILES, Main, whole_file
from tilewright.codegen.host.ports import Port, file_ports
from tilewright.codegen.host.steps import kernel_steps
from tilewright.codegen.program.files import KernelRow
from tilewright.codegen.program.interface import WEIGHTS_FILE, Compilation
from tilewright.errors import TilewrightError, refuse
from tilewright.graph.arenas import Box
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.graph.names import network_name
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS
from tilewright.ir import SSAValue
from tilewright.system.template import filled
from tilewright.targets.ascend.device_memory import DeviceMemory, device_memory
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
    texts = {"layers.c": layers, "files.h": FILES, **headers}
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
    calls = {call.symbol: call for call in host_compiler().calls(compilation)}
    head = f"/* What the host computes. */\n#define LANES {host_compiler().lanes}\n"
    pieces = '#include "pieces.h"\n'
    layers = "\n".join([head, pieces, *(call.text for call in calls.values())])
    on_device = {row.symbol: row for row in rows}
    steps = kernel_steps(network, "ascend-host")
    inputs, outputs = file_ports(network, "ascend-host")
    for axes in ({}, {}) if length is None else (length.inputs, length.outputs):
        for name, counted in axes.items():
            if len(counted) > 1:
                raise refuse("ascend-host", "has several axes of the run's length", name)
    functions = list(dict.fromkeys(launch.function for launch in launches))
    main = Main(
        ("DEVICE-OBJECT", WEIGHTS_FILE, "constants.bin", *(["LENGTH"] if length else [])),
        inputs,
        outputs,
        {arena: compilation.arenas.get(arena, 0) for arena in (WEIGHTS, ACTIVATIONS)},
        transfer=partial(_transfer, length),
    )
    writer = Writer()
    declared = "".join(f"{call.declaration};\n" for call in calls.values())
    stubs = "".join(f"static const char {function}_stub;\n" for function in functions)
    head = filled(
        ACL / "head.c.in",
        name=comment(network_name(network.symbol.data)),
        usage=main.usage,
        arenas=main.declaration,
        helpers=(ACL / "helpers.c").read_text(),
        declared=declared,
        stubs=stubs.rstrip("\n"),
    )
    writer.text(head)
    plan = device_memory(steps, {row.symbol: launches[row.start : row.end] for row in rows})
    for number, op in enumerate(steps, 1):
        if op.symbol.data in on_device:
            row = on_device[op.symbol.data]
            _kernel(writer, row, launches[row.start : row.end], number, op, plan)
    writer.line()
    longest = [] if length is None else [length.longest]
    with main.write(
        writer, *(f"length = take_length({main.place('LENGTH')}, {most});" for most in longest)
    ):
        _steps(writer, main, steps, calls, functions, constants, plan)
    return str(writer), layers


def core_text(core: DaVinci) -> str:
    """``core.h``: the core that acl.c runs kernels on."""
    sizes = ", ".join(str(size) for size in (core.l1, core.l0a, core.l0b, core.l0c, core.ub))
    return (
        f"/* {core.name}: L1, L0A, L0B, L0C and UB. */\n"
        f"#define CORE_MEMORIES {{{sizes}}}\n"
        f"#define CORE_EVENTS {core.events}\n"
        f"#define CORE_BARRIER_BLOCKS {int(core.barrier_blocks)}\n"
    )


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
    box = Box.of(value)
    numbers = [", ".join(map(str, each or (1,))) for each in (box.extents, box.strides)]
    lists = ", ".join(f"(const long[]){{{each}}}" for each in numbers)
    place = f"{place_text(box.arena, box.offset)},\n            {len(box.extents)}"
    return f"copy_{way}(arena + {offset}, {place}, {lists}, {box.width});"


def _pointer(argument: Argument) -> str:
    if argument.kind == "constant":
        return f"constants + {argument.number}"
    return f"{argument.kind}{argument.number}"


def _steps(
    writer: Writer,
    main: Main,
    steps: Sequence[KernelOp],
    calls: Mapping[str, KernelCall],
    functions: Sequence[str],
    constants: int,
    plan: DeviceMemory,
) -> None:
    line, text = writer.line, writer.text
    place = main.place("constants.bin")
    begin = filled(ACL / "begin.c.in", file=place, constants=constants, arena=plan.bytes)
    text(begin.rstrip("\n"))
    for value in plan.before.get(0, ()):
        line(_copy("in", plan.offset(value), value))
    line("/* 3: the device object and its functions. */")
    line("register_object(words[1]);")
    for function in functions:
        line(f'register_function(&{function}_stub, "{function}");')
    line("/* 4: the launches, and the host's own kernels between them. */")
    for op in steps:
        call = calls.get(op.symbol.data)
        line(f"{op.symbol.data}({', '.join(call.arguments()) if call else ''});")
    line("/* 5: the stream's end. */")
    line("CHECK(aclrtSynchronizeStream(stream));")
    line("/* 6: the outputs, and no memory any more. */")
    for value in plan.end:
        line(_copy("out", plan.offset(value), value))
    text((ACL / "end.c.in").read_text().rstrip("\n"))


def _transfer(length: Length | None, verb: str, word: str, port: Port) -> str:
    """A file to an input's place, or from an output's; where the length counts an axis, the file
    has as many indices."""
    named = None if length is None else length.inputs if verb == "read" else length.outputs
    axes = named.get(port.name, ()) if named is not None else ()
    if not axes:
        return whole_file(verb, word, port)
    before, extent = prod(port.shape[: axes[0]]), port.shape[axes[0]]
    row = port.bytes // (before * extent)
    return f"{verb}_rows({word}, {port.place}, {before}, {row}, {extent});"

"""Packages for DaVinci cores: CCE C, the launches, and the graph for what the host does.

The files are those of codegen/program/files.py, and

cce/NAME.c      a kernel function; cce/cce.h and others are its meaning on the host
launches.json   which functions each kernel launches, and on what; the axes that end early in a run
commands.npz    the commands of each function's first block, and their times (command_tables.py)
constants.bin   biases in half precision
acl/            the network's host code, where all that the host computes has C (hostcode.py)

A word of ``program.bin`` is a launch: its number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from tilewright.codegen.program.files import (
    Addresses,
    KernelRow,
    ProgramParts,
    check_words,
    kernel_rows,
    lower_kernels,
    read_program,
    weights_of,
    write_program,
)
from tilewright.codegen.program.interface import Compilation
from tilewright.errors import refuse
from tilewright.graph.dialect import WeightOp, network_of
from tilewright.graph.free_axes import free_axes
from tilewright.graph.kernels import kernel_of, operand_values
from tilewright.graph.values import value_names
from tilewright.ir.types import Array, shape_of
from tilewright.machine import Machine
from tilewright.machine.forms import first_reason
from tilewright.targets.ascend.command_tables import write_commands
from tilewright.targets.ascend.emit import kernel_text
from tilewright.targets.ascend.host import SHIM
from tilewright.targets.ascend.hostcode import write_host
from tilewright.targets.ascend.lower import lower_kernel
from tilewright.targets.ascend.lowering.launches import Device, Launch, Length
from tilewright.targets.ascend.machine import CORES, DaVinci
from tilewright.targets.ascend.network import as_varied
from tilewright.tile.dialect import ProgramOp

CONSTANTS = "constants"
FOLDER = "cce"
WORD = np.dtype("<u8")


class LaunchFile(BaseModel):
    """The contents of a package's ``launches.json``."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    launches: tuple[Launch, ...]
    length: Length | None = None
    """The free length of the program; None where all sizes are known."""


def core_of(machine: Machine) -> DaVinci:
    """The core of a machine, with what a variant of it changes: sizes of memories, event ids,
    rates, latency and queues."""
    for core in CORES:
        if core.name == machine.name:
            return as_varied(core, machine)
    raise refuse("target-machine", f"{machine.name} is no DaVinci core", "name")


def write_package(compilation: Compilation, directory: Path) -> None:
    """Write the files; raises KernelError for kernels that fall to the host."""
    addresses = Addresses.of(compilation, CONSTANTS)
    device = Device(core_of(compilation.machine))
    network = network_of(compilation.network)
    ends = next((free_axes(network, free) for free in compilation.free.values()), None)
    steps, rows = _lower(compilation, device, {} if ends is None else ends.dims)
    write_program(
        compilation,
        directory,
        addresses,
        words=np.arange(len(device.launches), dtype=WORD).tobytes(),
        word_bytes=WORD.itemsize,
        weights=weights_of(compilation, addresses),
        image=bytes(device.constants),
        kernels=rows,
        steps=steps,
    )
    folder = directory / FOLDER
    folder.mkdir()
    for name, program in device.programs.items():
        (folder / f"{name}.c").write_text(kernel_text(program))
    (folder / "cce.h").write_text((SHIM / "cce.h").read_text())
    write_commands(directory, device.commands)
    length = None if ends is None else _length(compilation, ends.outputs(network))
    write_host(
        *(compilation, directory, device.core, rows, device.launches),
        constants=len(device.constants),
        length=length,
    )
    file = LaunchFile(launches=tuple(device.launches), length=length)
    text = json.dumps(file.model_dump(mode="json"), indent=1)
    (directory / "launches.json").write_text(text + "\n")


def _length(compilation: Compilation, outputs: dict[str, tuple[int, ...]]) -> Length:
    values = dict(network_of(compilation.network).inputs)
    (free,) = compilation.free.values()
    inputs = dict(free.inputs)
    longest = {shape_of(values[name])[axis] for name, axes in inputs.items() for axis in axes}
    return Length(longest=max(longest), inputs=inputs, outputs=outputs)


def _lower(
    compilation: Compilation, device: Device, free: Mapping[str, frozenset[str]]
) -> tuple[list[tuple[str, int]], list[KernelRow]]:
    """Lower the network: its steps, and the launches of each kernel. ``free`` has the dims that end
    early, by the kernels' symbols."""
    network = network_of(compilation.network)
    known: dict[object, Array] = {
        op.result: compilation.weights.get(op.symbol.data)
        for op in network.block.ops
        if isinstance(op, WeightOp)
    }
    names = value_names(network)
    ops = {op.symbol.data: op for op in network.kernels}
    kernels = {item.kernel.symbol: item for item in compilation.kernels}
    starts: list[int] = []

    def lower(program: ProgramOp) -> None:
        starts.append(len(device.launches))
        symbol = program.symbol.data
        op, compiled = ops[symbol], kernels[symbol]
        values = operand_values(op, names)
        constants = {name: known[value] for name, value in values.items() if value in known}
        # A value that the kernel reads in two ways has two names.
        places = {value: place for place, value in enumerate(op.inputs)}
        numbers = {name: places[value] for name, value in values.items() if value in places}
        short = free.get(symbol, frozenset())
        lower_kernel(device, compiled, constants, short, numbers, kernel_of(op, names))

    steps, lowered = lower_kernels(compilation, lower)
    return steps, kernel_rows(compilation, lowered, pairwise([*starts, len(device.launches)]))


def read_package(directory: Path) -> tuple[ProgramParts, LaunchFile]:
    """Read the files; refuses (``package-invalid``) what is damaged or does not fit together."""
    parts = read_program(directory, CONSTANTS)
    core_of(parts.machine)
    check_words(parts, WORD.itemsize)
    try:
        text = (directory / "launches.json").read_text()
        file = LaunchFile.model_validate_json(text)
    except (OSError, ValidationError, UnicodeDecodeError) as error:
        raise refuse("package-invalid", first_reason(error), str(directory)) from None
    launches = file.launches
    if len(launches) != len(parts.data) // WORD.itemsize:
        raise refuse("package-invalid", "the launches are not those of the program", str(directory))
    for launch in launches:
        if not (directory / FOLDER / f"{launch.function}.c").is_file():
            raise refuse("package-invalid", f"{launch.function}.c is missing", str(directory))
        for argument in launch.arguments:
            if argument.kind == "constant" and argument.number + argument.bytes > parts.image.size:
                raise refuse("package-invalid", "a constant is missing", str(directory))
    _check_length(parts, file)
    return parts, file


def _check_length(parts: ProgramParts, file: LaunchFile) -> None:
    """Refuse axes that are not there, or of another size, and launches of longer kernels."""
    length = file.length
    if length is None:
        wrong = any(launch.longest for launch in file.launches)
    else:
        wrong = any(launch.longest not in (0, length.longest) for launch in file.launches)
        for axes, values in (
            (length.inputs, dict(parts.network.inputs)),
            (length.outputs, dict(parts.network.outputs)),
        ):
            for name, numbers in axes.items():
                shape = shape_of(values[name]) if name in values else ()
                wrong |= any(
                    axis not in range(len(shape)) or shape[axis] != length.longest
                    for axis in numbers
                )
        wrong |= not any(length.inputs.values())
    if wrong:
        raise refuse("package-invalid", "its length is no size of it", str(parts.directory))

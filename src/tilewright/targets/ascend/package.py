"""Packages for DaVinci cores: CCE C, the launches, and the graph for what the host does.

The files are those of targets/generic/program_file.py, and

cce/NAME.c      a kernel function; cce/cce.h and others are its meaning on the host
launches.json   which functions each kernel launches, and on what
constants.bin   biases in half precision
acl/            the network's host code, where all that the host computes has C (hostcode.py)

A word of ``program.bin`` is a launch: its number.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from tilewright.errors import refusals_of, refuse
from tilewright.graph.dialect import KernelOp, WeightOp, network_of
from tilewright.graph.kernels import operand_values
from tilewright.graph.values import value_names
from tilewright.ir.types import Array
from tilewright.machine import Machine
from tilewright.targets.ascend.host import SHIM
from tilewright.targets.ascend.hostcode import write_host
from tilewright.targets.ascend.lower import lower_kernel
from tilewright.targets.ascend.lowering.launches import Device, Launch
from tilewright.targets.ascend.machine import CORES, DaVinci
from tilewright.targets.base import Compilation
from tilewright.targets.generic.program_file import (
    Addresses,
    KernelRow,
    ProgramParts,
    check_words,
    compiled_steps,
    read_program,
    weights_of,
    write_program,
)

CONSTANTS = "constants"
FOLDER = "cce"
WORD = np.dtype("<u8")


class LaunchFile(BaseModel):
    """What ``launches.json`` holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    launches: tuple[Launch, ...]


def core_of(machine: Machine) -> DaVinci:
    """The core whose machine, or a variant of it, this is."""
    for core in CORES:
        if core.name == machine.name:
            return core
    raise refuse("target-machine", f"{machine.name} is no DaVinci core", "name")


def write_package(compilation: Compilation, directory: Path) -> None:
    """Write the files; raises KernelError for kernels that fall to the host."""
    addresses = Addresses.of(compilation, CONSTANTS)
    device = Device(core_of(compilation.machine))
    steps, rows = _lower(compilation, device)
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
    for name, text in device.texts.items():
        (folder / f"{name}.c").write_text(text)
    (folder / "cce.h").write_text((SHIM / "cce.h").read_text())
    write_host(compilation, directory, device.core, rows, device.launches, len(device.constants))
    file = LaunchFile(launches=tuple(device.launches))
    text = json.dumps(file.model_dump(mode="json"), indent=1)
    (directory / "launches.json").write_text(text + "\n")


def _lower(
    compilation: Compilation, device: Device
) -> tuple[list[tuple[str, int]], list[KernelRow]]:
    """The steps of the network, and the launches of each kernel."""
    network = network_of(compilation.network)
    known: dict[object, Array] = {
        op.result: compilation.weights.get(op.symbol.data)
        for op in network.block.ops
        if isinstance(op, WeightOp)
    }
    names = value_names(network)
    steps: list[tuple[str, int]] = []
    rows: list[KernelRow] = []
    for number, op, compiled in compiled_steps(compilation):
        if compiled is None or compiled.schedule is None or not isinstance(op, KernelOp):
            steps.append(("host", number))
            continue
        start = len(device.launches)
        constants = {
            name: known[value]
            for name, value in operand_values(op, names).items()
            if value in known
        }
        with refusals_of(compiled.kernel.symbol):
            lower_kernel(device, compiled, constants)
        steps.append(("words", len(rows)))
        row = KernelRow(
            symbol=compiled.kernel.symbol,
            nodes=compiled.kernel.nodes,
            start=start,
            end=len(device.launches),
        )
        rows.append(row)
    return steps, rows


def read_package(directory: Path) -> tuple[ProgramParts, tuple[Launch, ...]]:
    """Read the files; refuses (``package-invalid``) what is damaged or does not fit together."""
    parts = read_program(directory, CONSTANTS)
    core_of(parts.machine)
    check_words(parts, WORD.itemsize)
    try:
        text = (directory / "launches.json").read_text()
        launches = LaunchFile.model_validate_json(text).launches
    except (OSError, ValidationError, UnicodeDecodeError) as error:
        raise refuse("package-invalid", str(error)[:300], str(directory)) from None
    if len(launches) != len(parts.data) // WORD.itemsize:
        raise refuse("package-invalid", "the launches are not those of the program", str(directory))
    for launch in launches:
        if not (directory / FOLDER / f"{launch.function}.c").is_file():
            raise refuse("package-invalid", f"{launch.function}.c is missing", str(directory))
        for one in launch.arguments:
            if one.kind == "constant" and one.number + one.bytes > parts.image.size:
                raise refuse("package-invalid", "a constant is missing", str(directory))
    return parts, launches

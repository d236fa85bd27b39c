"""Packages of instruction words: what ``emit`` writes and the runner reads.

program.bin     the instruction words
weights.bin     the arena of weights, as it lies in main memory
tables.bin      the function tables, which follow the activations in main memory
network.mlir    the graph with placements, for what the host does
program.json    the machine, addresses, and which words belong to which kernel
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tilewright.errors import refuse
from tilewright.graph.arenas import write_value
from tilewright.graph.dialect import KernelOp, NetworkOp, WeightOp, network_of
from tilewright.graph.operations import context as graph_context
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS
from tilewright.ir import ModuleOp, ParseError, Parser, VerifyException, to_text
from tilewright.machine import Machine
from tilewright.machine.forms import machine_of
from tilewright.targets.base import Compilation
from tilewright.targets.generic.encode import from_bytes, to_bytes
from tilewright.targets.generic.fields import Lanes
from tilewright.targets.generic.functions import TABLES
from tilewright.targets.generic.host import emit_kernels, steps_of
from tilewright.targets.generic.isa import InstructionSet
from tilewright.targets.generic.lower import Lowering
from tilewright.tile.dialect import programs_of

PAGE = 4096
"""Bytes to which the arenas are aligned in main memory."""

MAX_ARENA = 1 << 34
"""Bytes of an arena that a loaded package may ask for."""

Deriver = Callable[[Machine], InstructionSet]


class KernelRow(BaseModel):
    """One accelerator kernel: its name, the model's nodes, and its words."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    symbol: str
    nodes: tuple[str, ...]
    start: int = Field(ge=0)
    end: int = Field(ge=0)


class ProgramFile(BaseModel):
    """What ``program.json`` holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    machine: dict[str, Any]
    word_bytes: int
    arenas: dict[str, int]
    """Bytes of each arena."""
    bases: dict[str, int]
    """Addresses of the arenas, and of the tables, in main memory."""
    kernels: tuple[KernelRow, ...]
    steps: tuple[tuple[str, int], ...]
    """What runs, in order: ``words K`` (kernel K) or ``host N`` (the network's N-th operation)."""


@dataclass(frozen=True)
class Package:
    """A package read from disk."""

    file: ProgramFile
    instructions: InstructionSet
    words: Lanes
    network: NetworkOp
    module: ModuleOp
    weights: NDArray[np.uint8]
    tables: NDArray[np.uint8]
    directory: Path


def write_package(compilation: Compilation, directory: Path, instructions: InstructionSet) -> None:
    """Write the files; raises TilewrightError for what the instructions cannot say."""
    arenas = {name: int(compilation.arenas.get(name, 0)) for name in (WEIGHTS, ACTIVATIONS)}
    bases: dict[str, int] = {}
    offset = 0
    for name, size in arenas.items():
        bases[name] = offset
        offset += -(-size // PAGE) * PAGE
    bases[TABLES] = offset
    network = network_of(compilation.network)
    weights = np.zeros(arenas[WEIGHTS], np.uint8)
    for op in network.block.ops:
        if isinstance(op, WeightOp) and op.placement is not None:
            write_value(op.result, {WEIGHTS: weights}, compilation.weights.get(op.symbol.data))
    lowering = Lowering(instructions, bases, {WEIGHTS: weights})
    steps, rows = _lower(compilation, network, lowering)
    words, starts = lowering.words()
    kernels = [
        KernelRow(symbol=symbol, nodes=nodes, start=starts[i], end=starts[i + 1])
        for i, (symbol, nodes) in enumerate(rows)
    ]
    file = ProgramFile(
        machine=compilation.machine.model_dump(mode="json"),
        word_bytes=instructions.word_bytes,
        arenas=arenas,
        bases=bases,
        kernels=tuple(kernels),
        steps=tuple(steps),
    )
    (directory / "program.bin").write_bytes(to_bytes(words))
    (directory / "tables.bin").write_bytes(bytes(lowering.table_image))
    weights.tofile(directory / "weights.bin")
    (directory / "network.mlir").write_text(to_text(compilation.network) + "\n")
    emit_kernels(compilation, directory)
    text = json.dumps(file.model_dump(mode="json"), indent=1, sort_keys=True)
    (directory / "program.json").write_text(text + "\n")


def _lower(
    compilation: Compilation, network: NetworkOp, lowering: Lowering
) -> tuple[list[tuple[str, int]], list[tuple[str, tuple[str, ...]]]]:
    """Lower the kernels in the network's order; the steps, and symbol and nodes per kernel."""
    compiled = {one.kernel.symbol: one for one in compilation.kernels}
    steps: list[tuple[str, int]] = []
    rows: list[tuple[str, tuple[str, ...]]] = []
    for number, op in steps_of(network):
        one = compiled.get(op.symbol.data) if isinstance(op, KernelOp) else None
        if one is None or one.program is None:
            lowering.barrier()
            steps.append(("host", number))
            continue
        for program in programs_of(one.program):
            lowering.kernel(program)
        steps.append(("words", len(rows)))
        rows.append((one.kernel.symbol, one.kernel.nodes))
    return steps, rows


def read_package(directory: Path, derive: Deriver) -> Package:
    """Read the files; refuses (``package-invalid``) what is damaged or does not fit together."""
    try:
        text = (directory / "program.json").read_text()
        file = ProgramFile.model_validate_json(text)
        machine = machine_of(file.machine, str(directory / "program.json"))
        data = (directory / "program.bin").read_bytes()
        source = (directory / "network.mlir").read_text()
        weights = _weights(directory / "weights.bin")
        tables = np.frombuffer((directory / "tables.bin").read_bytes(), np.uint8).copy()
    except (OSError, ValidationError, UnicodeDecodeError) as error:
        raise refuse("package-invalid", str(error)[:300], str(directory)) from None
    instructions = derive(machine)
    _check(file, instructions, weights.size, len(data), directory)
    try:
        module = Parser(graph_context(), source).parse_module()
        module.verify()
        network = network_of(module)
    except (ParseError, VerifyException) as error:
        raise refuse("package-invalid", str(error)[:300], str(directory / "network.mlir")) from None
    words = from_bytes(instructions, data)
    return Package(file, instructions, words, network, module, weights, tables, directory)


def _weights(path: Path) -> NDArray[np.uint8]:
    """The arena of weights, mapped: it may be large and is only read."""
    if path.stat().st_size == 0:
        return np.zeros(0, np.uint8)
    return np.memmap(path, np.uint8, mode="r")


def _check(
    file: ProgramFile, instructions: InstructionSet, weights: int, size: int, directory: Path
) -> None:
    ends = [row.end for row in file.kernels]
    problems = [
        (file.word_bytes != instructions.word_bytes, "the words have another size"),
        (set(file.arenas) != {WEIGHTS, ACTIVATIONS}, "the arenas are not those of a package"),
        (set(file.bases) != {WEIGHTS, ACTIVATIONS, TABLES}, "the addresses are incomplete"),
        (file.arenas.get(WEIGHTS) != weights, "weights.bin has another size"),
        (not 0 <= file.arenas.get(ACTIVATIONS, 0) <= MAX_ARENA, "the activations are too large"),
        (any(row.end < row.start for row in file.kernels), "a kernel ends before it starts"),
        (max(ends, default=0) * file.word_bytes > size, "words are missing"),
        (
            not all(_is_step(kind, number, len(ends)) for kind, number in file.steps),
            "a step is unknown",
        ),
    ]
    for wrong, reason in problems:
        if wrong:
            raise refuse("package-invalid", reason, str(directory))


def _is_step(kind: str, number: int, kernels: int) -> bool:
    return number >= 0 and (kind == "host" or (kind == "words" and number < kernels))


def remarks_of(rows: Sequence[KernelRow]) -> list[tuple[int, str]]:
    """What stands before each kernel's first instruction in a listing."""
    return [
        (row.start, f"kernel {row.symbol}: {', '.join(row.nodes)}".rstrip(": ")) for row in rows
    ]

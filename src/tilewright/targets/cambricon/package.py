"""Packages of ACC-C: what ``emit`` writes and the runner reads.

program.bin     the instruction words
program.hlal    the same as text, which the assembler accepts; kernels and nodes as comments
weights.bin     the arena of weights, those of products laid out by segment
constants.bin   function tables, which follow the activations in main memory
network.mlir    the graph with placements, for what the host does
program.json    the machine, addresses, and which words belong to which kernel
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from tilewright.errors import refuse
from tilewright.graph.arenas import write_value
from tilewright.graph.dialect import KernelOp, NetworkOp, WeightOp, network_of
from tilewright.graph.operations import context as graph_context
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS, placement_of
from tilewright.ir import ModuleOp, ParseError, Parser, VerifyException, to_text
from tilewright.machine import Machine
from tilewright.machine.forms import machine_of
from tilewright.targets.base import Compilation
from tilewright.targets.cambricon.lowering.network import CONSTANTS, Lowering, shared_weights
from tilewright.targets.cambricon.statements import Words
from tilewright.targets.cambricon.statements import to_text as statements_text
from tilewright.targets.generic.host import emit_kernels, steps_of
from tilewright.targets.generic.package import MAX_ARENA, PAGE, KernelRow, ProgramFile
from tilewright.tile.dialect import ProgramOp, programs_of

WORD_BYTES = 8


@dataclass(frozen=True)
class Package:
    """A package read from disk."""

    file: ProgramFile
    machine: Machine
    words: Words
    network: NetworkOp
    module: ModuleOp
    """Owns the network."""
    weights: NDArray[np.uint8]
    constants: NDArray[np.uint8]
    directory: Path


def write_package(compilation: Compilation, directory: Path) -> None:
    """Write the files; raises TilewrightError for what the instructions cannot say."""
    arenas = {name: int(compilation.arenas.get(name, 0)) for name in (WEIGHTS, ACTIVATIONS)}
    bases: dict[str, int] = {}
    offset = 0
    for name, size in arenas.items():
        bases[name] = offset
        offset += -(-size // PAGE) * PAGE
    bases[CONSTANTS] = offset
    network = network_of(compilation.network)
    programs = {
        one.kernel.symbol: program
        for one in compilation.kernels
        if one.program is not None
        for program in programs_of(one.program)
    }
    lowering = Lowering(compilation.machine, bases, shared_weights(list(programs.values())))
    steps, rows = _lower(compilation, network, programs, lowering)
    words = lowering.words()
    file = ProgramFile(
        machine=compilation.machine.model_dump(mode="json"),
        word_bytes=WORD_BYTES,
        arenas=arenas,
        bases=bases,
        kernels=tuple(rows),
        steps=tuple(steps),
    )
    (directory / "program.bin").write_bytes(words.astype("<u8").tobytes())
    (directory / "program.hlal").write_text(hlal_of(lowering))
    _weights(compilation, network, lowering, arenas[WEIGHTS]).tofile(directory / "weights.bin")
    (directory / "constants.bin").write_bytes(bytes(lowering.image))
    (directory / "network.mlir").write_text(to_text(compilation.network) + "\n")
    emit_kernels(compilation, directory)
    text = json.dumps(file.model_dump(mode="json"), indent=1, sort_keys=True)
    (directory / "program.json").write_text(text + "\n")


def hlal_of(lowering: Lowering) -> str:
    """The program as HLAL: one section of code."""
    return f".code\n{statements_text(lowering.statements)}"


def _lower(
    compilation: Compilation,
    network: NetworkOp,
    programs: dict[str, ProgramOp],
    lowering: Lowering,
) -> tuple[list[tuple[str, int]], list[KernelRow]]:
    """Lower the kernels in the network's order; the steps, and the words of each kernel."""
    nodes = {one.kernel.symbol: one.kernel.nodes for one in compilation.kernels}
    steps: list[tuple[str, int]] = []
    rows: list[KernelRow] = []
    for number, op in steps_of(network):
        symbol = op.symbol.data if isinstance(op, KernelOp) else ""
        if symbol not in programs:
            steps.append(("host", number))
            continue
        lowering.kernel(programs[symbol], nodes[symbol])
        steps.append(("words", len(rows)))
        start, end = lowering.starts[-2:]
        rows.append(KernelRow(symbol=symbol, nodes=nodes[symbol], start=start, end=end))
    return steps, rows


def _weights(
    compilation: Compilation, network: NetworkOp, lowering: Lowering, size: int
) -> NDArray[np.uint8]:
    """The arena of weights."""
    arena = np.zeros(size, np.uint8)
    for op in network.block.ops:
        if not isinstance(op, WeightOp) or op.placement is None:
            continue
        values = compilation.weights.get(op.symbol.data)
        offset = placement_of(op.result).offset
        lowering.fill(offset, np.asarray(values))
        cut = lowering.segments.get(offset)
        if cut is None:
            write_value(op.result, {WEIGHTS: arena}, values)
            continue
        data = cut.relaid(np.asarray(values)).astype("<i2").view(np.uint8)
        arena[offset : offset + data.size] = data
    return arena


def read_package(directory: Path) -> Package:
    """Read the files; refuses (``package-invalid``) what is damaged or does not fit together."""
    try:
        text = (directory / "program.json").read_text()
        file = ProgramFile.model_validate_json(text)
        machine = machine_of(file.machine, str(directory / "program.json"))
        data = (directory / "program.bin").read_bytes()
        source = (directory / "network.mlir").read_text()
        weights = np.fromfile(directory / "weights.bin", np.uint8)
        constants = np.fromfile(directory / "constants.bin", np.uint8)
    except (OSError, ValidationError, UnicodeDecodeError) as error:
        raise refuse("package-invalid", str(error)[:300], str(directory)) from None
    _check(file, weights.size, len(data), directory)
    try:
        module = Parser(graph_context(), source).parse_module()
        module.verify()
        network = network_of(module)
    except (ParseError, VerifyException) as error:
        raise refuse("package-invalid", str(error)[:300], str(directory / "network.mlir")) from None
    words = np.frombuffer(data, "<u8").astype(np.uint64)
    return Package(file, machine, words, network, module, weights, constants, directory)


def _check(file: ProgramFile, weights: int, size: int, directory: Path) -> None:
    ends = [row.end for row in file.kernels]
    bases = [file.bases.get(name, -1) for name in (WEIGHTS, ACTIVATIONS, CONSTANTS)]
    sizes = [file.arenas.get(name, -1) for name in (WEIGHTS, ACTIVATIONS)]
    problems = [
        (file.word_bytes != WORD_BYTES or size % WORD_BYTES, "the words have another size"),
        (set(file.arenas) != {WEIGHTS, ACTIVATIONS}, "the arenas are not those of a package"),
        (min(bases) < 0 or max(bases) > 4 * MAX_ARENA, "the addresses are incomplete"),
        (sizes[0] != weights, "weights.bin has another size"),
        (not 0 <= sizes[1] <= MAX_ARENA, "the activations are too large"),
        (bases[0] != 0 or bases[1] < sizes[0], "the arenas overlap"),
        (bases[2] < bases[1] + sizes[1], "the arenas overlap"),
        (any(row.end < row.start for row in file.kernels), "a kernel ends before it starts"),
        (max(ends, default=0) * WORD_BYTES > size, "words are missing"),
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

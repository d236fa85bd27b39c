"""Packages of derived instructions: what ``emit`` writes and the runner reads.

The files are those of program_file.py; the machine's own image is ``tables.bin``, the function
tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright.errors import refusals_of
from tilewright.graph.arenas import write_value
from tilewright.graph.dialect import KernelOp, NetworkOp, WeightOp, network_of
from tilewright.graph.placement import WEIGHTS
from tilewright.machine import Machine
from tilewright.targets.base import Compilation
from tilewright.targets.generic.c.program import KernelSource, write_c
from tilewright.targets.generic.encode import from_bytes, to_bytes
from tilewright.targets.generic.fields import Lanes
from tilewright.targets.generic.functions import TABLES
from tilewright.targets.generic.host import steps_of
from tilewright.targets.generic.isa import InstructionSet
from tilewright.targets.generic.lower import Lowering
from tilewright.targets.generic.program_file import (
    Addresses,
    KernelRow,
    ProgramParts,
    check_words,
    read_program,
    write_program,
)
from tilewright.tile.dialect import programs_of

Deriver = Callable[[Machine], InstructionSet]


@dataclass(frozen=True)
class Package:
    """A package read from disk."""

    parts: ProgramParts
    instructions: InstructionSet
    words: Lanes


def write_package(compilation: Compilation, directory: Path, instructions: InstructionSet) -> None:
    """Write the files; raises TilewrightError for what the instructions cannot say."""
    addresses = Addresses.of(compilation, TABLES)
    network = network_of(compilation.network)
    weights = np.zeros(addresses.arenas[WEIGHTS], np.uint8)
    for op in network.block.ops:
        if isinstance(op, WeightOp) and op.placement is not None:
            write_value(op.result, {WEIGHTS: weights}, compilation.weights.get(op.symbol.data))
    lowering = Lowering(instructions, addresses.bases, {WEIGHTS: weights})
    sources: list[KernelSource] = []
    steps, rows = _lower(compilation, network, lowering, sources)
    words, starts = lowering.words()
    write_program(
        compilation,
        directory,
        addresses,
        words=to_bytes(words),
        word_bytes=instructions.word_bytes,
        weights=weights,
        image=bytes(lowering.table_image),
        kernels=[
            KernelRow(symbol=symbol, nodes=nodes, start=starts[i], end=starts[i + 1])
            for i, (symbol, nodes) in enumerate(rows)
        ],
        steps=steps,
    )
    if compilation.machine.c is not None:
        whole = Lowering(instructions, addresses.bases, {WEIGHTS: weights})
        write_c(directory, network.symbol.data, instructions, whole, sources)


def _lower(
    compilation: Compilation,
    network: NetworkOp,
    lowering: Lowering,
    sources: list[KernelSource],
) -> tuple[list[tuple[str, int]], list[tuple[str, tuple[str, ...]]]]:
    """Lower the kernels in the network's order; the steps, and symbol and nodes per kernel.

    ``sources`` gets the kernels' programs.
    """
    compiled = {one.kernel.symbol: one for one in compilation.kernels}
    steps: list[tuple[str, int]] = []
    rows: list[tuple[str, tuple[str, ...]]] = []
    for number, op in steps_of(network):
        one = compiled.get(op.symbol.data) if isinstance(op, KernelOp) else None
        if one is None or one.program is None:
            lowering.barrier()
            steps.append(("host", number))
            continue
        programs = programs_of(one.program)
        for program in programs:
            with refusals_of(one.kernel.symbol):
                lowering.kernel(program)
        sources.append(KernelSource(one.kernel.symbol, one.kernel.nodes, programs))
        steps.append(("words", len(rows)))
        rows.append((one.kernel.symbol, one.kernel.nodes))
    return steps, rows


def read_package(directory: Path, derive: Deriver) -> Package:
    """Read the files; refuses (``package-invalid``) what is damaged or does not fit together."""
    parts = read_program(directory, TABLES)
    instructions = derive(parts.machine)
    check_words(parts, instructions.word_bytes)
    return Package(parts, instructions, from_bytes(instructions, parts.data))

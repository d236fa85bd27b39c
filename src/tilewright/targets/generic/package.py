"""Packages of derived instructions: what ``emit`` writes and the runner reads.

The files are those of codegen/program/files.py; the machine's own image is ``tables.bin``, the
function tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tilewright.codegen.program.files import (
    Addresses,
    HeldResult,
    KernelRow,
    ProgramParts,
    check_words,
    compiled_steps,
    held_result,
    read_program,
    weights_of,
    write_program,
)
from tilewright.codegen.program.interface import Compilation
from tilewright.codegen.words import Units, from_bytes, to_bytes
from tilewright.errors import Refusals
from tilewright.graph.dialect import network_of
from tilewright.graph.placement import WEIGHTS
from tilewright.machine import Machine
from tilewright.targets.generic.c.program import KernelSource, write_c
from tilewright.targets.generic.functions import TABLES
from tilewright.targets.generic.isa import InstructionSet
from tilewright.targets.generic.lower import Lowering
from tilewright.tile.dialect import programs_of

Deriver = Callable[[Machine], InstructionSet]


@dataclass(frozen=True)
class Package:
    """A package read from disk."""

    parts: ProgramParts
    instructions: InstructionSet
    words: Units


def write_package(compilation: Compilation, directory: Path, instructions: InstructionSet) -> None:
    """Write the files; raises KernelError for kernels that no instructions can say."""
    addresses = Addresses.of(compilation, TABLES)
    weights = weights_of(compilation, addresses)
    lowering = Lowering(instructions, addresses.bases, {WEIGHTS: weights})
    sources: list[KernelSource] = []
    steps, rows = _lower(compilation, lowering, sources)
    words, starts = lowering.words()
    write_program(
        compilation,
        directory,
        addresses,
        words=to_bytes(instructions, words),
        word_bytes=instructions.word_bytes,
        weights=weights,
        image=bytes(lowering.table_image),
        kernels=[
            KernelRow(symbol=symbol, nodes=nodes, start=starts[i], end=starts[i + 1], held=held)
            for i, (symbol, nodes, held) in enumerate(rows)
        ],
        steps=steps,
    )
    if compilation.machine.c is not None:
        whole = Lowering(instructions, addresses.bases, {WEIGHTS: weights})
        write_c(
            directory, network_of(compilation.network).symbol.data, instructions, whole, sources
        )


def _lower(
    compilation: Compilation, lowering: Lowering, sources: list[KernelSource]
) -> tuple[list[tuple[str, int]], list[tuple[str, tuple[str, ...], HeldResult | None]]]:
    """Lower the kernels in the network's order; the steps, and symbol, nodes and the result that
    stays on the chip per kernel.

    ``sources`` gets the kernels' programs.
    """
    steps: list[tuple[str, int]] = []
    rows: list[tuple[str, tuple[str, ...], HeldResult | None]] = []
    refused = Refusals()
    for number, op, compiled in compiled_steps(compilation):
        if compiled is None or compiled.program is None:
            lowering.barrier()
            steps.append(("host", number))
            continue
        kernel, programs = compiled.kernel, programs_of(compiled.program)
        with refused.of(kernel.symbol):
            for program in programs:
                lowering.kernel(program)
        sources.append(KernelSource(kernel.symbol, kernel.nodes, programs))
        steps.append(("words", len(rows)))
        rows.append((kernel.symbol, kernel.nodes, held_result(programs, op)))
    refused.check()
    return steps, rows


def read_package(directory: Path, derive: Deriver) -> Package:
    """Read the files; refuses (``package-invalid``) what is damaged or does not fit together."""
    parts = read_program(directory, TABLES)
    instructions = derive(parts.machine)
    check_words(parts, instructions.word_bytes)
    return Package(parts, instructions, from_bytes(instructions, parts.data))

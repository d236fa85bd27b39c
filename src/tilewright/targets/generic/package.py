"""Packages of derived instructions: what ``emit`` writes and the runner reads.

The files are those of codegen/program/files.py; the machine's own image is ``tables.bin``, the
function tables.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from tilewright.codegen.program.files import (
    Addresses,
    ProgramParts,
    check_words,
    kernel_rows,
    lower_kernels,
    read_program,
    weights_of,
    write_program,
)
from tilewright.codegen.program.interface import Compilation
from tilewright.codegen.words import to_bytes
from tilewright.graph.dialect import network_of
from tilewright.graph.placement import WEIGHTS
from tilewright.machine import Machine
from tilewright.targets.generic.c.program import write_c
from tilewright.targets.generic.functions import TABLES
from tilewright.targets.generic.isa import InstructionSet
from tilewright.targets.generic.lower import Lowering

Deriver = Callable[[Machine], InstructionSet]


def write_package(compilation: Compilation, directory: Path, instructions: InstructionSet) -> None:
    """Write the files; raises KernelError for kernels that no instructions can say."""
    addresses = Addresses.of(compilation, TABLES)
    weights = weights_of(compilation, addresses)
    lowering = Lowering(instructions, addresses.bases, {WEIGHTS: weights})
    steps, kernels = lower_kernels(compilation, lowering.kernel, lambda _: lowering.barrier())
    words, starts = lowering.words()
    write_program(
        compilation,
        directory,
        addresses,
        words=to_bytes(instructions, words),
        word_bytes=instructions.word_bytes,
        weights=weights,
        image=bytes(lowering.table_image),
        kernels=kernel_rows(compilation, kernels, pairwise(starts)),
        steps=steps,
    )
    if compilation.machine.c is not None:
        whole = Lowering(instructions, addresses.bases, {WEIGHTS: weights})
        name = network_of(compilation.network).symbol.data
        sizes = {**addresses.arenas, "tables": len(lowering.table_image)}
        write_c(directory, name, instructions, whole, kernels, sizes)


def read_package(directory: Path, derive: Deriver) -> tuple[ProgramParts, InstructionSet]:
    """Read the files; refuses (``package-invalid``) what is damaged or does not fit together."""
    parts = read_program(directory, TABLES)
    instructions = derive(parts.machine)
    check_words(parts, instructions.word_bytes)
    return parts, instructions

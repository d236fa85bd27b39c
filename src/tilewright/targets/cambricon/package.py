"""Packages of ACC-C: what ``emit`` writes and the runner reads.

The files are those of codegen/program/files.py, and:

program.hlal    the words as text, which the assembler accepts; kernels and nodes as comments
constants.bin   function tables, the machine's own image

In weights.bin the weights of products are laid out by segment.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.program.files import (
    Addresses,
    ProgramParts,
    check_words,
    kernel_rows,
    lower_kernels,
    read_program,
    write_program,
)
from tilewright.codegen.program.interface import Compilation
from tilewright.graph.arenas import write_value
from tilewright.graph.dialect import NetworkOp, WeightOp, network_of
from tilewright.graph.operations.loops import loop_in
from tilewright.graph.placement import WEIGHTS, placement_of
from tilewright.ir import Operation
from tilewright.targets.cambricon.lowering.network import (
    CONSTANTS,
    Lowering,
    shared_weights,
)
from tilewright.targets.cambricon.statements import to_text as statements_text
from tilewright.tile.dialect import ProgramOp

WORD_BYTES = 8


def write_package(compilation: Compilation, directory: Path) -> None:
    """Write the files; raises TilewrightError for what the instructions cannot say."""
    addresses = Addresses.of(compilation, CONSTANTS)
    network = network_of(compilation.network)
    programs = [program for item in compilation.kernels for program in item.programs]
    cycles = {item.kernel.symbol: item.predicted_cycles for item in compilation.kernels}
    lowering = Lowering(compilation.machine, addresses.bases, shared_weights(programs))
    lowering.hold(programs)

    def kernel(program: ProgramOp) -> None:
        lowering.kernel(program, program.get("nodes"), cycles[program.symbol.data])

    def barrier(op: Operation) -> None:
        if loop_in(op) is not None:
            lowering.lose_chip()

    steps, kernels = lower_kernels(compilation, kernel, barrier)
    words = lowering.words()
    # These fill constants of the lowering's image, too.
    weights = _weights(compilation, network, lowering, addresses.arenas[WEIGHTS])
    (directory / "program.hlal").write_text(f".code\n{statements_text(lowering.statements)}")
    write_program(
        compilation,
        directory,
        addresses,
        words=words.astype("<u8").tobytes(),
        word_bytes=WORD_BYTES,
        weights=weights,
        image=bytes(lowering.image),
        kernels=kernel_rows(compilation, kernels, pairwise(lowering.starts)),
        steps=steps,
    )


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


def read_package(directory: Path) -> ProgramParts:
    """Read the files; refuses (``package-invalid``) what is damaged or does not fit together."""
    parts = read_program(directory, CONSTANTS)
    check_words(parts, WORD_BYTES)
    return parts

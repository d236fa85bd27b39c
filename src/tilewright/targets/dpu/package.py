"""Packages of the core: what ``emit`` writes and the runner reads.

The files are those of the generic program_file.py; ``biases.bin`` is the machine's own image. Words
have 4 bytes, instructions several of them: kernels are counted in instructions.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import KernelError, TilewrightError, refusals_of, refuse
from tilewright.graph.arenas import write_value
from tilewright.graph.dialect import KernelOp, NetworkOp, WeightOp, network_of
from tilewright.graph.placement import WEIGHTS
from tilewright.targets.base import Compilation
from tilewright.targets.dpu.core import Core
from tilewright.targets.dpu.lowering.network import Lowering
from tilewright.targets.dpu.registers import BIASES
from tilewright.targets.dpu.segments import Segments
from tilewright.targets.generic.host import steps_of
from tilewright.targets.generic.program_file import (
    Addresses,
    KernelRow,
    ProgramParts,
    read_program,
    write_program,
)
from tilewright.tile.dialect import programs_of

WORD_BYTES = 4


@dataclass(frozen=True)
class Package:
    """A package read from disk."""

    parts: ProgramParts
    core: Core
    segments: Segments


def write_package(compilation: Compilation, directory: Path, core: Core) -> None:
    """Write the files; raises KernelError for kernels that no instructions can say."""
    addresses = Addresses.of(compilation, BIASES)
    network = network_of(compilation.network)
    weights = np.zeros(addresses.arenas[WEIGHTS], np.uint8)
    for op in network.block.ops:
        if isinstance(op, WeightOp) and op.placement is not None:
            write_value(op.result, {WEIGHTS: weights}, compilation.weights.get(op.symbol.data))
    lowering = Lowering(core, weights)
    steps, rows = _lower(compilation, network, lowering)
    words = lowering.words()
    write_program(
        compilation,
        directory,
        addresses,
        words=words,
        word_bytes=WORD_BYTES,
        weights=weights,
        image=bytes(lowering.image),
        kernels=rows,
        steps=steps,
    )


def _lower(
    compilation: Compilation, network: NetworkOp, lowering: Lowering
) -> tuple[list[tuple[str, int]], list[KernelRow]]:
    """Lower the kernels in the network's order; the steps, and the instructions of each kernel."""
    compiled = {one.kernel.symbol: one for one in compilation.kernels}
    steps: list[tuple[str, int]] = []
    kernels: list[tuple[str, tuple[str, ...]]] = []
    refused: list[KernelError] = []
    for number, op in steps_of(network):
        one = compiled.get(op.symbol.data) if isinstance(op, KernelOp) else None
        if one is None or one.program is None:
            lowering.barrier()
            steps.append(("host", number))
            continue
        try:
            with refusals_of(one.kernel.symbol):
                for program in programs_of(one.program):
                    lowering.kernel(program)
        except KernelError as error:
            refused.append(error)
            continue
        steps.append(("words", len(kernels)))
        kernels.append((one.kernel.symbol, one.kernel.nodes))
    if refused:
        raise KernelError(refused[0].symbol, refused[0].problems, refused[1:])
    rows = [
        KernelRow(symbol=symbol, nodes=nodes, start=start, end=end)
        for (symbol, nodes), (start, end) in zip(kernels, lowering.starts, strict=True)
    ]
    return steps, rows


def read_package(directory: Path, core: Core) -> Package:
    """Read the files; refuses (``package-invalid``) what is damaged or does not fit together."""
    parts = read_program(directory, BIASES)
    file = parts.file
    if file.word_bytes != WORD_BYTES or parts.machine.name != core.name:
        raise refuse("package-invalid", f"the words are not those of {core.name}", str(directory))
    try:
        segments = Segments.read(core, parts.data)
    except TilewrightError as error:
        raise refuse("package-invalid", str(error)[:300], str(directory / "program.bin")) from None
    if max((row.end for row in file.kernels), default=0) > len(segments.operations):
        raise refuse("package-invalid", "words are missing", str(directory))
    return Package(parts, core, segments)


def as_bytes(data: NDArray[np.uint8]) -> NDArray[np.int8]:
    """The same bytes as int8."""
    return data.view(np.int8)

"""Packages of the core: what ``emit`` writes and the runner reads.

The files are those of codegen/program/files.py; ``biases.bin`` is the machine's own image. Words
have 4 bytes, instructions several of them: kernels are counted in instructions.
"""

from __future__ import annotations

from pathlib import Path

from tilewright.codegen.program.files import (
    Addresses,
    ProgramParts,
    kernel_rows,
    lower_kernels,
    read_program,
    weights_of,
    write_program,
)
from tilewright.codegen.program.interface import Compilation
from tilewright.errors import TilewrightError, refuse
from tilewright.targets.dpu.core import Core
from tilewright.targets.dpu.lowering.network import Lowering
from tilewright.targets.dpu.registers import BIASES
from tilewright.targets.dpu.segments import WORD_BYTES, Segments


def write_package(compilation: Compilation, directory: Path, core: Core) -> None:
    """Write the files; raises KernelError for kernels that no instructions can say."""
    addresses = Addresses.of(compilation, BIASES)
    weights = weights_of(compilation, addresses)
    lowering = Lowering(core, weights)
    steps, kernels = lower_kernels(compilation, lowering.kernel, lambda _: lowering.barrier())
    words = lowering.words()
    write_program(
        compilation,
        directory,
        addresses,
        words=words,
        word_bytes=WORD_BYTES,
        weights=weights,
        image=bytes(lowering.image),
        kernels=kernel_rows(compilation, kernels, lowering.starts),
        steps=steps,
    )


def read_package(directory: Path, core: Core) -> tuple[ProgramParts, Segments]:
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
    return parts, segments

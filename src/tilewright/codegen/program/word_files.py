"""Packages of instruction words: kernels that are lowered one by one, each operation at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.codegen.program.files import (
    Addresses,
    kernel_rows,
    lower_kernels,
    weights_of,
    write_program,
)
from tilewright.codegen.program.interface import Compilation
from tilewright.codegen.words import (
    Column,
    Columns,
    Instruction,
    InstructionSet,
    Units,
    encode_columns,
    to_bytes,
)
from tilewright.tile.dialect import ProgramOp

IMAGE = "image"
"""The name of the machine's own image in main memory, which is empty here."""

_NONE = np.zeros(0, np.int64)

Part = tuple[str, Mapping[str, Any], Column]
"""The instructions of all executions of an operation: mnemonic, fields, and keys that sort the
instructions of a kernel."""

Lower = Callable[[ProgramOp, Mapping[str, int]], Sequence[Part]]
"""Gives the parts of a kernel's program, where arenas begin at these addresses of main memory."""


def encoded(
    instructions: InstructionSet[Any], parts: Iterable[tuple[Instruction, Columns, Column]]
) -> Units:
    """The units of a kernel's instructions, in the order of their keys."""
    units, keys = [np.zeros((0, instructions.instructions[0].units), np.uint64)], [_NONE]
    for kind, fields, part_keys in parts:
        units.append(encode_columns(instructions, kind, fields, part_keys.size))
        keys.append(part_keys)
    return np.concatenate(units)[np.argsort(np.concatenate(keys), kind="stable")]


def write_words(
    compilation: Compilation,
    directory: Path,
    instructions: InstructionSet[Instruction],
    lower: Lower,
) -> None:
    """Write a package whose words all have one length; raises KernelError."""
    addresses = Addresses.of(compilation, IMAGE)
    units, starts = [encoded(instructions, ())], [0]

    def kernel(program: ProgramOp) -> None:
        parts, kinds = lower(program, addresses.bases), instructions.by_mnemonic
        named = [(kinds[name], fields, keys) for name, fields, keys in parts]
        units.append(encoded(instructions, named))
        starts.append(starts[-1] + len(units[-1]))

    steps, kernels = lower_kernels(compilation, kernel)
    write_program(
        compilation,
        directory,
        addresses,
        words=to_bytes(instructions, np.concatenate(units)),
        word_bytes=instructions.instructions[0].units * instructions.unit_bits // 8,
        weights=weights_of(compilation, addresses),
        image=b"",
        kernels=kernel_rows(compilation, kernels, pairwise(starts)),
        steps=steps,
    )

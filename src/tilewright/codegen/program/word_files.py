"""Packages of instruction words: kernels that are lowered one by one, each operation at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from tilewright.codegen.words import Column, Instruction, InstructionSet, encode_columns, to_bytes
from tilewright.tile.dialect import ProgramOp

IMAGE = "image"
"""The name of the machine's own image in main memory, which is empty here."""

Part = tuple[str, Mapping[str, Any], Column]
"""The instructions of all executions of an operation: mnemonic, fields, and keys that sort the
instructions of a kernel, or then their places in it."""

Lower = Callable[[ProgramOp, Mapping[str, int]], Sequence[Part]]
"""Gives the parts of a kernel's program, where arenas begin at these addresses of main memory."""


def placed(parts: Sequence[Part]) -> tuple[list[Part], int]:
    """Parts with the places of their instructions in place of keys, and the number of all."""
    keys = [part_keys for *_, part_keys in parts]
    place = np.argsort(np.argsort(np.concatenate(keys), kind="stable"))
    rows = np.split(place, np.cumsum([key.size for key in keys])[:-1])
    return [(name, fields, at) for (name, fields, _), at in zip(parts, rows, strict=True)], len(
        place
    )


def write_words(
    compilation: Compilation,
    directory: Path,
    instructions: InstructionSet[Instruction],
    lower: Lower,
) -> None:
    """Write a package whose words all have one length; raises KernelError."""
    addresses = Addresses.of(compilation, IMAGE)
    width = instructions.instructions[0].units
    units = [np.zeros((0, width), np.uint64)]
    spans: list[tuple[int, int]] = []

    def kernel(program: ProgramOp) -> None:
        start = spans[-1][1] if spans else 0
        parts, size = placed(lower(program, addresses.bases))
        table = np.zeros((size, width), np.uint64)
        for name, fields, rows in parts:
            kind = instructions.by_mnemonic[name]
            table[rows] = encode_columns(instructions, kind, fields, rows.size)
        units.append(table)
        spans.append((start, start + size))

    steps, kernels = lower_kernels(compilation, kernel, lambda: None)
    write_program(
        compilation,
        directory,
        addresses,
        words=to_bytes(instructions, np.concatenate(units)),
        word_bytes=width * instructions.unit_bits // 8,
        weights=weights_of(compilation, addresses),
        image=b"",
        kernels=kernel_rows(compilation, kernels, spans),
        steps=steps,
    )

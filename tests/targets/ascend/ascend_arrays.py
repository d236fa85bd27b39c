"""Matrices in block formats with NaN in their padding, and running kernels on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from benchmarks.papers.ascend.handovers import synchronised
from numpy.typing import NDArray

from tilewright.planning.layout import Layout
from tilewright.targets.ascend.emit import kernel_text
from tilewright.targets.ascend.formats import nz, padded
from tilewright.targets.ascend.host import Kernel, Outcome, build
from tilewright.targets.ascend.machine import ASCEND_910, DaVinci
from tilewright.targets.ascend.program import Program

Halves = NDArray[np.float16]
NZ = Layout.parse(nz(), 2)


def pack(matrix: Halves) -> Halves:
    """A matrix in Nz."""
    rows, columns = matrix.shape
    widths = [(0, -rows % 16), (0, -columns % 16)]
    return NZ.pack(np.pad(matrix, widths, constant_values=np.float16(np.nan)))


def unpack(data: Halves, shape: tuple[int, int]) -> Halves:
    """The matrix of what lies in Nz."""
    whole = padded(shape[0]), padded(shape[1])
    return NZ.unpack(data.reshape(NZ.physical_shape(whole)), whole)[: shape[0], : shape[1]]


def empty(rows: int, columns: int) -> Halves:
    """Room for a matrix in Nz."""
    return np.full(padded(rows) * padded(columns), np.nan, np.float16)


def built(program: Program, core: DaVinci = ASCEND_910) -> Kernel:
    """The kernel of a program without flags."""
    return build(kernel_text(synchronised(program, events=core.events)), program.name, core)


def run(
    kernel: Kernel,
    arguments: Mapping[str, NDArray],  # type: ignore[type-arg]
    order: int = 0,
    blocks: int = 1,
) -> Outcome:
    """Run all blocks, and see that nothing was wrong."""
    outcome = kernel.run(arguments, order=order, blocks=blocks)
    assert outcome.problems == ()
    return outcome


def whole_numbers(seed: int, *shape: int, most: int = 4) -> Halves:
    """Small whole numbers, of which sums of products are exact."""
    random = np.random.default_rng(seed)
    return random.integers(-most, most + 1, shape).astype(np.float16)


__all__: Sequence[str] = ["built", "empty", "pack", "run", "unpack", "whole_numbers"]

"""What tests of blocks share: random arrays of a program's declarations, and a checked run."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.targets.cambricon.hlal.assemble import Program, assemble
from tilewright.targets.cambricon.hlal.machines import machine_named
from tilewright.targets.cambricon.hlal.run import execute, sizes_of

Array = NDArray[Any]
MACHINE = machine_named("cambricon")


def build(text: str, target: str = "cambricon") -> Program:
    return assemble(text, "p.hlal", sizes_of(machine_named(target)))


def arrays(program: Program, random: np.random.Generator, most: int = 2000) -> dict[str, Array]:
    """Random integers for every read-only array."""
    return {
        array.name: random.integers(-most, most, array.shape).astype(array.dtype)
        for array in program.data.arrays
        if not array.writable
    }


def outputs(
    text: str, given: dict[str, Array], target: str = "cambricon", check: bool = True
) -> dict[str, Array]:
    """The arrays that a program writes; every run looks for missed barriers, too."""
    program = build(text, target)
    return execute(program, machine_named(target), given, check=check).outputs


def sizes(shape: tuple[int, ...], random: np.random.Generator) -> str:
    """A shape with random segments, as in a declaration."""
    segments = [int(random.integers(1, size + 1)) for size in shape]
    return ", ".join(map(str, [*shape, *segments]))

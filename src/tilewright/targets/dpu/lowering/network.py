"""Lowering: the tile programs of a network become programs of words, one between two host steps.

The tile program says what is moved and computed in which order, and where buffers lie in the banks.
Its moves become a LOAD or SAVE for every row, its computes one instruction for as many rows as the
core computes at once. Its waits become tokens: a command waits for rows of buffers, and each of its
instructions for those that touch the same rows. What kernels owe one another follows from the bank
rows and bytes that they touch (dependences.py).

Main memory has three base registers: the arena of weights, the image of biases, and the arena of
activations. The image holds zeros for kernels without a bias, then every bias as bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import refuse
from tilewright.targets.dpu.core import Core
from tilewright.targets.dpu.lowering.kernel import KernelLowering
from tilewright.targets.dpu.lowering.program import Program
from tilewright.targets.dpu.machine import MOST_GROUPS
from tilewright.tile.dialect import ProgramOp

MOST_BIAS_SHIFT = 19
"""The largest left shift of a bias; the field holds one more, counted against twice the sum."""


@dataclass(frozen=True)
class Bias:
    """A bias as the banks hold it."""

    offset: int
    """Byte offset in the image of biases."""
    shift: int
    """Left shift to the binary point of the sums."""


@dataclass
class Lowering:
    """Lowers kernels one after the other.

    ``content`` is the arena of weights; empty for timing, when no bias is known.
    """

    core: Core
    content: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    programs: list[Program] = field(default_factory=list[Program])
    starts: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """First instruction of each kernel, and the first after it, over all programs."""
    image: bytearray = field(default_factory=bytearray)
    _open: bool = False
    _count: int = 0
    _biases: dict[tuple[int, int], Bias] = field(default_factory=dict[tuple[int, int], Bias])

    def __post_init__(self) -> None:
        self.image += bytes(MOST_GROUPS * self.core.channels)

    def barrier(self) -> None:
        """The host runs here: the program ends, and another begins after it."""
        if self._open:
            self._count += 1  # END
        self._open = False

    def kernel(self, program: ProgramOp) -> None:
        """Append a kernel. Raises TilewrightError."""
        if not self._open:
            self.programs.append(Program(self.core))
            self._open = True
        whole = self.programs[-1]
        whole.open()
        KernelLowering(self, program, whole).lower()
        size = len(whole.statements) - whole.dependences.start
        whole.close()
        self.starts.append((self._count, self._count + size))
        self._count += size

    def words(self) -> bytes:
        """All programs, one after another, with their ENDs."""
        return b"".join(program.words() for program in self.programs)

    def bias(self, offset: int, count: int, name: str) -> Bias:
        """The place of a bias of ``count`` numbers at an offset of the arena of weights.

        Refuses (``lower-bias``) one that is no int8 times a power of two.
        """
        if not self.content.size:
            return Bias(0, 0)
        key = offset, count
        if key not in self._biases:
            values = self.content[offset : offset + 4 * count].view("<i4").astype(np.int64)
            shift, numbers = as_bytes(values, name)
            self._biases[key] = Bias(len(self.image), shift)
            self.image += numbers.tobytes()
        return self._biases[key]


def as_bytes(values: NDArray[np.int64], name: str) -> tuple[int, NDArray[np.int8]]:
    """(shift, numbers): values are numbers * 2**shift."""
    bits = int(np.bitwise_or.reduce(np.abs(values), initial=0))
    shift = min((bits & -bits).bit_length() - 1, MOST_BIAS_SHIFT) if bits else 0
    numbers = values >> shift
    if numbers.min(initial=0) < -128 or numbers.max(initial=0) > 127:
        raise refuse(
            "lower-bias",
            f"its bias is no 8-bit number times a power of two up to 2**{MOST_BIAS_SHIFT}",
            name,
            "round the bias to 8 bits, or bring its binary point nearer to that of the sums",
        )
    return shift, numbers.astype(np.int8)

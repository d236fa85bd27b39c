"""Loops over tiles of equal sizes, and the buffers of a tile.

An extent that tiles do not divide ends with a tile that begins earlier, so that it ends with the
extent: what two tiles have in common is computed twice, and stored twice with the same values (the
thesis' overlap, 6.4.3). So kernels have one body, and no tail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.targets.ascend import isa
from tilewright.targets.ascend.kernels.vectors import Room
from tilewright.targets.ascend.machine import DaVinci
from tilewright.targets.ascend.program import (
    Buffer,
    Loop,
    Program,
    Statement,
    Tensor,
    Value,
    least,
)


@dataclass(frozen=True)
class Cut:
    """An extent in tiles of one size."""

    extent: int
    size: int

    @property
    def count(self) -> int:
        """How many tiles there are."""
        return -(-self.extent // self.size)

    def start(self, number: Value) -> Value:
        """Where a tile begins."""
        if self.extent % self.size == 0:
            return number * self.size
        return least(number * self.size, self.extent - self.size)


def cut(extent: int, most: int, granule: int = 8) -> Cut:
    """Tiles of at most so many, as equal as multiples of the granule allow."""
    if extent <= most:
        return Cut(extent, extent)
    most = max(most // granule * granule, 1)
    count = -(-extent // most)
    size = -(-extent // count)
    return Cut(extent, min(-(-size // granule) * granule, most))


@dataclass
class Tiles:
    """A kernel in the making: nested loops, of which the innermost has the body."""

    name: str
    core: DaVinci
    counts: Sequence[int]
    """Iterations of the loops, the outermost first."""
    before: list[Statement] = field(default_factory=list[Statement])
    buffers: list[Buffer] = field(default_factory=list[Buffer])

    def __post_init__(self) -> None:
        self.room = Room(self.core.ub, self.name)
        self.loops = [Loop(f"i{number}", count) for number, count in enumerate(self.counts or (1,))]
        for outer, inner in zip(self.loops, self.loops[1:], strict=False):
            outer.body.append(inner)
        number: Value = 0
        for loop in self.loops:
            number = loop.variable + number * (loop.count if isinstance(loop.count, int) else 0)
        self.number = number
        total = 1
        for count in self.counts:
            total *= count
        self.slots = min(2, total)

    @property
    def variables(self) -> list[Value]:
        """The loops' variables."""
        return [loop.variable for loop in self.loops]

    @property
    def body(self) -> list[Statement]:
        """Of the innermost loop."""
        return self.loops[-1].body

    def tile(
        self, name: str, size: int, element: str = "float", slots: int | None = None
    ) -> Buffer:
        """A buffer with contents of each iteration, in two slots if not said otherwise."""
        slots = self.slots if slots is None else min(slots, self.slots)
        address = self.room.take(size * slots)
        slot = self.number % slots if slots > 1 else 0
        home = Buffer(name, "ub", address, size, slots, slot, self.loops[-1], element)
        self.buffers.append(home)
        return home

    def kept(self, name: str, size: int, element: str = "float") -> Buffer:
        """A buffer for the whole kernel."""
        home = Buffer(name, "ub", self.room.take(size), size, element=element)
        self.buffers.append(home)
        return home

    def shorten(self, cut: Cut, extent: Value) -> None:
        """Let the innermost loop, over the tiles of a cut, end with the tile that holds the last of
        ``extent`` indices; slots stay those of whole extents."""
        if cut.count > 1:
            self.loops[-1].count = (extent + (cut.size - 1)) // cut.size

    def program(self, tensors: Sequence[Tensor], about: str, longest: int = 0) -> Program:
        """The kernel, without flags."""
        body = [isa.mask_of(128, 128), *self.before, self.loops[0]]
        return Program(self.name, tuple(tensors), body, tuple(self.buffers), about, longest)

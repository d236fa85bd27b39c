"""Loops over tiles of equal sizes, and the buffers of a tile.

An extent that tiles do not divide ends with a tile that begins earlier, so that it ends with the
extent: what two tiles have in common is computed twice, and stored twice with the same values (the
thesis' overlap, 6.4.3). So kernels have one body, and no tail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from tilewright.codegen.nest.value import Value, least
from tilewright.errors import refuse
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.kernels.shares import Extent, Share, share_of
from tilewright.targets.ascend.kernels.vectors import Grid, Room, Vectors
from tilewright.targets.ascend.machine import BLOCK, DaVinci
from tilewright.targets.ascend.program import (
    Buffer,
    Loop,
    Place,
    Program,
    Statement,
    Tensor,
    block_places,
)


@dataclass(frozen=True)
class Cut:
    """A block's indices of an axis in tiles of one size, which no run is shorter than."""

    share: Share
    size: int

    @property
    def most(self) -> int:
        """The number of tiles of the longest run."""
        return -(-self.share.part // self.size)

    @property
    def count(self) -> Value:
        """The number of tiles of this run."""
        if isinstance(self.share.size, int) or self.most == 1:
            return self.most
        return (self.share.size + (self.size - 1)) // self.size

    def start(self, number: Value) -> Value:
        """Return the first index of a tile."""
        share = self.share
        if self.most == 1:
            return share.first
        if share.part % self.size == 0 and share.shortest % self.size == 0:
            return share.first + number * self.size
        return share.first + least(number * self.size, share.size - self.size)

    def until(self, extent: Value) -> Value:
        """Return the number of tiles that hold a block's part of the axis's first ``extent``
        indices; less than 1 where the part is empty."""
        share = self.share
        if not share.places:
            return self.count if self.most == 1 else (extent + (self.size - 1)) // self.size
        place = least(share.size, extent - share.first)
        return (place + (self.size - 1)) // self.size


def cut(extent: Extent, most: int, granule: int = 8, block: int = 1) -> Cut:
    """Tiles of at most so many, as equal as multiples of the granule allow; where runs differ,
    multiples of the granule's part ``block``. Refuses (``lower-grid``) runs that are shorter."""
    share = share_of(extent)
    size = share.part
    if size > most:
        most = max(most // granule * granule, 1)
        size = -(-size // -(-size // most))
        size = min(-(-size // granule) * granule, most)
    if size > share.shortest:
        size = share.shortest
        size -= size % (granule if size > granule else block)
    if size < 1:
        reason = f"a block has {share.shortest} indices, which is no run of {block}"
        raise refuse("lower-grid", reason, help="a grid of longer runs")
    return Cut(share, size)


def each(extent: Extent) -> Cut:
    """Indices one by one."""
    return Cut(share_of(extent), 1)


@dataclass
class Tiles:
    """A kernel in the making: nested loops, of which the innermost has the body."""

    name: str
    core: DaVinci
    axes: Sequence[Cut]
    """The loops' tiles, the outermost loop's first."""
    before: list[Statement] = field(default_factory=list[Statement])
    buffers: list[Buffer] = field(default_factory=list[Buffer])

    def __post_init__(self) -> None:
        self.room = Room(self.core.ub, self.name)
        self.loops = [Loop(f"i{number}", axis.count) for number, axis in enumerate(self.axes)]
        for outer, inner in zip(self.loops, self.loops[1:], strict=False):
            outer.body.append(inner)
        # Where some blocks have fewer tiles, the turns of those that they lack are left out.
        self.number: Value = 0
        for loop, axis in zip(self.loops, self.axes, strict=True):
            self.number = loop.variable + self.number * axis.most
        self.slots = min(2, prod(axis.most for axis in self.axes))

    @property
    def starts(self) -> list[Value]:
        """The first index of a tile along each axis."""
        pairs = zip(self.loops, self.axes, strict=True)
        return [axis.start(loop.variable) for loop, axis in pairs]

    @property
    def body(self) -> list[Statement]:
        """The statements of the innermost loop."""
        return self.loops[-1].body

    def tile(
        self, name: str, size: int, element: str = "float", slots: int | None = None
    ) -> Buffer:
        """A buffer with contents of each iteration, in two slots if not said otherwise."""
        slots = self.slots if slots is None else min(slots, self.slots)
        return self._rotating(name, size, element, slots, self.number, self.loops[-1])

    def part(self, name: str, loop: Loop, most: int, size: int, element: str) -> Buffer:
        """A buffer with contents of each iteration of a loop in the body, which runs ``most`` times
        at the most."""
        slots = min(2, most * self.slots)
        return self._rotating(name, size, element, slots, loop.variable + self.number * most, loop)

    def _rotating(
        self, name: str, size: int, element: str, slots: int, number: Value, scope: Loop
    ) -> Buffer:
        slot = number % slots if slots > 1 else 0
        home = Buffer(name, "ub", self.room.take(size * slots), size, slots, slot, scope, element)
        self.buffers.append(home)
        return home

    def kept(self, name: str, size: int, element: str = "float") -> Buffer:
        """A buffer for the whole kernel."""
        home = Buffer(name, "ub", self.room.take(size), size, element=element)
        self.buffers.append(home)
        return home

    def filled(self, out: Grid, rows: int, columns: int, value: str) -> None:
        """Set rows to one value, as C, before all loops."""
        once = Vectors(prefix="c")
        once.fill(out, rows, columns, value)
        self.before += once.body

    def alike(self, name: str, value: str, element: str = "half") -> Grid:
        """A block of elements alike, for all columns of all rows."""
        home = Grid(Place(self.kept(name, BLOCK, element)), spread=True)
        self.filled(Grid(home.place), 1, BLOCK // home.width, value)
        return home

    def program(self, tensors: Sequence[Tensor], about: str, longest: int = 0) -> Program:
        """The kernel, without flags."""
        body = [isa.mask_of(128, 128), *self.before, self.loops[0]]
        places = [place for axis in self.axes for place in axis.share.places]
        constants, blocks = block_places(places)
        return Program(
            *(self.name, tuple(tensors), body, tuple(self.buffers), about, longest),
            blocks=blocks,
            constants=constants,
        )

"""Products in pieces of bfloat16 on matrix tiles: how a block of points lies, and its schedules.

Scratch holds what windows of a block of points read, split into pieces, without repeating it: rows
and columns of the padded image. Of a stride above 1 each phase (rows and columns that are so far
apart) is an image of its own, so that taps of neighbouring points are neighbours, too. Points are
numbered along the rows of such an image, over the columns at their ends that belong to none; 16 of
them are a matrix tile, at an offset for each tap.

Of three pieces the weights are split as the kernel runs, those of two vectors of output channels at
a time: their pieces lie in scratch after the points, as weights of two pieces lie in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil

from tilewright.machine import Primitive
from tilewright.numerics.element_types import ELEMENTS
from tilewright.numerics.pieces import THREE, TWO, groups
from tilewright.planning.domain import Affine, Kernel
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cpu.planning.blocks import shares
from tilewright.targets.cpu.planning.registers import REGISTERS

POINTS = 16
"""Points of a matrix tile, output channels of one, and words of its rows, each of two inputs."""

TILE_WORDS = POINTS * POINTS
"""Words of a tile of points, of weights, or of sums."""


@dataclass(frozen=True)
class Geometry:
    """A block of points in scratch; of a matrix product one row of points, and one tap."""

    rows: int
    columns: int
    channels: int
    window: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pieces: int = TWO

    @classmethod
    def of(cls, axes: tuple[Affine, ...], extents: Mapping[str, int], pieces: int) -> Geometry:
        """Return the geometry for an input's axes, the tile's extents, and pieces per number."""
        depth = extents["ci"]
        if "oh" not in extents:
            return cls(1, extents["m" if "m" in extents else "n"], depth, pieces=pieces)
        down, across = (dict(axis.terms) for axis in axes[2:])
        return cls(
            extents["oh"],
            extents["ow"],
            depth,
            (extents["kh"], extents["kw"]),
            (down.get("oh", 1), across.get("ow", 1)),
            (down.get("kh", 1), across.get("kw", 1)),
            pieces,
        )

    @cached_property
    def phases(self) -> tuple[tuple[int, int], ...]:
        """First row and column of each image in scratch, from the block's first window."""
        (kh, kw), (sh, sw), (dh, dw) = self.window, self.strides, self.dilations
        rows = sorted({i * dh % sh for i in range(kh)})
        columns = sorted({j * dw % sw for j in range(kw)})
        return tuple((row, column) for row in rows for column in columns)

    @property
    def height(self) -> int:
        """Rows of an image in scratch."""
        return self.rows + (self.window[0] - 1) * self.dilations[0] // self.strides[0]

    @property
    def pitch(self) -> int:
        """Columns of an image in scratch."""
        return self.columns + (self.window[1] - 1) * self.dilations[1] // self.strides[1]

    @property
    def plane(self) -> int:
        """Words from the first pieces of an image's group of inputs to the next ones."""
        return (self.height * self.pitch + 1) * POINTS

    @property
    def group(self) -> int:
        """Words from one group of inputs to the next."""
        return len(self.phases) * self.pieces * self.plane

    @property
    def taps(self) -> tuple[int, ...]:
        """Words from the place of a point's first tap to that of each tap, within a group."""
        (kh, kw), (sh, sw), (dh, dw) = self.window, self.strides, self.dilations
        taps: list[int] = []
        for i in range(kh):
            for j in range(kw):
                phase = self.phases.index((i * dh % sh, j * dw % sw))
                row, column = i * dh // sh, j * dw // sw
                taps.append(phase * self.pieces * self.plane + (row * self.pitch + column) * POINTS)
        return tuple(taps)

    @property
    def points(self) -> int:
        """The number of points, those between rows included that belong to no window."""
        return (self.rows - 1) * self.pitch + self.columns

    @property
    def tiles(self) -> int:
        """Matrix tiles of points."""
        return ceil(self.points / POINTS)

    @property
    def steps(self) -> int:
        """Blocks of the reduction: groups of inputs, times taps."""
        return groups(self.channels) * self.window[0] * self.window[1]

    @property
    def step(self) -> int:
        """Words of the pieces of two vectors' weights in a block of the reduction."""
        return 2 * self.pieces * TILE_WORDS

    @property
    def point_words(self) -> int:
        """The words of scratch for points; the last tiles read past them by a tile and a window."""
        return groups(self.channels) * self.group + 2 * TILE_WORDS

    @property
    def words(self) -> int:
        """The words of scratch, with the weights that are split as the kernel runs."""
        return self.point_words + (self.steps * self.step if self.pieces == THREE else 0)


def pieces_of(element: str) -> int:
    """Into how many pieces weights of that element type, as they are stored, are split."""
    return TWO if ELEMENTS[element].is_short_float else THREE


def geometry_of(kernel: Kernel, sizes: Mapping[str, int]) -> Geometry:
    """Return the geometry of the points of a block of these sizes."""
    source, weight = (
        next(o for o in kernel.anchor.inputs if o.role == role) for role in ("input", "weight")
    )
    return Geometry.of(source.access, sizes, pieces_of(weight.element))


def scratch_words(kernel: Kernel, sizes: Mapping[str, int]) -> int:
    """Elements of scratch that a block of these sizes takes."""
    return geometry_of(kernel, sizes).words


FEWEST = POINTS // 2
"""The fewest points for which a matrix tile pays: fewer do not repay reading the weights."""

_VECTORS = (2, 4, 8, 16, 32)


def piece_schedules(kernel: Kernel, primitive: Primitive) -> Iterator[Schedule]:
    """Blocks of rows of points, or parts of one row, that fit the scratch; output channels within.

    All output channels are one call, or parts of them that cores can share.
    """
    extents = kernel.anchor.extents
    if geometry_of(kernel, extents).points < FEWEST:
        return
    room = next(o.shape[0] for o in kernel.inputs if o.role == "scratch")
    column = next(dim for dim in ("ow", "m", "n") if dim in extents)
    row = "oh" if column == "ow" else ""
    blocks = [(height, extents[column]) for height in (shares(extents[row]) if row else [1])]
    if not row:
        blocks += [
            (1, width)
            for width in shares(extents[column])
            if width < extents[column] and width % POINTS == 0
        ]
    inside = {"co", row, column, *kernel.anchor.reduction}
    outer = [dim for dim in extents if dim not in inside]
    channels = ceil(extents["co"] / POINTS)
    for vectors in (*(v for v in _VECTORS if v < channels), channels):
        part = min(vectors * POINTS, extents["co"])
        for height, width in blocks:
            tile = {"co": part, **dict.fromkeys(outer, 1), column: width}
            if row:
                tile[row] = height
            if scratch_words(kernel, {**extents, **tile}) > room:
                continue
            order = (*outer, *([row] if row else []), column, "co")
            yield Schedule(primitive.name, (Level(REGISTERS, tuple(tile.items()), order),))

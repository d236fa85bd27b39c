"""Cores in a mesh, which send registers to all others of their row or column.

An operand that the cores of a row need alike is loaded once for all of them: each core loads an
equal share of a tile and sends it to the others, so that main memory gives it once in place of once
for each core. (swTVM names register communication as its future work.) All cores of the row must
come to the same tiles in the same order, for a core that sends waits until the others receive. So
the result is cut into one part for each core: those of a row have the same indices of the dims that
are cut *by rows*, those of a column of the dims that are cut *by columns*. Where no dims come in as
many parts as there are rows, one that is cut alone may come in fewer: the cores of the rows that
are left (*spare* ones) come to the tiles of the last part, too, so that they load and send their
shares of what all of their columns need; they load nothing else, compute nothing and write nothing.

Some primitives multiply while registers are sent (``own.DividesUnlike``, swATOP's products
over the mesh): tiles along the reduction take turns. In each, the cores of one column have loaded
the tile of the rows' operand, the cores of one row the tile of the columns' operand, and send them
to the others, who keep nothing of them in their memories. Of a mesh of eight by eight a core loads
every eighth tile, and all have blocks of the result of one size.

What all cores need alike one of them loads by DMA into the memories of all (*broadcast*): all must
have met before it comes, for they may still use what lay there, and again before they read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil, prod
from typing import Any, Literal

import numpy as np

from tilewright.machine import Machine, Primitive
from tilewright.planning.domain import Kernel
from tilewright.planning.own import in_turns

Axis = Literal["row", "column", "all", "row in turns", "column in turns"]

FEWEST_ELEMENTS = 64
"""Operands of which a part has fewer elements are loaded by every core: that is cheaper."""


@dataclass(frozen=True)
class Mesh:
    """A square mesh of cores; what an exchange costs each of them."""

    side: int
    vector_elements: int
    """Elements that a register holds."""
    vector_cycles: float
    """Cycles to load and send a register, or to receive and store it."""
    turn_cycles: float
    """Cycles from the last register of one core to the first of the next."""
    broadcast_cycles: float
    """The cycles of a DMA into the memories of all cores, beside its bytes; with it, they meet
    twice."""
    broadcast_bytes: float
    """Bytes a cycle that such a DMA reads."""

    @property
    def cores(self) -> int:
        """The number of cores in the mesh."""
        return self.side * self.side

    def exchange_cycles(self, elements: Any) -> Any:
        """Cycles in which a core gets the other shares of ``elements`` elements, and gives its own;
        one number, or a column."""
        vectors = np.ceil(elements / self.vector_elements)
        return vectors * self.vector_cycles + self.side * self.turn_cycles


@dataclass(frozen=True)
class Division:
    """A cut of the result: one part for each core of a mesh."""

    rows: tuple[tuple[str, int], ...]
    """Sizes of parts along the dims that are cut by rows, outermost first."""
    columns: tuple[tuple[str, int], ...]

    @property
    def grid(self) -> dict[str, int]:
        """Sizes of parts by dim, those cut by rows first: core r * side + c has part (r, c)."""
        return dict((*self.rows, *self.columns))

    def exchanged(self, kernel: Kernel) -> tuple[tuple[str, Axis], ...]:
        """The operands that the cores of a row or column need alike."""
        exchanged: list[tuple[str, Axis]] = []
        sizes = {**kernel.anchor.extents, **self.grid}
        rows, columns = ({dim for dim, _ in part} for part in (self.rows, self.columns))
        for operand in kernel.inputs:
            needed: Axis | None = None
            part = prod(axis.span(sizes) for axis in operand.access)
            if not columns & operand.dims and rows & operand.dims:
                needed = "row"
            elif not rows & operand.dims and columns & operand.dims:
                needed = "column"
            if needed is not None and part >= FEWEST_ELEMENTS:
                exchanged.append((operand.name, needed))
        return tuple(exchanged)


def sending_in_turn(kernel: Kernel, machine: Machine) -> tuple[Primitive, ...]:
    """The primitives that cores compute together, a tile of the reduction after the other."""
    anchor = kernel.anchor
    return tuple(
        primitive
        for primitive in machine.primitives
        if in_turns(primitive) and primitive.serves(anchor.operation, anchor.extents)
    )


def turn_division(kernel: Kernel, primitive: Primitive, side: int) -> Division | None:
    """The cut of a product for such a primitive: one dim of its rows by rows of the mesh, one of
    its columns by columns, each in equal parts of whole granules; None where there is none."""
    if len(kernel.anchor.reduction) != 1 or len(kernel.anchor.inputs) < 2:
        return None
    extents = kernel.anchor.extents
    cuts: list[tuple[str, int]] = []
    for operand in kernel.anchor.inputs[:2]:
        dims = [d for d in operand.dims - set(kernel.anchor.reduction) if extents[d] > 1]
        if len(dims) != 1 or extents[dims[0]] % (side * primitive.multiples.get(dims[0], 1)):
            return None
        cuts.append((dims[0], extents[dims[0]] // side))
    rows, columns = cuts
    division = Division((rows,), (columns,))
    x, w = (operand.name for operand in kernel.anchor.inputs[:2])
    shared = {"row": x, "column": w}
    if rows[0] == columns[0] or any(
        axis not in shared or (name == shared[axis]) != (name in (x, w))
        for name, axis in division.exchanged(kernel)
        if name in (x, w)
    ):
        return None
    return division


def exchanged_in_turns(kernel: Kernel) -> tuple[tuple[str, Axis], ...]:
    """Return how the factors of a product are exchanged in turns."""
    x, w = (operand.name for operand in kernel.anchor.inputs[:2])
    return (x, "row in turns"), (w, "column in turns")


def share_in_turns(visits: Any, side: int) -> Any:
    """Return the number of tiles for each that a core loads itself, where all come in turns."""
    return visits / np.ceil(visits / side)


def in_step(kernel: Kernel, grid: Mapping[str, int], tile: Mapping[str, int]) -> bool:
    """Return True if all cores compute equally many tiles: those whose parts are cut short, too."""
    for dim, size in grid.items():
        extent = kernel.anchor.extents[dim]
        last = extent - (ceil(extent / size) - 1) * size
        step = min(tile[dim], size)
        if ceil(last / step) != ceil(size / step):
            return False
    return True


def needed_by_all(
    kernel: Kernel, grid: Mapping[str, int], cores: int
) -> tuple[tuple[str, Axis], ...]:
    """The operands that all cores need alike; none where some have fewer parts than others."""
    extents = kernel.anchor.extents
    parts = prod(ceil(extents[dim] / size) for dim, size in grid.items())
    if not grid or parts % cores:
        return ()
    exchanged: list[tuple[str, Axis]] = []
    for operand in kernel.inputs:
        if not operand.dims & set(grid) and prod(operand.shape) >= FEWEST_ELEMENTS:
            exchanged.append((operand.name, "all"))
    return tuple(exchanged)


def divisions(
    dims: Sequence[str], extents: Mapping[str, int], granules: Mapping[str, int], side: int
) -> list[Division]:
    """Every cut of the dims into ``side`` parts by rows and as many by columns; where there is
    none, with spare rows or columns."""
    exact = list(_cuts(dims, extents, granules, side))
    every = [*exact, *_spare_cuts(dims, extents, granules, side)]
    for cuts in (exact, every):
        found = [
            Division(rows, columns)
            for rows in cuts
            for columns in cuts
            if not {dim for dim, _ in rows} & {dim for dim, _ in columns}
        ]
        if found:
            return found
    return []


def places(parts: Sequence[int], side: int) -> tuple[int, ...]:
    """Rows or columns of the mesh that the parts of each dim take, spare ones with them: a dim of
    which some are spare is cut alone."""
    return tuple(side if side % count else count for count in parts)


def _spare_cuts(
    dims: Sequence[str], extents: Mapping[str, int], granules: Mapping[str, int], side: int
) -> Iterator[tuple[tuple[str, int], ...]]:
    """Cuts of one dim into less than ``side`` parts, but more than half as many."""
    for dim in dims:
        granule = granules.get(dim, 1)
        size = ceil(ceil(extents[dim] / side) / granule) * granule
        if side / 2 < ceil(extents[dim] / size) < side:
            yield ((dim, size),)


def divides(extents: Sequence[int], side: int) -> bool:
    """Return True if dims of these extents are cut into ``side`` parts."""
    named = {str(number): extent for number, extent in enumerate(extents)}
    return any(True for _ in _cuts(list(named), named, {}, side))


def _cuts(
    dims: Sequence[str], extents: Mapping[str, int], granules: Mapping[str, int], side: int
) -> Iterator[tuple[tuple[str, int], ...]]:
    """Cuts of one or two dims into ``side`` parts."""
    for dim in dims:
        if size := _size(extents[dim], side, granules.get(dim, 1)):
            yield ((dim, size),)
    for first, second in combinations(dims, 2):
        for count in range(2, side):
            if side % count:
                continue
            sizes = (
                _size(extents[first], count, granules.get(first, 1)),
                _size(extents[second], side // count, granules.get(second, 1)),
            )
            if all(sizes):
                yield ((first, sizes[0]), (second, sizes[1]))


def _size(extent: int, count: int, granule: int) -> int:
    """The size of the parts in which an extent has exactly ``count`` parts; 0 if no size does."""
    size = ceil(ceil(extent / count) / granule) * granule
    return size if ceil(extent / size) == count else 0

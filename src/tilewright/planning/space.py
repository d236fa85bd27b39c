"""The space of tilings of one kernel on one primitive, as NumPy columns.

Candidate sizes of a dim of extent D are ceil(D / n) for every n: any other size needs as many tiles
as one of these and only makes the last one smaller. Where compute is rounded to a granule g they
are g * ceil(ceil(D / g) / n), because sizes in between compute no less and hold more. Two kinds of
sizes are tried only when nothing else fits: sliding windows cut into parts (the halo is loaded for
every part), and sizes below the granule. Every tiling kept fits its memories with one slot each;
the slots beyond the first are the most that fit (slots.py), since a further slot never makes a
tiling slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.errors import refuse
from tilewright.machine import Machine, Primitive, parse_expression
from tilewright.planning.bounds import PRODUCTS
from tilewright.planning.domain import Kernel
from tilewright.planning.footprint import (
    AxisTable,
    Floats,
    Ints,
    Use,
    accumulator_bytes,
    axis_table,
    uses_of,
)

MAX_ROWS = 1_000_000
"""Tilings that one cross product may hold before its dims are thinned out."""


@dataclass
class Space:
    """The tilings of a kernel that fit; ``index[dim]`` is a column of indices into ``sizes``."""

    kernel: Kernel
    machine: Machine
    primitive: Primitive
    uses: tuple[Use, ...]
    sizes: dict[str, Ints]
    tables: dict[str, tuple[AxisTable, ...]]
    index: dict[str, Ints]
    considered: int = 0
    """Tilings looked at, those that do not fit included."""
    cuts: list[str] = field(default_factory=list[str])
    """What bounded the space, if anything did."""

    @property
    def rows(self) -> int:
        """Number of tilings."""
        return len(next(iter(self.index.values())))

    @property
    def extents(self) -> dict[str, int]:
        """Extent of every dim of the anchor."""
        return self.kernel.anchor.extents

    def take(self, rows: Ints) -> Space:
        """The tilings of the given rows, in that order."""
        index = {dim: column[rows] for dim, column in self.index.items()}
        return Space(
            self.kernel,
            self.machine,
            self.primitive,
            self.uses,
            self.sizes,
            self.tables,
            index,
            self.considered,
            self.cuts,
        )

    def size(self, dim: str) -> Ints:
        """Column of a dim's tile sizes."""
        return self.sizes[dim][self.index[dim]]

    def trips(self, dim: str) -> Ints:
        """Column of the numbers of tiles along a dim."""
        return -(-self.extents[dim] // self.size(dim))

    def trips_of(self, dims: Sequence[str]) -> Ints:
        """Column of the numbers of tiles along several dims together."""
        count = np.ones(self.rows, np.int64)
        for dim in dims:
            count = count * self.trips(dim)
        return count

    def split(self) -> NDBool:
        """Column: whether the reduction is split over several computes."""
        split = np.zeros(self.rows, np.bool_)
        for dim in self.kernel.anchor.reduction:
            split |= self.trips(dim) > 1
        return split

    def box(self, use: Use, edges: dict[str, bool] | None = None) -> Floats:
        """Column of box sizes in elements: the largest, or the mean over tiles that are or are
        not cut short along each dim of ``edges``."""
        count = np.ones(self.rows)
        for table in self.tables[use.name]:
            at = tuple(self.index[dim] for dim in table.dims)
            kind = tuple(edges.get(dim, False) for dim in table.dims) if edges is not None else ()
            count = count * (table.mean[kind] if edges is not None else table.largest)[at]
        return count

    def total(self, use: Use) -> Floats:
        """Column of elements moved when every distinct box is moved once."""
        count = np.ones(self.rows)
        for table in self.tables[use.name]:
            count = count * table.total[tuple(self.index[dim] for dim in table.dims)]
        return count

    def slot_bytes(self, use: Use) -> Ints:
        """Column of the bytes of one buffer slot."""
        return _slot_bytes(self, use)


NDBool = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


def candidate_sizes(
    extent: int, granule: int = 1, limit: int | None = None, small: bool = False
) -> list[int]:
    """Tile sizes worth trying along a dim, descending; ``small`` adds those below the granule."""
    most = min(limit or extent, extent)
    if extent <= granule:
        found = {extent}
    else:
        blocks = -(-extent // granule)
        found = {min(-(-blocks // n) * granule, extent) for n in range(1, blocks + 1)}
    if most < extent:
        found.add(max(most // granule * granule, 1) if most >= granule else most)
    if small:
        found |= {1 << n for n in range(granule.bit_length()) if 1 << n < granule}
    return sorted((size for size in found if size <= most), reverse=True) or [most]


def build_space(
    kernel: Kernel, machine: Machine, primitive: Primitive, max_rows: int = MAX_ROWS
) -> Space:
    """All tilings that fit; raises TilewrightError when not even the smallest does."""
    uses = uses_of(kernel, machine, primitive)
    for effort in range(4):
        space = _attempt(kernel, machine, primitive, uses, effort, max_rows)
        if space.rows:
            return space
    memories = dict.fromkeys(u.memory.name for u in uses if u.memory.bytes)
    limits = ", ".join(f"{name} {machine.memory(name).bytes} bytes" for name in memories)
    raise refuse(
        "plan-capacity",
        f"no tile of {kernel.anchor.operation} fits {machine.name} ({limits})",
        kernel.symbol,
        "give the machine more memory, or run this node on the host",
    )


def _attempt(
    kernel: Kernel,
    machine: Machine,
    primitive: Primitive,
    uses: tuple[Use, ...],
    effort: int,
    max_rows: int,
) -> Space:
    extents, reduction = kernel.anchor.extents, kernel.anchor.reduction
    # Only sums of products are split gladly: partial results of others need more than adding.
    products = kernel.anchor.operation in PRODUCTS
    windows = _windows(uses, extents, reduction) if products else set(reduction)
    sizes: dict[str, Ints] = {}
    for dim in (*reduction, *(d for d in extents if d not in reduction)):
        extent, granule = extents[dim], primitive.multiples.get(dim, 1)
        if dim in primitive.whole or (dim in windows and effort in (0, 2)):
            found = [extent]
        else:
            found = candidate_sizes(extent, granule, primitive.limits.get(dim), effort >= 2)
        sizes[dim] = np.array(found, np.int64)
    space = Space(kernel, machine, primitive, uses, sizes, {}, {})
    for use in uses:
        axes = zip(use.operand.access, use.operand.shape, use.multiples, strict=True)
        space.tables[use.name] = tuple(axis_table(a, e, m, extents, sizes) for a, e, m in axes)
    _cross(space, max_rows)
    return space


def _windows(uses: Sequence[Use], extents: dict[str, int], reduction: Sequence[str]) -> set[str]:
    """Reduction dims that slide along a parallel dim with overlap, such as kh along oh."""
    found: set[str] = set()
    for use in uses:
        for axis in use.operand.access:
            steps = [abs(c) for d, c in axis.terms if d not in reduction and extents.get(d, 1) > 1]
            for dim, c in axis.terms:
                if dim in reduction and any(step < abs(c) * extents[dim] for step in steps):
                    found.add(dim)
    return found


def _cross(space: Space, max_rows: int) -> None:
    """Cross the dims one by one, dropping what does not fit as soon as that is known."""
    done: set[str] = set()
    space.index = {}
    rows = 1
    checked: set[str] = set()
    for dim, sizes in space.sizes.items():
        keep = np.arange(len(sizes))
        while rows * len(keep) > max_rows and len(keep) > 2:
            keep = np.unique(np.append(keep[::2], keep[-1]))
            if "rows" not in space.cuts:
                space.cuts.append("rows")
        space.considered += rows * len(keep)
        space.index = {d: np.repeat(column, len(keep)) for d, column in space.index.items()}
        space.index[dim] = np.tile(keep, rows)
        done.add(dim)
        ready = [u for u in space.uses if set(u.operand.dims) & set(space.sizes) <= done]
        touched = {u.memory.name for u in ready if u.name not in checked}
        checked |= {u.name for u in ready}
        for memory in {u.memory.name: u.memory for u in space.uses}.values():
            if memory.name not in touched or not memory.bytes or memory.managed == "hardware":
                continue
            used = sum((_slot_bytes(space, u) for u in ready if u.memory == memory), start=0)
            fits = np.flatnonzero(used <= memory.bytes)
            space.index = {d: column[fits] for d, column in space.index.items()}
        rows = space.rows


def _slot_bytes(space: Space, use: Use) -> Ints:
    element = np.full(space.rows, use.operand.element_bytes)
    if use.output:
        for dim in space.kernel.anchor.reduction:
            if dim in space.index:
                wide = accumulator_bytes(space.kernel, space.machine)
                element = np.where(space.trips(dim) > 1, wide, element)
    granule = use.memory.granule
    return (-(-(space.box(use) * element) // granule) * granule).astype(np.int64)


@dataclass(frozen=True)
class Cells:
    """Kinds of tiles: a row's tiles that are cut short along the same dims.

    Columns over all kinds of all rows; the first kind of every row is that of its full tiles.
    """

    row: Ints
    """Row number."""
    kind: Ints
    """Bit ``i`` is set where the tiles are cut short along ``dims[i]``."""
    count: Floats
    """Tiles of the row that are of the kind."""
    cycles: Floats
    """Compute cycles of one."""
    boxes: dict[str, Floats]
    """Mean box of every moved operand in elements."""
    dims: tuple[str, ...]
    """Dims along which the last tile of some row is cut short."""
    edge: dict[str, NDBool]
    """Per dim of ``dims``, for every row: whether its last tile is cut short."""
    place: Ints
    """``place[row, kind]``: where a kind of a row stands in the columns; -1: it has no tiles."""

    def sum(self, values: Floats, rows: int) -> Floats:
        """Per row, the sum of a column of values."""
        return np.bincount(self.row, values, rows).astype(np.float64)


def cells_of(space: Space) -> Cells:
    """The kinds of tiles of every row; edge tiles apart from the others."""
    names = list(space.index)
    size = {d: space.size(d) for d in names}
    trips = {d: space.trips(d) for d in names}
    last = {d: space.extents[d] - (trips[d] - 1) * size[d] for d in names}
    edge = {d: last[d] != size[d] for d in names}
    dims = tuple(d for d in names if edge[d].any())
    expression = parse_expression(space.primitive.cycles)
    used = [u for u in space.uses if u.move is not None]
    place = np.full((space.rows, 1 << len(dims)), -1)
    rows: list[Ints] = []
    kinds: list[Ints] = []
    columns: list[list[Floats]] = []
    filled = 0
    for kind in range(1 << len(dims)):
        short = {d: bool(kind >> i & 1) for i, d in enumerate(dims)}
        count = np.ones(space.rows)
        for dim in names:
            count = count * (edge[dim] if short.get(dim) else trips[dim] - edge[dim])
        row = np.flatnonzero(count > 0)
        if not row.size:
            continue
        part = space.take(row)
        tile = {d: (last if short.get(d) else size)[d][row] for d in names}
        cycles = np.broadcast_to(np.asarray(expression.evaluate(tile), np.float64), row.shape)
        rows.append(row)
        kinds.append(np.full(row.size, kind))
        columns.append([count[row], cycles, *(part.box(u, short) for u in used)])
        place[row, kind] = filled + np.arange(row.size)
        filled += row.size
    joined = [np.concatenate([column[i] for column in columns]) for i in range(2 + len(used))]
    return Cells(
        np.concatenate(rows),
        np.concatenate(kinds),
        joined[0],
        joined[1],
        {use.name: joined[2 + i] for i, use in enumerate(used)},
        dims,
        {d: edge[d] for d in dims},
        place,
    )

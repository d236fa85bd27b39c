"""The space of tilings of one kernel on one primitive, as NumPy columns.

Candidate sizes are those of sizes.py. Every tiling kept fits its memories with one slot each; the
slots beyond the first are the most that fit (nests.py), since a further slot never makes a tiling
slower.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import gcd, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError, refuse
from tilewright.machine import Machine, Memory, Primitive, parse_expression
from tilewright.planning.cost.bounds import inside_fraction
from tilewright.planning.domain import Kernel
from tilewright.planning.layout import Layout
from tilewright.planning.space.footprint import (
    AxisTable,
    Bools,
    Counts,
    Floats,
    Ints,
    Use,
    accumulator_bytes,
    axis_table,
    holds_sums,
    run_elements,
    uses_of,
)
from tilewright.planning.space.residents import is_solid, usable
from tilewright.planning.space.sizes import EFFORTS, tile_sizes

Column = NDArray[Any]
"""One number for every tiling of a space."""

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
    """The bounds that cut the space, if any."""
    shares: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """By operand, of how many parts of its tiles a core loads one (mesh.py): a number, or one for
    each tiling."""
    together: Mapping[str, int] = field(default_factory=dict[str, int])
    """By operand, how many cores load each of its tiles together (mesh.py): each an equal run of
    the indices along the outermost axis on which it has several."""
    known: dict[Hashable, Column] = field(default_factory=dict[Hashable, Column], init=False)
    """Columns that were asked for: pricing asks for each again and again."""
    whole: tuple[Space, Ints] | None = field(default=None, init=False)
    """For a part of a space, the whole space and the part's rows there; else None."""

    @cached_property
    def rows(self) -> int:
        """The number of tilings in the space."""
        return len(next(iter(self.index.values())))

    @property
    def extents(self) -> dict[str, int]:
        """Extent of every dim of the anchor."""
        return self.kernel.anchor.extents

    def take(self, rows: Ints) -> Space:
        """The tilings of the given rows, in that order."""
        return replace(self, index={dim: column[rows] for dim, column in self.index.items()})

    def part(self, rows: Ints) -> Space:
        """As ``take``; columns that the whole space has are not computed again."""
        part = self.take(rows)
        part.whole = self, rows
        return part

    def _column(self, key: Hashable, compute: Callable[[], Column]) -> Any:
        """A column that is computed when it is first asked for; it is read-only."""
        column = self._known(key)
        if column is None:
            column = self.known[key] = compute()
            column.flags.writeable = False
        return column

    def _known(self, key: Hashable) -> Column | None:
        """A column that was asked for before, of this space or of the one that it is part of; None
        if none was."""
        column = self.known.get(key)
        if column is None and self.whole is not None:
            space, rows = self.whole
            column = space._known(key)
            if column is not None:
                column = self.known[key] = column[rows]
                column.flags.writeable = False
        return column

    def size(self, dim: str) -> Ints:
        """Column of a dim's tile sizes."""
        return self._column(("size", dim), lambda: self.sizes[dim][self.index[dim]])

    def tile(self) -> dict[str, Counts]:
        """By dim, the sizes of tiles; one number where there is one candidate."""
        known = self.sizes.items()
        return {d: int(s[0]) if len(s) == 1 else self.size(d) for d, s in known if d in self.index}

    def trips(self, dim: str) -> Ints:
        """Column of the numbers of tiles along a dim."""
        return self._column(("trips", dim), lambda: -(-self.extents[dim] // self.size(dim)))

    def trips_of(self, dims: Sequence[str]) -> Ints:
        """Column of the numbers of tiles along several dims together."""
        count = np.ones(self.rows, np.int64)
        for dim in dims:
            count = count * self.trips(dim)
        return count

    def split(self) -> Bools:
        """Column: whether the result's buffer holds sums of the accumulator's width.

        It does where the reduction is split over several computes, and always for primitives that
        keep their sums there, or whose results a move rounds.
        """
        return self._column("split", self._split)

    def _split(self) -> Bools:
        split = np.full(self.rows, holds_sums(self.kernel, self.primitive))
        for dim in self.kernel.anchor.reduction:
            if dim in self.index:
                split |= self.trips(dim) > 1
        return split

    def allowed(self) -> Bools:
        """Column: whether tiles are as moves and resident operands need them."""
        tile = {dim: self.size(dim) for dim in self.index}
        return is_solid(self.kernel, tile) & usable(self.kernel, tile, self.machine)

    def compute(self, tile: Mapping[str, Counts]) -> Floats:
        """Cycles to compute tiles of these sizes."""
        expression = parse_expression(self.primitive.cycles)
        issue = parse_expression(self.primitive.issue)
        # Positions outside of the image, on the mean over tiles, where they take no time.
        met = inside_fraction(self.kernel) if self.primitive.own.skips_padding() else 1.0
        return met * np.maximum(expression.evaluate(tile), issue.evaluate(tile))

    def computes(self, row: int) -> float:
        """Computes of one tiling."""
        return prod(float(self.trips(dim)[row]) for dim in self.index)

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
        return self._column(("total", use.name), lambda: self._total(use))

    def _total(self, use: Use) -> Floats:
        count = np.ones(self.rows)
        for table in self.tables[use.name]:
            count = count * table.total[tuple(self.index[dim] for dim in table.dims)]
        return count

    def bytes_per_element(self, use: Use) -> Floats:
        """Column of the bytes of bandwidth that an element of a box costs, given its blocks."""
        return self._column(("bytes", use.name), lambda: self._bytes_per_element(use))

    def moved_per_element(self, use: Use) -> Floats:
        """Column of the bytes that are moved for an element of a box, whole transactions."""
        return self._column(("moved", use.name), lambda: self._bytes_per_element(use, paced=False))

    def _bytes_per_element(self, use: Use, *, paced: bool = True) -> Floats:
        """With ``paced``, blocks cost what the move's rate at their length makes of them."""
        operand = use.operand
        plain = np.full(self.rows, operand.element_bytes / self.shares.get(use.name, 1))
        lengths = [
            table.largest[tuple(self.index[dim] for dim in table.dims)]
            for table in self.tables[use.name]
        ]
        side = self.together.get(use.name, 1)
        if side == 1:
            return plain * _cost(use, lengths, paced)
        # Where an axis does not come in equal runs, some cores load an index more than others.
        # Memory serves those that load, so that all take what the mean of them asks for.
        cut = np.full(self.rows, -1)
        for factor in Layout.parse(operand.layout, len(operand.shape)).factors:
            cut = np.where((cut < 0) & (lengths[factor.axis] > 1), factor.axis, cut)
        cost = np.where(cut < 0, _cost(use, lengths, paced), 0.0)
        for axis, length in enumerate(lengths):
            short, more = length // side, length % side
            for run, cores in ((short + 1, more), (short, side - more)):
                part = [
                    np.maximum(run, 1) if n == axis else whole for n, whole in enumerate(lengths)
                ]
                share = cores * run / (length * side)
                cost = cost + np.where(cut == axis, share * _cost(use, part, paced), 0.0)
        return plain * cost

    def further_latency(self, use: Use, grown: Mapping[str, Ints] | None = None) -> Floats:
        """Column of the latencies after the first one of a box whose blocks move one by one.

        ``grown`` says how many tiles the box covers along a dim.
        """
        if use.move is None or use.by_tile or not use.move.own.block_by_block():
            return np.zeros(self.rows)
        lengths: list[Ints] = []
        for table, extent in zip(self.tables[use.name], use.operand.shape, strict=True):
            length = table.largest[tuple(self.index[dim] for dim in table.dims)]
            for dim in table.dims:
                if grown and dim in grown:
                    length = np.minimum(length * grown[dim], extent)
            lengths.append(length)
        blocks = np.ones(self.rows)
        for length in lengths:
            blocks = blocks * length
        if lengths:  # A single number is one block.
            blocks = blocks / run_elements(use.operand, lengths)
        return np.maximum(blocks - 1.0, 0.0) * (use.move.latency / use.move.in_flight)

    def slot_bytes(self, use: Use) -> Ints:
        """Column of the bytes of one buffer slot."""
        return self._column(("slot", use.name), lambda: self._slot_bytes(use))

    def _slot_bytes(self, use: Use) -> Ints:
        element = np.full(self.rows, use.element_bytes)
        if use.output:
            wide = accumulator_bytes(self.kernel, self.machine)
            element = np.where(self.split(), wide, element)
        granule = use.memory.granule
        return (-(-(self.box(use) * element) // granule) * granule).astype(np.int64)


def _cost(use: Use, lengths: Sequence[Ints], paced: bool) -> Floats:
    """Column: what a byte of boxes with these lengths costs, given its blocks."""
    operand, move = use.operand, use.move
    if move is None or (move.transaction == 1 and not move.efficiency):
        return np.ones(1)
    run = run_elements(operand, lengths) * operand.element_bytes  # One number where no dim cuts it.
    # Both ends of a block are rounded outwards. On the mean over where elements may begin in a
    # transaction, that costs all of one but the step from one such place to the next.
    step = gcd(operand.element_bytes, move.transaction)
    rounded = run + (move.transaction - step)
    share = np.ones(np.shape(run))
    if move.efficiency and paced:
        known, fractions = zip(*move.efficiency, strict=True)
        share = np.interp(run, known, fractions)
    return rounded / run / share


def build_space(
    kernel: Kernel,
    machine: Machine,
    primitive: Primitive,
    max_rows: int = MAX_ROWS,
    efforts: Sequence[tuple[bool, bool]] = EFFORTS,
) -> Space:
    """All tilings of the first of the efforts (sizes.py) of which any fits.

    Raises TilewrightError when not even the smallest does.
    """
    uses = uses_of(kernel, machine, primitive)
    for cut, small in efforts:
        sizes = tile_sizes(kernel, primitive, uses, cut=cut, small=small)
        space = crossed(uncrossed(kernel, machine, primitive, uses, sizes), max_rows)
        if space.rows:
            return space
    raise no_tile_fits(kernel, machine, (use.memory for use in uses))


def no_tile_fits(kernel: Kernel, machine: Machine, memories: Iterable[Memory]) -> TilewrightError:
    """The refusal of a kernel of which not even the smallest tile fits memories."""
    names = dict.fromkeys(memory.name for memory in memories if memory.bytes)
    limits = ", ".join(f"{name} {machine.memory(name).bytes} bytes" for name in names)
    return refuse(
        "plan-capacity",
        f"no tile of {kernel.anchor.operation} fits {machine.name} ({limits})",
        kernel.symbol,
        "give the machine more memory, or run this node on the host",
    )


def uncrossed(
    kernel: Kernel,
    machine: Machine,
    primitive: Primitive,
    uses: tuple[Use, ...],
    sizes: dict[str, Ints],
) -> Space:
    """A space with the tables of its candidate sizes, and no tilings yet."""
    space = Space(kernel, machine, primitive, uses, sizes, {}, {})
    for use in uses:
        axes = zip(use.operand.access, use.operand.shape, use.multiples, strict=True)
        space.tables[use.name] = tuple(
            axis_table(a, e, m, kernel.anchor.extents, sizes, use.apart) for a, e, m in axes
        )
    return space


def crossed(space: Space, max_rows: int) -> Space:
    """Cross the dims one by one, dropping what does not fit as soon as that is known."""
    done: set[str] = set()
    rows = 1
    checked: set[str] = set()
    for dim, sizes in space.sizes.items():
        keep = np.arange(len(sizes))
        while rows * len(keep) > max_rows and len(keep) > 2:
            keep = np.unique(np.append(keep[::2], keep[-1]))
            if "rows" not in space.cuts:
                space.cuts.append("rows")
        index = {d: np.repeat(column, len(keep)) for d, column in space.index.items()}
        considered = space.considered + rows * len(keep)
        space = replace(space, index=index | {dim: np.tile(keep, rows)}, considered=considered)
        done.add(dim)
        space = fitting(space, done, checked)
        rows = space.rows
    allowed = np.flatnonzero(space.allowed())
    return space if len(allowed) == space.rows else space.take(allowed)


def fitting(space: Space, done: set[str], checked: set[str]) -> Space:
    """The tilings whose operands fit, of those of which all dims are ``done``; memories are looked
    at again where operands are new, beside those ``checked`` before."""
    ready = [u for u in space.uses if set(u.operand.dims) & set(space.sizes) <= done]
    touched = {u.memory.name for u in ready if u.name not in checked}
    checked |= {u.name for u in ready}
    for memory in {u.memory.name: u.memory for u in space.uses}.values():
        if memory.name not in touched or memory.room is None:
            continue
        used = sum((space.slot_bytes(u) for u in ready if u.memory.name == memory.name), start=0)
        space = space.take(np.flatnonzero(used <= memory.room))
    return space

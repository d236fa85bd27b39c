"""The tiles of one level and of those within it: how a tile of the level around is computed.

All costs are columns: one number for each of many tiles around. See planning/space/levels.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from tilewright.machine import Machine, Primitive, parse_expression
from tilewright.memory import align_up
from tilewright.planning.cost.pipeline import transfer_cycles
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Level, Schedule
from tilewright.planning.space.footprint import Bools, Counts, Floats, Ints, Use
from tilewright.planning.space.levels import (
    input_levels,
    levels_of,
    paths_of,
    result_levels,
)

Tiles = Mapping[str, Counts]
"""Sizes of tiles of the level around, a column for each dim, or one number for all of them."""


@dataclass(frozen=True)
class Inside:
    """A kernel's operands at one level: what all its tilings have in common."""

    kernel: Kernel
    machine: Machine
    """The machine with the level around and those within it (``inner_view``)."""
    primitive: Primitive
    uses: tuple[Use, ...]
    """The operands as the level's tiles see them."""

    @cached_property
    def levels(self) -> tuple[tuple[str, ...], ...]:
        """The memories of the machine's outer levels."""
        return levels_of(self.machine, self.primitive)

    @cached_property
    def passed(self) -> tuple[str, ...]:
        """The memories that results pass in innermost tiles."""
        path = paths_of(self.machine, self.primitive).get("output", ())
        own = result_levels(self.machine, self.primitive)
        return tuple(hop.target for hop in path[:-1] if hop.target not in own)

    @cached_property
    def output(self) -> Use:
        """The use of the kernel's result."""
        return next(use for use in self.uses if use.output)

    @cached_property
    def together(self) -> dict[str, tuple[Use, ...]]:
        """By operand, the one itself and those that travel with it."""
        return {
            use.name: tuple(other for other in self.uses if use.name in (other.name, other.host))
            for use in self.uses
        }

    def slot_bytes(self, use: Use, sizes: Mapping[str, int]) -> int:
        """Bytes of an operand's slot for a tile, those that travel with it included."""
        total = 0
        for other in self.together[use.name]:
            axes = zip(*(other.operand.shape, other.operand.access, other.multiples), strict=True)
            count = other.element_bytes
            for extent, axis, granule in axes:
                count *= align_up(min(axis.span(sizes), extent), granule)
            total += count
        return total

    def bytes_moved(self, use: Use, tile: Tiles) -> Floats:
        """Bytes of an operand's box of tiles of these sizes, those that travel with it included."""
        total = np.zeros(())
        for other in self.together[use.name]:
            count = np.full((), float(other.operand.element_bytes))
            for extent, axis in zip(other.operand.shape, other.operand.access, strict=True):
                if axis.terms:
                    count = count * np.minimum(axis.span(tile), extent)
            total = total + count
        return total

    @cached_property
    def moved(self) -> tuple[tuple[Use, frozenset[str]], ...]:
        """The operands that are moved next to the primitive on their own, each with the dims whose
        loops change what is moved."""
        return tuple(
            (use, frozenset(d for other in self.together[use.name] for d in other.operand.dims))
            for use in self.uses
            if use.move is not None and not use.host
        )


@dataclass(frozen=True)
class Cuts:
    """The computation of the tiles around: each by a tiling whose loops and slots are alike."""

    inside: Inside
    sizes: Tiles
    """The sizes of the tiles, by dim."""
    loops: tuple[str, ...]
    """All dims, outermost first."""
    single: frozenset[str]
    """The operands whose buffers have one slot."""
    within: Cuts | None = None
    """The computation of each tile; None where the primitive computes it at once."""

    def trips(self, tile: Tiles) -> dict[str, Counts]:
        """Tiles along each dim."""
        return {dim: -(-size // self.sizes[dim]) for dim, size in tile.items()}

    def full(self, tile: Tiles) -> dict[str, Any]:
        """Sizes of the largest tiles within those around."""
        return {dim: np.minimum(size, self.sizes[dim]) for dim, size in tile.items()}

    def count(self, tile: Tiles) -> Floats:
        """Tiles within those around, of these sizes."""
        count = np.ones(())
        for trips in self.trips(tile).values():
            count = count * trips
        return count

    def computes(self, tile: Tiles) -> Floats:
        """Computes within tiles around, of these sizes."""
        count = self.count(tile)
        return count if self.within is None else count * self.within.computes(self.full(tile))

    def _compute(self, tile: Tiles, trips: Tiles) -> Floats:
        """Cycles of what a tile around computes, edge tiles apart."""
        full = self.full(tile)
        last = {dim: size - (trips[dim] - 1) * self.sizes[dim] for dim, size in tile.items()}
        edged = {dim: last[dim] != full[dim] for dim in tile if np.any(last[dim] != full[dim])}
        kinds = list(product((False, True), repeat=len(edged)))
        shape = np.broadcast_shapes(*(np.shape(size) for size in full.values()))
        counts, sizes = list[Floats](), dict[str, Any](full)
        for kind in kinds:
            short, count = dict(zip(edged, kind, strict=True)), np.ones(shape)
            for dim in tile:
                if dim in short:
                    count = count * (edged[dim] if short[dim] else trips[dim] - edged[dim])
                else:
                    count = count * trips[dim]
            counts.append(count)
        for number, dim in enumerate(edged):
            ends = (full[dim], last[dim])
            sizes[dim] = np.stack([np.broadcast_to(ends[kind[number]], shape) for kind in kinds])
        if self.within is not None:
            return np.sum(np.stack(counts) * self.within.cycles(sizes), axis=0)
        cycles: Any = parse_expression(self.inside.primitive.cycles).evaluate(sizes)
        issue: Any = parse_expression(self.inside.primitive.issue).evaluate(sizes)
        return np.sum(np.stack(counts) * np.maximum(cycles, issue), axis=0)

    def cycles(self, tile: Tiles) -> Floats:
        """Cycles from the first compute of a tile around to that of the next one.

        From a compute to the next passes the longest of the compute, of each engine's loads of the
        operands whose boxes change, and of the result's store; an operand of one slot waits for the
        compute before it.
        """
        trips = self.trips(tile)
        compute = self._compute(tile, trips) / self.count(tile)
        moved, full = self.inside.moved, self.full(tile)
        time = {u.name: transfer_cycles(u, self.inside.bytes_moved(u, full)) for u, _ in moved}
        loops = [dim for dim in self.loops if dim in tile and np.any(trips[dim] > 1)]
        # What changes with a loop, changes with all loops around it.
        changes: dict[str, Bools] = {use.name: np.zeros((), np.bool_) for use, _ in moved}
        by_loop: list[dict[str, Bools]] = []
        for dim in reversed(loops):
            turns = trips[dim] > 1
            for use, dims in moved:
                if dim in dims:
                    changes[use.name] = changes[use.name] | turns
            by_loop.append(dict(changes))
        total, around = np.zeros(()), np.ones(())
        for dim, changed in zip(loops, reversed(by_loop), strict=True):
            advances = (trips[dim] - 1) * around
            total = total + advances * self._step(time, changed, compute)
            around = around * trips[dim]
        # Where a level around cuts the reduction, its results change with the last part alone.
        parts = np.ones(())
        for dim in self.inside.kernel.anchor.reduction:
            if dim in tile:
                parts = parts * -(-self.inside.kernel.anchor.extents[dim] // tile[dim])
        kept = {use.name: ~np.full((), use.output) for use, _ in moved}
        between = self._step(time, kept, compute)
        every = {use.name: np.ones((), np.bool_) for use, _ in moved}
        return total + between + (self._step(time, every, compute) - between) / parts

    def _step(
        self, time: Mapping[str, Floats], changes: Mapping[str, Bools], compute: Floats
    ) -> Floats:
        step = compute
        engines: dict[str, Floats] = {}
        for use, _ in self.inside.moved:
            changed = changes[use.name]
            if use.move is None or not changed.any():
                continue
            took = changed * time[use.name]
            engines[use.move.engine] = engines.get(use.move.engine, 0.0) + took
            if use.name in self.single:
                step = np.maximum(step, np.where(changed, compute + took, 0.0))
        computing = engines.pop(self.inside.primitive.engine, None)
        if computing is not None:
            step = np.maximum(step, compute + computing)
        for busy in engines.values():
            step = np.maximum(step, busy)
        return step


@dataclass(frozen=True)
class LevelTiling:
    """One way to compute a tile of the level around: the tiles of this level, the order of their
    loops, the buffering, and the tiling within each."""

    inside: Inside
    schedule: Schedule
    """The schedule of this level alone."""
    within: LevelTiling | None = None
    """The tiling of the next level; None at the innermost one."""

    @property
    def kernel(self) -> Kernel:
        """The kernel that is tiled."""
        return self.inside.kernel

    @property
    def level(self) -> Level:
        """The level of the schedule."""
        return self.schedule.levels[0]

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Sizes of the level's tile."""
        return {dim: self.level.size(dim, n) for dim, n in self.kernel.anchor.extents.items()}

    @cached_property
    def loops(self) -> tuple[str, ...]:
        """All dims, those of the level's loops last, outermost first: in a tile around that is
        smaller than the kernel any of them may have a loop."""
        order = self.level.order
        reduction = self.kernel.anchor.reduction
        rest = [dim for dim in self.kernel.anchor.extents if dim not in order]
        parallel = [dim for dim in (*rest, *order) if dim not in reduction]
        return (*parallel, *(dim for dim in (*rest, *order) if dim in reduction))

    @cached_property
    def cuts(self) -> Cuts:
        """The cuts that it makes of tiles around."""
        names = (use.name for use, _ in self.inside.moved)
        single = frozenset(name for name in names if self.schedule.slots(name) == 1)
        within = None if self.within is None else self.within.cuts
        return Cuts(self.inside, self.sizes, self.loops, single, within)

    @property
    def innermost(self) -> LevelTiling:
        """The tiling of the innermost level."""
        return self if self.within is None else self.within.innermost

    @property
    def is_one_result(self) -> bool:
        """True if a tile is one innermost tile along every dim of the result."""
        parallel = self.sizes.keys() - set(self.kernel.anchor.reduction)
        return all(self.sizes[dim] <= self.innermost.sizes[dim] for dim in parallel)

    def taken(self, memory: str) -> int:
        """Bytes that the innermost level has of a memory of the level around: its buffers there,
        and those of results that pass it in innermost tiles."""
        near, size = self.innermost.beside(memory)
        return near + size * self.passing(memory) if memory in self.inside.passed else near

    def beside(self, memory: str) -> tuple[int, int]:
        """Bytes that operands have in a memory, of the innermost level, and those of one slot of
        the result there."""
        inside, granule, near = self.inside, self.inside.machine.memory(memory).granule, 0
        for use in inside.uses:
            if use.memory.name == memory and not use.output and not use.host:
                slot = align_up(inside.slot_bytes(use, self.sizes), granule)
                near += slot * self.schedule.slots(use.name)
        return near, align_up(inside.slot_bytes(inside.output, self.sizes), granule)

    def passing(self, memory: str) -> int:
        """Slots for innermost results that pass a memory: two where they fit, and in the memories
        of levels around where they leave most to those; 0 where not even one fits."""
        inside = self.inside
        room = inside.machine.memory_beside(inside.primitive, memory).room
        near, size = self.innermost.beside(memory)
        if room is None:
            return 2
        if any(memory in level for level in inside.levels):
            return 2 if 4 * size <= room - near else 1
        return max(min((room - near) // max(size, 1), 2), 0)

    @property
    def fits(self) -> bool:
        """True if results fit the memories that they pass."""
        return all(self.passing(memory) for memory in self.inside.passed)

    @property
    def nested(self) -> list[LevelTiling]:
        """The tilings of this level and of those within it, outermost first."""
        return [self, *([] if self.within is None else self.within.nested)]

    @property
    def whole(self) -> Schedule:
        """The schedule of all levels, of which this is the outermost: the tiles of each, cut as
        those within it say."""
        outer, *rest = self.nested
        tile = dict(outer.level.tile)
        levels = [Level(self.inside.levels[0][0], outer.level.tile, outer.level.order)]
        names = [*(memories[0] for memories in self.inside.levels[1:]), self.innermost.memory]
        for tiling, memory in zip(rest, names, strict=True):
            fine = {dim: min(tiling.sizes[dim], size) for dim, size in tile.items()}
            order = tuple(dim for dim in tiling.loops if fine[dim] < tile[dim])
            levels.append(Level(memory, tuple(fine.items()), order))
            tile = fine
        buffers = self.innermost.schedule.buffers
        return Schedule(self.inside.primitive.name, tuple(levels), buffers, staged=self._staged())

    @property
    def memory(self) -> str:
        """The memory that names the innermost level: of an operand that has no other one there."""
        known = [name for level in self.inside.levels for name in level]
        uses = self.inside.uses
        own = [use.memory.name for use in uses if use.memory.name not in known]
        return self.level.memory if self.level.memory not in known or not own else own[0]

    def _staged(self) -> tuple[tuple[str, str, int], ...]:
        """Operand, memory and slots of the buffers on the way."""
        inside, nested = self.inside, self.nested
        known = inside.machine, inside.primitive
        paths, inputs, results = paths_of(*known), input_levels(*known), result_levels(*known)
        slots: list[tuple[str, str, int]] = []
        for use in self.innermost.inside.uses:
            levels = results if use.output else inputs
            for hop in paths[use.operand.role][:-1]:
                if hop.target in levels:
                    tiling = nested[levels[hop.target]]
                    count = tiling.schedule.slots(use.host or use.name)
                else:
                    count = self.passing(hop.target)
                slots.append((use.name, hop.target, count))
        return tuple(slots)


def cuts_of(tilings: Sequence[LevelTiling], around: Ints) -> list[tuple[Cuts, Ints]]:
    """The cuts of tiles around, given by the numbers of their tilings: those with loops and slots
    alike together, with the rows of the column that have them."""
    alike: dict[tuple[object, ...], list[int]] = {}
    for number, tiling in enumerate(tilings):
        alike.setdefault(_form(tiling.cuts), []).append(number)
    parts: list[tuple[Cuts, Ints]] = []
    for numbers in alike.values():
        rows = np.flatnonzero(np.isin(around, numbers))
        if rows.size:
            parts.append(
                (_columns([tiling.cuts for tiling in tilings], numbers[0], around[rows]), rows)
            )
    return parts


def _form(cuts: Cuts) -> tuple[object, ...]:
    """Loops and slots of all levels."""
    within = () if cuts.within is None else _form(cuts.within)
    return (cuts.loops, cuts.single, *within)


def _columns(cuts: Sequence[Cuts], first: int, chosen: Ints) -> Cuts:
    """Cuts of the form of the first one, with the sizes of the chosen ones as columns."""
    sizes: dict[str, Counts] = {}
    for dim, size in cuts[first].sizes.items():
        column = np.array([each.sizes[dim] for each in cuts])[chosen]
        sizes[dim] = size if (column == size).all() else column
    within = [each.within for each in cuts]
    inner = (
        None
        if within[first] is None
        else _columns([each for each in within if each is not None], first, chosen)
    )
    return replace(cuts[first], sizes=sizes, within=inner)

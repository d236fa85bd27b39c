"""Inner tilings: how an outer tile of a kernel is computed, an inner tile at a time.

All costs are columns: one number for each of many outer tiles. See planning/space/levels.py.
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
from tilewright.planning.space.levels import Path, paths_of

Tiles = Mapping[str, Counts]
"""Sizes of outer tiles, a column for each dim, or one number for all of them."""


@dataclass(frozen=True)
class Inside:
    """A kernel's operands next to its primitive: what all inner tilings have in common."""

    kernel: Kernel
    machine: Machine
    primitive: Primitive
    uses: tuple[Use, ...]
    """The operands on the inner view."""

    @cached_property
    def paths(self) -> dict[str, Path]:
        """Role -> the moves that an operand takes."""
        return paths_of(self.machine, self.primitive)

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
    """The computation of outer tiles: each by an inner tiling whose loops and slots are alike."""

    inside: Inside
    sizes: Tiles
    """The sizes of the inner tiles, by dim."""
    loops: tuple[str, ...]
    """All dims, outermost first."""
    single: frozenset[str]
    """The operands whose buffers have one slot."""

    def trips(self, tile: Tiles) -> dict[str, Counts]:
        """Inner tiles along each dim."""
        return {dim: -(-size // self.sizes[dim]) for dim, size in tile.items()}

    def full(self, tile: Tiles) -> dict[str, Any]:
        """Sizes of the largest inner tiles of outer ones."""
        return {dim: np.minimum(size, self.sizes[dim]) for dim, size in tile.items()}

    def computes(self, tile: Tiles) -> Floats:
        """Inner tiles of outer ones of these sizes."""
        count = np.ones(())
        for trips in self.trips(tile).values():
            count = count * trips
        return count

    def _compute(self, tile: Tiles, trips: Tiles) -> Floats:
        """Cycles of the computes of an outer tile together, edge tiles apart."""
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
        cycles: Any = parse_expression(self.inside.primitive.cycles).evaluate(sizes)
        issue: Any = parse_expression(self.inside.primitive.issue).evaluate(sizes)
        return np.sum(np.stack(counts) * np.maximum(cycles, issue), axis=0)

    def cycles(self, tile: Tiles) -> Floats:
        """Cycles from an outer tile's first compute to the next outer tile's.

        From a compute to the next passes the longest of the compute, of each engine's loads of the
        operands whose boxes change, and of the result's store; an operand of one slot waits for the
        compute before it.
        """
        trips = self.trips(tile)
        compute = self._compute(tile, trips) / self.computes(tile)
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
        # Where the outer level cuts the reduction, its results change with the last part alone.
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
class InnerTiling:
    """One way to compute an outer tile: the inner tile, the order of its loops, the buffering."""

    inside: Inside
    schedule: Schedule
    """The schedule on the inner view, of one level."""

    @property
    def kernel(self) -> Kernel:
        """The kernel that is tiled."""
        return self.inside.kernel

    @property
    def level(self) -> Level:
        """The inner level of the schedule."""
        return self.schedule.levels[0]

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Sizes of the inner tile."""
        return {dim: self.level.size(dim, n) for dim, n in self.kernel.anchor.extents.items()}

    @cached_property
    def loops(self) -> tuple[str, ...]:
        """All dims, those of the inner loops last, outermost first: of an outer tile smaller than
        the kernel any of them may have a loop."""
        order = self.level.order
        reduction = self.kernel.anchor.reduction
        rest = [dim for dim in self.kernel.anchor.extents if dim not in order]
        parallel = [dim for dim in (*rest, *order) if dim not in reduction]
        return (*parallel, *(dim for dim in (*rest, *order) if dim in reduction))

    @cached_property
    def cuts(self) -> Cuts:
        """The cuts that it makes of outer tiles."""
        names = (use.name for use, _ in self.inside.moved)
        single = frozenset(name for name in names if self.schedule.slots(name) == 1)
        return Cuts(self.inside, self.sizes, self.loops, single)

    def staged(self, names: Mapping[str, int]) -> tuple[tuple[str, str, int], ...]:
        """Slots of the buffers on the way: ``names`` has those of the outer level; results get two
        slots where the memories have room for them."""
        slots_by_buffer: list[tuple[str, str, int]] = []
        for use in self.inside.uses:
            path = self.inside.paths[use.operand.role]
            if use.output:
                slots_by_buffer += [
                    (use.name, hop.target, self._passing(hop.target)) for hop in path[:-1]
                ]
            else:
                slots = names.get(use.host or use.name, 1)
                slots_by_buffer += [
                    (use.name, hop.target, slots) for hop in path[:1] if len(path) > 1
                ]
                slots_by_buffer += [(use.name, hop.target, 2) for hop in path[1:-1]]
        return tuple(slots_by_buffer)

    def _passing(self, memory: str) -> int:
        """Slots for results that pass a memory; 0 where not even one fits."""
        inside = self.inside
        room = inside.machine.memory_beside(inside.primitive, memory).room
        granule = inside.machine.memory(memory).granule
        size = align_up(inside.slot_bytes(inside.output, self.sizes), granule)
        others = 0
        for use in inside.uses:
            if use.memory.name == memory and not use.output and not use.host:
                slot = align_up(inside.slot_bytes(use, self.sizes), granule)
                others += slot * self.schedule.slots(use.name)
        return 2 if room is None else max(min((room - others) // max(size, 1), 2), 0)

    @property
    def fits(self) -> bool:
        """True if results fit the memories that they pass."""
        return all(self._passing(hop.target) for hop in self.inside.paths["output"][:-1])

    def within(self, outer: Schedule) -> Schedule:
        """The schedule of both levels: the outer one's tiles, cut as this one says."""
        first = next(path[0] for path in self.inside.paths.values() if len(path) > 1)
        tile = dict(outer.levels[0].tile)
        fine = tuple((dim, min(self.sizes[dim], size)) for dim, size in tile.items())
        inner = dict(fine)
        order = tuple(dim for dim in self.loops if inner[dim] < tile[dim])
        return Schedule(
            self.inside.primitive.name,
            (
                Level(first.target, outer.levels[0].tile, outer.levels[0].order),
                Level(self.level.memory, fine, order),
            ),
            self.schedule.buffers,
            staged=self.staged(dict(outer.buffers)),
        )


def cuts_of(tilings: Sequence[InnerTiling], around: Ints) -> list[tuple[Cuts, Ints]]:
    """The inner tilings of outer tiles, given by their numbers: those with loops and slots alike
    together, with the rows of the column that have them."""
    alike: dict[tuple[tuple[str, ...], frozenset[str]], list[int]] = {}
    for number, tiling in enumerate(tilings):
        alike.setdefault((tiling.loops, tiling.cuts.single), []).append(number)
    parts: list[tuple[Cuts, Ints]] = []
    for numbers in alike.values():
        rows = np.flatnonzero(np.isin(around, numbers))
        if not rows.size:
            continue
        first = tilings[numbers[0]].cuts
        sizes: dict[str, Counts] = {}
        for dim, size in first.sizes.items():
            column = np.array([tiling.sizes[dim] for tiling in tilings])[around[rows]]
            sizes[dim] = size if (column == size).all() else column
        parts.append((replace(first, sizes=sizes), rows))
    return parts

"""The cost of one tiling of a chain: its buffers, what passes them, and what its engines do.

A tiling's commands are known before there is a program (commands.py): how many bytes each
transfer moves, how long each compute takes, and what each waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

import numpy as np

from tilewright.machine import Machine, Memory, parse_expression
from tilewright.numerics.element_types import size_of
from tilewright.planning.chains.circular import first_places, rows_in_buffer
from tilewright.planning.chains.inner import Inner
from tilewright.planning.chains.once import once
from tilewright.planning.chains.tiles import Kept, Rows, Slide, Span, Tile, loops_of
from tilewright.planning.chains.units import Place, Unit, packed
from tilewright.planning.cost.bounds import bandwidth_of
from tilewright.planning.space.footprint import Counts, Ints, holds_sums


@dataclass
class Tiling:
    """Tile sizes of the last kernel's dims, the order of its loops, outermost first, the inner
    tiles of all kernels, and the results whose rows are kept."""

    shape: Tile
    machine: Machine
    order: tuple[str, ...]
    inner: tuple[Inner, ...]
    kept: tuple[tuple[str, int], ...] = ()
    """Results whose rows are kept, each with the rows that tiles compute ahead."""
    slots: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """Slots by operand, and by memory for buffers on the way."""
    homes: list[Memory] = field(default_factory=list[Memory])
    """The memory in which each buffer lies, as ``fits`` finds."""
    modelled_cycles: float = 0.0
    """Cycles by the closed form of nest_cost.py; 0 if it was not asked."""

    def __post_init__(self) -> None:
        self.places = self.shape.places
        self.units: tuple[Unit, ...] = self.places.units
        self.trips = [self.shape.trips(dim) for dim in self.order]
        # These follow from the loops that there are, and not from their sizes.
        self._loops = self.order, tuple((inner.order, inner.levels) for inner in self.inner)
        self._levels = self.places.levels.setdefault(self._loops, {})
        self._depths = self.places.depths.setdefault(self._loops, {})

    @property
    def tile(self) -> dict[str, int]:
        """Tile sizes of the last kernel's dims."""
        return dict(self.shape.sizes)

    @property
    def count(self) -> int:
        """Number of outer tiles."""
        return prod(self.trips)

    @property
    def tile_points(self) -> int:
        """Points of one outer tile."""
        return prod(self.shape.sizes.values())

    @cached_property
    def slides(self) -> Kept:
        """The results whose rows are kept."""
        return tuple(
            Slide(name, self.order[self.unit_depth(self.maker(name)) - 1], ahead)
            for name, ahead in self.kept
        )

    def slide(self, name: str) -> Slide | None:
        """Return how rows of a result slide from tile to tile, or None if none are kept."""
        return next((slide for slide in self.slides if slide.name == name), None)

    def maker(self, name: str) -> int:
        """The kernel that makes an operand."""
        return next(n for n, u in enumerate(self.units) if u.kernel.output.name == name)

    def boxes(self, place: Place, kept: Kept = ()) -> list[Span]:
        """The boxes of a buffer in the outer tiles."""
        return self.shape.boxes(place.unit, place.operand, kept)

    def depth(self, place: Place) -> int:
        """Within how many of the outer loops the box of a buffer stands."""
        key = place.unit, place.name, place.operand.image is not None, self.shape.cut
        if key not in self.places.loops:
            self.places.loops[key] = frozenset(loops_of(self.boxes(place)))
        loops = self.places.loops[key]
        return max((n for n, dim in enumerate(self.order, 1) if dim in loops), default=0)

    def unit_depth(self, number: int) -> int:
        """Within how many of the outer loops a kernel of the chain computes."""
        if number not in self._depths:
            self._depths[number] = self._unit_depth(number)
        return self._depths[number]

    def _unit_depth(self, number: int) -> int:
        if number == len(self.units) - 1:
            return len(self.order)
        home = self.places.all[self.places.homes[self.units[number].kernel.output.name]]
        around = 0 if home.unit == len(self.units) - 1 else self.unit_depth(home.unit)
        return max(self.depth(home), around)

    def levels(self, index: int) -> tuple[int, int]:
        """Within how many outer loops, and how many inner ones, a buffer stands."""
        if index not in self._levels:
            self._levels[index] = self._find_levels(index)
        return self._levels[index]

    def _find_levels(self, index: int) -> tuple[int, int]:
        place, group = self.places.all[index], self.places.together[index]
        depth = max(self.depth(member) for member in group)
        if self.places.is_bound[index]:
            depth = max(depth, self.unit_depth(place.unit))
        if index in self.places.homes.values():
            return max(depth, self.unit_depth(self.maker(place.name))), 0
        loops = self.inner[place.unit].around(place.level)
        dims = {dim for member in group for dim in member.operand.dims}
        within = max((n for n, (dim, _) in enumerate(loops, 1) if dim in dims), default=0)
        return (self.unit_depth(place.unit), within) if within else (depth, 0)

    @cached_property
    def steps(self) -> Ints:
        """Per outer loop and tile: the number of the loop's iteration."""
        if not self.trips:
            return np.zeros((0, 1), np.int64)
        return np.indices(self.trips).reshape(len(self.trips), -1)

    @once
    def at(self, depth: int) -> Ints:
        """The outer tiles before which what stands within ``depth`` loops happens."""
        return np.flatnonzero((self.steps[depth:] == 0).all(axis=0))

    def column(self, span: Span, values: Ints, tiles: Ints) -> Ints:
        """The starts or sizes of an interval at some outer tiles."""
        if not span.loop:
            return np.full(len(tiles), values[0])
        return values[self.steps[self.order.index(span.loop)][tiles]]

    def _at(self, span: Span, values: Ints, tiles: Ints) -> Counts:
        """``column``; one number for an interval that changes with no loop."""
        return self.column(span, values, tiles) if span.loop else int(values[0])

    @once
    def nest(self, number: int) -> list[Rows]:
        """The executions of a kernel's loops: of none of them, of the first, ..."""
        unit, spans = self.units[number], self.shape.spans(self.slides)
        tiles = self.at(self.unit_depth(number))
        intervals = {dim: spans[unit.names.get(dim, dim)] for dim in unit.kernel.anchor.extents}
        starts = {dim: self._at(span, span.start, tiles) for dim, span in intervals.items()}
        sizes = {dim: self._at(span, span.size, tiles) for dim, span in intervals.items()}
        nest = [Rows.of(tiles, starts, sizes)]
        for dim, size in self.inner[number].loops:
            nest.append(nest[-1].cut(dim, size))
        return nest

    @once
    def visits(self, index: int) -> Ints:
        """The outer tiles in which a buffer is filled, once for each filling."""
        depth, within = self.levels(index)
        number = self.places.all[index].unit
        if within or (depth == self.unit_depth(number) and index not in self.places.homes.values()):
            return self.nest(number)[within].tile
        return self.at(depth)

    def lengths(self, index: int) -> list[Ints]:
        """Per axis, the lengths of a buffer's box in each of its fillings."""
        count = len(self.visits(index))
        return [np.broadcast_to(length, count) for length in self._lengths(index)]

    def _lengths(self, index: int) -> list[Counts]:
        """As ``lengths``; one number for an axis along which all fillings are alike."""
        place, (_, within) = self.places.all[index], self.levels(index)
        if not within:
            tiles = self.visits(index)
            return [self._at(s, s.size, tiles) for s in self.boxes(place, self.slides)]
        rows, lengths = self.nest(place.unit)[within], list[Counts]()
        extents = self.units[place.unit].kernel.anchor.extents
        for axis, extent in zip(place.operand.access, place.operand.shape, strict=True):
            dim = axis.lone
            if dim is not None and extents[dim] == extent:
                lengths.append(rows.size[dim])
                continue
            start, size = axis.interval_columns(lambda name: (rows.start[name], rows.size[name]))
            if isinstance(start, int) and isinstance(size, int):
                low = min(max(start, 0), extent)
                lengths.append(min(max(start + size, low), extent) - low)
                continue
            low = np.minimum(np.maximum(start, 0), extent)
            lengths.append(np.minimum(np.maximum(start + size, low), extent) - low)
        return lengths

    def _lengths_moved(self, index: int) -> list[Counts]:
        """As ``_lengths``, with all of every window that is moved by itself."""
        lengths, place, within = self._lengths(index), self.places.all[index], self.levels(index)[1]
        names, kept = self.units[place.unit].names, self.shape.felt(place.unit, self.slides)
        for number, axis in enumerate(place.operand.access):
            if set(place.apart).isdisjoint(axis.dims):
                continue
            if within:
                sizes = [self.nest(place.unit)[within].size[dim] for dim in axis.dims]
            else:
                spans = [self.shape.spans(kept)[names.get(dim, dim)] for dim in axis.dims]
                sizes = [self.column(span, span.size, self.visits(index)) for span in spans]
            lengths[number] = np.prod(np.broadcast_arrays(*sizes), axis=0)
        return lengths

    @once
    def moved(self, index: int) -> Ints:
        """Bytes of each transfer of a buffer, as the move's bandwidth counts them."""
        if (levels := self.levels(index))[1]:
            return self._bytes_moved(index)
        # What no inner loop moves, tilings of one outer tile have in common.
        key = index, levels, self.order, self.slides
        if key not in self.shape.moved:
            self.shape.moved[key] = self._bytes_moved(index)
        return self.shape.moved[key]

    def _bytes_moved(self, index: int) -> Ints:
        size = self.places.all[index].moved_bytes(self._lengths_moved(index))
        return np.broadcast_to(size, len(self.visits(index)))

    @cached_property
    def transfers(self) -> dict[int, Ints]:
        """By buffer, the bytes of its transfers, with those of buffers that travel along."""
        known = self.places.all
        moved = {n: self.moved(n) for n, place in enumerate(known) if place.move}
        for index, place in enumerate(known):
            if place.host and index in moved:
                leader = self.leader(index)
                moved[leader] = moved[leader] + moved.pop(index)
        return moved

    def leader(self, index: int) -> int:
        """The buffer in whose transfers another one's travel."""
        place = self.places.all[index]
        return next(
            number
            for number, other in enumerate(self.places.all)
            if other.name == place.host
            and (other.unit, other.memory.name) == (place.unit, place.memory.name)
        )

    @once
    def computing(self, number: int) -> Ints:
        """Cycles of each compute of a kernel of the chain."""
        unit, rows = self.units[number], self.nest(number)[-1]
        cycles: Any = parse_expression(unit.primitive.cycles).evaluate(rows.size)
        least: Any = parse_expression(unit.primitive.issue).evaluate(rows.size)
        whole = np.ceil(np.maximum(cycles, least))
        return np.broadcast_to(whole, rows.tile.shape).astype(np.int64)

    @property
    def around(self) -> tuple[frozenset[str], ...]:
        """The outer loops around each buffer's moves, and those around each kernel's computes."""
        if self._loops not in self.places.around:
            around: list[frozenset[str]] = []
            for index, place in enumerate(self.places.all):
                depth, within = self.levels(index)
                depth = self.unit_depth(place.unit) if within else depth
                around.append(frozenset(self.order[:depth]))
            for number in range(len(self.units)):
                around.append(frozenset(self.order[: self.unit_depth(number)]))
            self.places.around[self._loops] = tuple(around)
        return self.places.around[self._loops]

    def _total(self, number: int, column: Callable[[int], Ints], of: int) -> int:
        """The sum of a column over all executions, which tilings with the same loops share."""
        known = self.shape.totals
        count = len(self.places.all)
        unit = number - count if number >= count else self.places.all[number].unit
        key = number, self.around[number], self.shape.felt(unit, self.slides)
        if key not in known:
            known[key] = int(column(of).sum())
        return known[key]

    @cached_property
    def busy(self) -> dict[str, float]:
        """Per engine, the cycles of its computes and of its bytes; not to be changed."""
        key = self.around, self.slides
        if key not in self.shape.busy:
            self.shape.busy[key] = self._busy()
        return self.shape.busy[key]

    def _busy(self) -> dict[str, float]:
        busy: dict[str, float] = {}
        for index, place in enumerate(self.places.all):
            move = place.move
            if move is not None:
                cycles = self._bytes(index) / move.bytes_per_cycle
                busy[move.engine] = busy.get(move.engine, 0.0) + cycles
        for number, unit in enumerate(self.units):
            total = self._total(len(self.places.all) + number, self.computing, number)
            engine = unit.primitive.engine
            busy[engine] = busy.get(engine, 0.0) + total
        return busy

    def _bytes(self, index: int) -> int:
        """Bytes that pass a buffer's move in all."""
        return self._total(index, self.moved, index)

    @cached_property
    def moved_bytes(self) -> int:
        """Bytes through main memory, and others that hold operands."""
        return sum(self.home_bytes.values())

    @cached_property
    def home_bytes(self) -> dict[str, int]:
        """Bytes through main memory, and each other that holds operands; not to be changed."""
        key = self.around, self.slides
        if key not in self.shape.homes:
            self.shape.homes[key] = self._home_bytes()
        return self.shape.homes[key]

    def _home_bytes(self) -> dict[str, int]:
        total = dict.fromkeys(self.machine.homes, 0)
        for index, place in enumerate(self.places.all):
            for name in total:
                if place.move and name in (place.move.source, place.move.target):
                    total[name] += self._bytes(index)
        return total

    @cached_property
    def bound(self) -> float:
        """Cycles that the busiest engine, or main memory, takes at least."""
        homes = self.home_bytes.items()
        flows = [size / bandwidth_of(name, self.machine) for name, size in homes]
        return max(*self.busy.values(), *flows)

    @property
    def estimate(self) -> float:
        """Cycles of the busiest engine, and of the others where these do not run beside it: in the
        first tile and the last one, or in all tiles, where buffers have one slot."""
        single = any(
            self.slot_count(index) == 1 and self.most_visits(index) > 1 and self._gains(index)
            for index in range(len(self.places.all))
        )
        return self.least + self.others * (1 - 1 / self.count) if single else self.least

    @property
    def others(self) -> float:
        """Cycles of the engines that are not the busiest."""
        return sum(self.busy.values()) - max(self.busy.values())

    @property
    def least(self) -> float:
        """The estimate, if all buffers that gain by it have two slots."""
        return self.bound + self.others / self.count

    # Room.

    def element(self, place: Place) -> int:
        """Bytes of an element of a buffer: a sum's, where it holds sums."""
        if place.made_by is None:
            return place.element_bytes
        unit = self.units[place.made_by]
        cut = {*self.inner[place.made_by].order}
        cut |= {dim for dim in self.order if place.made_by == len(self.units) - 1}
        sums = holds_sums(unit.kernel, unit.primitive) or cut & set(unit.kernel.anchor.reduction)
        size = place.element_bytes
        return max(size, size_of(self.machine.accumulator)) if sums else size

    def key(self, index: int) -> tuple[str, str]:
        """Return the key by which a schedule names a buffer's slots."""
        return self.places.keys[index]

    def room(self, index: int, slots: int) -> int:
        """Bytes that a buffer of ``slots`` slots takes."""
        place, visits = self.places.all[index], self.most_visits(index)
        slide = self.slide(place.name) if index in self.places.homes.values() else None
        if slide is None:
            return self._bytes_of(index, self._largest(index)) * max(min(slots, visits), 1)
        largest, boxes = [*self._largest(index)], self.boxes(place, self.slides)
        axis, span = next((n, s) for n, s in enumerate(boxes) if s.loop == slide.loop)
        runs = 1 if visits == len(span.size) else 2
        size, run = np.tile(span.size, runs), np.repeat(np.arange(runs), len(span.size))
        first = first_places(np.tile(span.start, runs), size, run)
        largest[axis] = rows_in_buffer(first, size, min(slots, visits))
        return self._bytes_of(index, largest)

    def _bytes_of(self, index: int, lengths: Sequence[int]) -> int:
        """Bytes of a box of such lengths in a buffer."""
        place = self.places.all[index]
        return place.slot_bytes(lengths, self.element(place))

    @once
    def _largest(self, index: int) -> list[int]:
        """Per axis, the largest length of a buffer's box; of windows that are moved one by one,
        their number."""
        place, (_, within) = self.places.all[index], self.levels(index)
        unit, spans = self.units[place.unit], self.shape.spans(self.slides)
        inner = dict(self.inner[place.unit].around(place.level)) if within else {}
        lengths = [int(span.size.max(initial=0)) for span in self.boxes(place, self.slides)]
        for number, axis in enumerate(place.operand.access):
            apart = not set(place.apart).isdisjoint(axis.dims)
            if not within and not apart:
                continue
            sizes = {dim: int(spans[unit.names.get(dim, dim)].size.max()) for dim in axis.dims}
            sizes = {dim: min(inner.get(dim, size), size) for dim, size in sizes.items()}
            several = prod(size for dim, size in sizes.items() if dim not in place.apart)
            lengths[number] = several if apart else min(axis.span(sizes), lengths[number])
        return lengths

    @once
    def most_visits(self, index: int) -> int:
        """Return how often a buffer is filled, at most."""
        depth, within = self.levels(index)
        count, number = prod(self.trips[:depth]), self.places.all[index].unit
        spans, around = self.shape.spans(), dict[str, int]()
        for dim, step in self.inner[number].loops[:within]:
            size = around.get(dim, int(spans[self.units[number].names.get(dim, dim)].size.max()))
            count *= -(-size // step)
            around[dim] = step
        return count

    def fits(self) -> bool:
        """Return True if all buffers fit; assigns two slots where these fit, too."""
        packing = packed(self.places, [self._room(n, 1) for n in range(len(self.places.all))])
        if packing is None:
            return False
        (self.homes, rooms), asked = packing, self.places.rooms
        groups: dict[tuple[str, str], list[int]] = {}
        for index in range(len(self.places.all)):
            groups.setdefault(self.key(index), []).append(index)
        hosts = {p.name: p.host for p in self.places.all if p.host}
        ranked = sorted(groups, key=lambda key: self._gain(groups[key]))
        ranked = [key for key in ranked if key[0] not in hosts]
        ranked = [key for key in ranked if any(self._gains(index) for index in groups[key])]
        most = {key: self._most_slots(groups[key]) for key in ranked}
        for slots, key in product((2, 3, 4), most):
            if slots > most[key] or self.slots.get(key, 1) < slots - 1:
                continue
            joined = [n for other in groups for n in groups[other] if hosts.get(other[0]) == key[0]]
            joined = [n for n in joined if self.key(n)[1] == key[1]]
            more: dict[str, int] = {}
            for index in (*groups[key], *joined):
                name, further = self.homes[index].name, self._room(index, slots)
                more[name] = more.get(name, 0) + further - self._room(index, slots - 1)
            if all(asked.fits(name, rooms[name], size) for name, size in more.items()):
                self.slots[key] = slots
                for name, size in more.items():
                    rooms[name] -= size
        for index in range(len(self.places.all)):
            name, memory = self.key(index)
            if name in hosts:
                self.slots[name, memory] = self.slots.get((hosts[name], memory), 1)
        return True

    def _most_slots(self, group: Sequence[int]) -> int:
        """Slots of a group of buffers at most: more than two for a kernel alone whose moves run
        ahead, if engines do not wait for signals before each."""
        asked = self.machine.synchronisation
        moves = [self.places.all[n].move for n in group]
        ahead = all(move is not None and move.in_flight > 1 for move in moves)
        return 4 if self.modelled_cycles and ahead and not (asked.signals and asked.stalls) else 2

    def _room(self, index: int, slots: int) -> int:
        key = "room", index, min(slots, self.most_visits(index)), self.levels(index)[1], self.slides
        key = *key, frozenset(self.order[: self.levels(index)[0]]) if self.slides else None
        known = self.shape.totals
        if key not in known:
            known[key] = self.room(index, slots)
        return known[key]

    def _gains(self, index: int) -> bool:
        """Return True if a second slot of a buffer lets engines overlap."""
        place, last = self.places.all[index], self.units[-1].primitive.engine
        if sum(self.levels(index)) == 0:
            return False
        if place.move or place.made_by is None:
            return True
        return self.units[place.made_by].primitive.engine != last

    def _gain(self, group: Sequence[int]) -> tuple[int, bool, int, str]:
        """Return the sort key of a group of buffers for the order in which second slots are
        assigned."""
        first = self.places.all[group[0]]
        transfers = any(self.places.all[n].move for n in group)
        inner = max(self.levels(index)[1] for index in group)
        size = max(self.most_visits(n) * self._room(n, 1) for n in group)
        return -int(inner > 0), not transfers, -size, first.name

    def slot_count(self, index: int) -> int:
        """Slots of a buffer."""
        return max(min(self.slots.get(self.key(index), 1), self.most_visits(index)), 1)

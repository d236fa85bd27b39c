"""The time of tiles within tiles: what a kernel's loops over the tiles of one level cost.

All figures are columns, one number for each of many tilings. They rank tilings; what is ranked
first is priced by its commands (commands.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from tilewright.machine import Machine, Move, parse_expression
from tilewright.planning.chains.units import Place, Unit
from tilewright.planning.cost.bounds import main_bandwidth
from tilewright.planning.space.footprint import holds_sums

Sizes = Mapping[str, Any]
"""Sizes of tiles by dim: columns, or one number for all of them."""


@dataclass(frozen=True)
class Buffers:
    """The buffers of one level of a kernel's tiles."""

    unit: Unit
    machine: Machine
    places: tuple[Place, ...]
    """The buffers that moves fill or empty."""
    accumulator: int
    """Bytes of an accumulator."""

    @cached_property
    def alone(self) -> tuple[int, ...]:
        """The buffers with moves of their own."""
        names = {place.name for place in self.places}
        return tuple(n for n, place in enumerate(self.places) if place.host not in names)

    @cached_property
    def guests(self) -> dict[int, tuple[int, ...]]:
        """By buffer with a move of its own, those that are filled by it, itself included."""
        return {
            n: tuple(
                g for g, p in enumerate(self.places) if g == n or p.host == self.places[n].name
            )
            for n in self.alone
        }

    @cached_property
    def dims(self) -> dict[int, frozenset[str]]:
        """By buffer with a move of its own, the dims whose loops move it."""
        return {
            n: frozenset(dim for g in guests for dim in self.places[g].operand.dims)
            for n, guests in self.guests.items()
        }

    def move(self, number: int) -> Move:
        """The move of a buffer."""
        move = self.places[number].move
        assert move is not None
        return move

    def room(self, number: int, sizes: Sizes, sums: Any) -> Any:
        """Bytes of a slot of a buffer; ``sums`` says where results are sums."""
        total = 0
        for guest in self.guests[number]:
            place = self.places[guest]
            element: Any = place.element_bytes
            if place.made_by is not None:
                element = np.where(sums, max(element, self.accumulator), element)
            lengths = _lengths(place, sizes, leaving_out=place.apart)
            total = total + place.slot_bytes(lengths, element)
        return total

    def moved(self, number: int, sizes: Sizes) -> Any:
        """Bytes of a transfer, as the move's bandwidth counts them."""
        total = 0
        for guest in self.guests[number]:
            place = self.places[guest]
            total = total + place.moved_bytes(_lengths(place, sizes))
        return total

    def sums(self, reduced: Any) -> Any:
        """Return True where the result's buffer next to the primitive holds sums, given where a
        reduction is cut."""
        return reduced | holds_sums(self.unit.kernel, self.unit.primitive)


def _lengths(place: Place, sizes: Sizes, leaving_out: Sequence[str] = ()) -> list[Any]:
    """Per axis, the largest length of a buffer's box; where windows come one by one, the product of
    the dims, some of them left out."""
    lengths: list[Any] = []
    for axis, extent in zip(place.operand.access, place.operand.shape, strict=True):
        if set(place.apart).isdisjoint(axis.dims):
            lengths.append(np.minimum(axis.span(sizes), extent))
        else:
            lengths.append(prod(sizes[dim] for dim in axis.dims if dim not in leaving_out))
    return lengths


@dataclass(frozen=True)
class Inside:
    """Figures of what computes a tile, as columns."""

    cycles: Any
    queued: Mapping[str, Any]
    """By engine, how often the buffer that it moves most is moved meanwhile."""
    busy: Mapping[str, Any]
    """By engine, the cycles of its moves."""


def computed(buffers: Buffers, tile: Sizes) -> Inside:
    """The figures of a primitive that computes tiles of these sizes at once."""
    primitive = buffers.unit.primitive
    cycles: Any = parse_expression(primitive.cycles).evaluate(tile)
    issue: Any = parse_expression(primitive.issue).evaluate(tile)
    shared = instruction_cycles(buffers.machine, moves=False)
    return Inside(np.ceil(np.maximum(cycles, issue)), {}, shared)


def instruction_cycles(machine: Machine, *, moves: bool) -> dict[str, float]:
    """Cycles in which main memory gives the words of a command, and "" issues them: of a move with
    those that order it with what makes and what reads its data."""
    asked, count = machine.synchronisation, 1
    if moves and asked.stalls:
        count += {"flags": 4, "replies": 2}.get(asked.style, 0)
    words = count * machine.instruction_bytes / main_bandwidth(machine)
    return {machine.main: words, "": float(count * machine.issue_cycles)}


@dataclass(frozen=True)
class Tiles:
    """The tiles of one level, and those within each: a tiling, or a column of many."""

    buffers: Buffers
    sizes: Sizes
    slots: tuple[Any, ...]
    """The slots of each buffer with a move of its own."""
    order: tuple[str, ...] = ()
    """The dims that may have loops, outermost first."""
    within: Tiles | None = None
    """The tiles within each tile, which compute it; None where the primitive does at once."""

    @property
    def innermost(self) -> Tiles:
        """The tiles that the primitive computes at once."""
        return self if self.within is None else self.within.innermost

    def of(self, around: Sizes) -> Inside:
        """The figures of these tiles as they compute one tile of the level around."""
        full = {dim: np.minimum(size, self.sizes[dim]) for dim, size in around.items()}
        known = computed(self.buffers, full) if self.within is None else self.within.of(full)
        return Run(self, around, known).inside(self.order)

    @cached_property
    def ends(self) -> Any:
        """Cycles of the first loads and the last store, of this level and those within."""
        total = 0.0 if self.within is None else self.within.ends
        for number in self.buffers.alone:
            move = self.buffers.move(number)
            total = total + self.buffers.moved(number, self.sizes) / move.bytes_per_cycle
            total = total + move.latency
        return total


@dataclass
class Run:
    """The loops over the tiles of one level, in tiles of the level around.

    From a compute to the next passes the longest of the compute, of each engine's moves of the
    buffers whose boxes change, and of main memory's bytes; a buffer of one slot waits for the
    compute before it.
    """

    tiles: Tiles
    around: Sizes
    known: Inside
    """The cost of computing one full tile."""

    def __post_init__(self) -> None:
        self.buffers, sizes = self.tiles.buffers, self.tiles.sizes
        around = self.around.items()
        self.trips: Sizes = {dim: -(-size // sizes[dim]) for dim, size in around}
        self.turns = {dim: trips > 1 for dim, trips in self.trips.items()}
        self.full: Sizes = {dim: np.minimum(size, sizes[dim]) for dim, size in around}
        share = self._share()
        busy = {engine: cycles * share for engine, cycles in self.known.busy.items()}
        self.mean = replace(self.known, cycles=self.known.cycles * share, busy=busy)
        self.times = self._times()
        self.steps: dict[frozenset[str], tuple[list[Any], Any]] = {}

    def cycles(self, order: Sequence[str]) -> Any:
        """Cycles from the first compute to the end of the last one."""
        total, count = self.mean.cycles, 1.0
        for dim, (_, step) in zip(order, self._advances(order), strict=True):
            total = total + (self.trips[dim] - 1) * count * step
            count = count * self.trips[dim]
        return total

    def inside(self, order: Sequence[str]) -> Inside:
        """The figures of these tiles, to the first compute of the next tile of the level around."""
        # Where a level around cuts the reduction, its results change with the last part alone.
        extents, parts = self.buffers.unit.kernel.anchor.extents, 1.0
        for dim in self.buffers.unit.kernel.anchor.reduction:
            parts = parts * -(-extents[dim] // self.around[dim])
        # What is whole is loaded once, and stays.
        again = [self._is_part(number) for number in self.buffers.alone]
        results = [self.buffers.places[n].flush is not None for n in self.buffers.alone]
        pairs = list(zip(again, results, strict=True))
        between = self._step([each & (not result) for each, result in pairs])
        every = self._step([each | result for each, result in pairs])
        total = self.cycles(order) - self.mean.cycles + between + (every - between) / parts
        moves: list[Any] = [0.0 for _ in pairs]
        count = 1.0
        for dim, (changed, _) in zip(order, self._advances(order), strict=True):
            advances = (self.trips[dim] - 1) * count
            moves = [so_far + advances * each for so_far, each in zip(moves, changed, strict=True)]
            count = count * self.trips[dim]
        queued = {engine: visits * count for engine, visits in self.mean.queued.items()}
        busy = {engine: cycles * count for engine, cycles in self.mean.busy.items()}
        for n, (number, time) in enumerate(zip(self.buffers.alone, self.times, strict=True)):
            engine = self.buffers.move(number).engine
            visits = moves[n] + (1 / parts if results[n] else again[n])
            queued[engine] = np.maximum(queued.get(engine, 0), visits)
            for engine, cycles in time.items():
                busy[engine] = busy.get(engine, 0.0) + visits * cycles
        return Inside(total, queued, busy)

    def _advances(self, order: Sequence[str]) -> list[tuple[list[Any], Any]]:
        """For each loop, which buffers change when it advances, and the cycles to the next tile:
        what changes with a loop, changes with all loops around it."""
        known: list[tuple[list[Any], Any]] = []
        for number, _ in enumerate(order):
            inner = frozenset(order[number:])
            if inner not in self.steps:
                changed: list[Any] = []
                for place in self.buffers.alone:
                    turns: Any = np.False_
                    for dim in inner & self.buffers.dims[place]:
                        turns = turns | self.turns[dim]
                    changed.append(turns)
                self.steps[inner] = changed, self._step(changed)
            known.append(self.steps[inner])
        return known

    def _is_part(self, number: int) -> Any:
        """Return True where a buffer holds a part of its operand."""
        part: Any = np.False_
        for dim in self.buffers.dims[number]:
            part = part | (self.full[dim] < self.buffers.unit.kernel.anchor.extents[dim])
        return part

    def _share(self) -> Any:
        """The share of a full tile's computes that the mean tile has."""
        share: Any = 1.0
        for dim, size in self.around.items():
            if np.any(self.turns[dim]):
                granule = self.buffers.unit.primitive.multiples.get(dim, 1)
                trips, full = self.trips[dim], -(-self.full[dim] // granule)
                last = -(-(size - (trips - 1) * self.tiles.sizes[dim]) // granule)
                share = share * (((trips - 1) * full + last) / (trips * full))
        return share

    def _times(self) -> list[Mapping[str, Any]]:
        """By buffer with a move of its own, the cycles of its engine, of main memory and of the
        issue of instructions, for the mean tile."""
        machine, times = self.buffers.machine, list[Mapping[str, Any]]()
        for number in self.buffers.alone:
            move = self.buffers.move(number)
            size: Any = self.buffers.moved(number, self.full)
            for dim in self.buffers.dims[number]:
                if np.any(self.turns[dim]):
                    size = size * (self.around[dim] / (self.trips[dim] * self.full[dim]))
            flow = size / move.bytes_per_cycle
            time = np.maximum(flow, (move.latency + flow) / move.in_flight)
            shared = instruction_cycles(machine, moves=True)
            if machine.main in (move.source, move.target):
                shared[machine.main] = shared[machine.main] + size / main_bandwidth(machine)
            times.append({move.engine: time, **shared})
        return times

    def _step(self, changed: Sequence[Any]) -> Any:
        compute: Any = self.mean.cycles
        step, engines = compute, dict[str, Any]()
        for n, (number, time) in enumerate(zip(self.buffers.alone, self.times, strict=True)):
            if changed[n] is np.False_:
                continue
            for engine, cycles in time.items():
                engines[engine] = engines.get(engine, 0.0) + changed[n] * cycles
            took = time[self.buffers.move(number).engine]
            alone = changed[n] & (self.tiles.slots[n] == 1)
            if np.any(alone):
                step = np.maximum(step, (compute + took) * alone)
        computing = engines.pop(self.buffers.unit.primitive.engine, None)
        if computing is not None:
            step = np.maximum(step, compute + computing)
        for engine, busy in engines.items():
            step = np.maximum(step, busy + self.mean.busy.get(engine, 0.0))
            if engine in self.mean.queued:
                # In its queue stand the moves of the tiles within, of which two run ahead.
                early = np.minimum(2 / np.maximum(self.mean.queued[engine], 1), 1)
                step = np.maximum(step, compute * (1 - early) + busy)
        return step


def slots_of(
    buffers: Buffers, rooms: Sequence[Any], visits: Sequence[Any], left: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Any]:
    """Slots of each buffer with a move of its own, two where these fit, those first that move most;
    and where not even one of each fits. ``left`` is the room in each memory, those without a limit
    left out."""
    slots: list[Any] = [np.ones(1, np.int64) for _ in rooms]
    fits: Any = np.ones(1, np.bool_)
    for memory, room in left.items():
        mine = [
            n
            for n, number in enumerate(buffers.alone)
            if buffers.places[number].memory.name == memory
        ]
        used: Any = 0
        for n in mine:
            used = used + rooms[n]
        fits = fits & (used <= room)
        for n in sorted(mine, key=lambda n: -float(np.mean(rooms[n] * visits[n]))):
            more = (used + rooms[n] <= room) & (visits[n] > 1)
            slots[n] = 1 + more
            used = used + more * rooms[n]
    return tuple(slots), fits

"""The pipeline that a nest and its buffering allow: cycles and moved bytes, as columns.

Trip counts and moved bytes are exact. The tiles of a nest fall into **classes** by the loop that
advanced before them: that says which operands are moved anew. Within a class, tiles are kept apart
by the dims along which they are cut short (space/cells.py). From the compute of a tile to that of
the next passes the longest of

- the compute of the tile;
- the next tile's place in the in-order queue of each engine that loads: latency (unless transfers
  in flight hide it) and bytes of every transfer;
- the bytes of loads and stores together through main memory;
- for an operand of s slots that every tile moves, 1 / s of the time from its move's start through
  the moves after it in the queue to the end of the compute that frees the slot. With one slot this
  is the serialisation that a single-buffered operand causes: nothing after it in the queue
  overlaps with compute;
- likewise for the output, compute and store.

A class whose loads take longer than compute borrows the time that the queue had left over in the
tile before, as far as slots let it run ahead. The first loads and the last compute and store stand
alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from tilewright.machine import Move
from tilewright.planning.cost.bounds import main_bandwidth
from tilewright.planning.space.cells import Cells, Pairs
from tilewright.planning.space.footprint import Bools, Floats, Ints, Use
from tilewright.planning.space.nests import Arrangement, Loop, TakesTurns, depends
from tilewright.planning.space.tilings import Space


def transfer_cycles(use: Use, size: Floats) -> Floats:
    """Cycles that a transfer of ``size`` bytes occupies its engine, at best.

    With one transfer in flight that is latency and bytes; with k, one k-th of that, but no less
    than the bytes.
    """
    assert use.move is not None
    flow = size / use.move.bytes_per_cycle
    return np.maximum(flow, (use.move.latency + flow) / use.move.in_flight)


class Pipeline:
    """One arrangement of a space's rows."""

    def __init__(self, space: Space, cells: Cells, arrangement: Arrangement) -> None:
        self.space, self.cells, self.arrangement = space, cells, arrangement
        self.uses = [use for use in space.uses if use.move is not None]
        self.loads = [use for use in self.uses if not use.output and not use.host]
        self.stores = [use for use in self.uses if use.output]
        self.bandwidth = main_bandwidth(space.machine)
        own = space.primitive.own
        turns = isinstance(own, TakesTurns)
        self.slots = own.slots(space, arrangement) if turns else arrangement.slots
        self.loops: list[Loop] = []
        self.dims: list[str] = []
        self.trips: list[Floats] = []
        self._unfold()
        self.depth = {use.name: self._depth(use) for use in self.uses if not use.host}
        self.rounds = {use.name: self._rounds(use) for use in self.loads + self.stores}
        self.bytes = self._sizes()
        self.time = {u.name: transfer_cycles(u, self.bytes[u.name]) for u in self.loads}
        for use in self.stores:
            self.time[use.name] = transfer_cycles(use, self.bytes[use.name])
        self.blocks = {
            u.name: space.further_latency(u, self._resident(u))[cells.row]
            for u in self.loads + self.stores
        }
        for name, latency in self.blocks.items():
            self.time[name] = self.time[name] + latency

    def _resident(self, use: Use) -> dict[str, Ints]:
        """Tiles along each dim that an operand's buffer covers, if more than one."""
        return self.arrangement.grown if use.name in self.arrangement.nest.resident else {}

    def _unfold(self) -> None:
        """One loop per dim, outermost first, with its trips per row."""
        space, nest, grown = self.space, self.arrangement.nest, self.arrangement.grown
        for loop in nest.loops:
            for dim in loop.group.dims:
                trips = space.trips(dim).astype(np.float64)
                if loop.group is nest.grown:
                    outer = np.ceil(trips / grown[dim])
                    trips = trips / outer if loop.inner else outer
                if (trips > 1).any():
                    self.loops.append(loop)
                    self.dims.append(dim)
                    self.trips.append(trips)

    def _depth(self, use: Use) -> Ints:
        """Per row, the loop in which the operand is moved; -1 before all loops."""
        depth = np.full(self.space.rows, -1)
        for number, (loop, count) in enumerate(zip(self.loops, self.trips, strict=True)):
            if depends(use, loop):
                depth = np.where(count > 1, number, depth)
        return depth

    def _rounds(self, use: Use) -> Floats:
        """Per row, tiles from the start of a move to the reuse of its slot."""
        tiles = np.ones(self.space.rows)
        for number, count in enumerate(self.trips):
            tiles = tiles * np.where(number > self.depth[use.name], count, 1.0)
        return 1.0 + (self.slots[use.name] - 1) * tiles

    def _sizes(self) -> dict[str, Floats]:
        """Per cell, bytes of one transfer of every operand that is moved on its own."""
        sizes: dict[str, Floats] = {}
        grown, space = self.arrangement.grown, self.space
        for use in self.uses:
            weight = space.bytes_per_element(use)
            size = self.cells.boxes[use.name] * weight[self.cells.row]
            if grown and use.name in self.arrangement.nest.resident:
                # The residency spans several tiles: the mean over them.
                rounds = np.ones(space.rows)
                for dim in space.extents:
                    if dim in use.operand.dims:
                        trips = space.trips(dim)
                        rounds = rounds * (-(-trips // grown[dim]) if dim in grown else trips)
                whole = space.total(use) * weight / rounds
                size = whole[self.cells.row]
            name = use.host or use.name
            sizes[name] = sizes.get(name, 0) + size
        return sizes

    def cycles_and_bytes(self) -> tuple[Floats, Floats]:
        """Per row, predicted cycles and moved bytes."""
        space, cells = self.space, self.cells
        innermost = np.full(space.rows, -1)
        for number, count in enumerate(self.trips):
            innermost = np.where(count > 1, number, innermost)
        left = self._left_over(innermost)
        total = np.zeros(space.rows)
        before = np.ones(space.rows)
        for number, count in enumerate(self.trips):
            rows = np.flatnonzero(count > 1)
            if rows.size:
                pairs = self._pairs(number)
                inside = innermost[pairs.row] == number
                spare = {
                    e: np.where(inside, 0.0, unused[pairs.before]) for e, unused in left.items()
                }
                step = Step(self, number, pairs).cycles(spare, space.machine.issue_cycles)
                mean = np.bincount(pairs.row, pairs.share * step, space.rows)
                total = total + (count - 1) * before * mean
            before = before * count
        first, last = cells.place[:, 0], self._last()
        compute = cells.sum(cells.count * cells.cycles, space.rows)
        total = np.maximum(total + cells.cycles[last], compute)
        total = total + self._first_loads(first) + self._last_store(last)
        return total, self.moved()

    def _pairs(self, number: int) -> Pairs:
        """Tiles that follow an advance of loop ``number``, with those before them.

        Inside the loop all dims start anew, so that tile is full there and the one before was the
        last; along the loop's own dim only the tile after may be cut short.
        """
        inner = {d for n, d in enumerate(self.dims) if n > number}
        # A dim with loops at two levels ends in an edge only once in many rounds: taken as a mean.
        inner -= {d for d in inner if self.dims.count(d) > 1}
        advancing = self.dims[number] if self.dims.count(self.dims[number]) == 1 else ""
        return self.cells.pairs(
            (frozenset(inner), advancing),
            lambda: _pairs_of(self.space, self.cells, inner, advancing),
        )

    def _last(self) -> Ints:
        """Per row, the cell of the last tile."""
        kind = np.zeros(self.space.rows, np.int64)
        for i, dim in enumerate(self.cells.dims):
            kind = np.where(self.cells.edge[dim], kind | 1 << i, kind)
        return self.cells.place[np.arange(self.space.rows), kind]

    def _left_over(self, innermost: Ints) -> dict[str, Floats]:
        """Per engine that loads and cell, time left beside compute in the innermost loop."""
        busy = {engine: np.zeros(len(self.cells.row)) for engine in engines_of(self.loads)}
        for use in self.loads:
            assert use.move is not None
            moves = (self.depth[use.name] >= innermost)[self.cells.row]
            busy[use.move.engine] = busy[use.move.engine] + moves * self.time[use.name]
        return {e: np.maximum(self.cells.cycles - time, 0.0) for e, time in busy.items()}

    def _first_loads(self, cell: Ints) -> Floats:
        """Cycles until the first tile is there."""
        total, hidden = np.zeros(len(cell)), 0
        for use in self.loads:
            assert use.move is not None
            rate = use.move.bytes_per_cycle if use.elsewhere else self._rate(use.move)
            total = total + self.bytes[use.name][cell] / rate
            total = total + self.blocks[use.name][cell]
            if use.move.in_flight == 1:
                total = total + use.move.latency
            hidden = max(hidden, use.move.latency if use.move.in_flight > 1 else 0)
        return total + hidden

    def _last_store(self, cell: Ints) -> Floats:
        """Cycles from the last compute to the end."""
        total = np.zeros(len(cell))
        for use in self.stores:
            assert use.move is not None
            flow = self.bytes[use.name][cell] / self._rate(use.move)
            total = total + flow + use.move.latency + self.blocks[use.name][cell]
        return total

    def _rate(self, move: Move) -> float:
        """Bytes in a cycle of a transfer that main memory serves alone."""
        return min(move.bytes_per_cycle, self.bandwidth)

    def moved(self) -> Floats:
        """Per row, bytes moved in all."""
        total = np.zeros(self.space.rows)
        for use in self.uses:
            again = np.ones(self.space.rows)
            depth = self.depth[use.host or use.name]
            for number, (loop, count) in enumerate(zip(self.loops, self.trips, strict=True)):
                if not depends(use, loop):
                    again = again * np.where(depth >= number, count, 1.0)
            total = total + again * self.space.total(use) * self.space.moved_per_element(use)
        return total


def _pairs_of(space: Space, cells: Cells, inner: Set[str], advancing: str) -> Pairs:
    """The pairs where the loop over ``advancing`` advances around those over ``inner``."""
    clear = sum(1 << i for i, d in enumerate(cells.dims) if d in inner)
    after = np.flatnonzero((cells.kind & clear) == 0)
    row, kind = cells.row[after], cells.kind[after]
    share, before = np.ones(len(after)), kind
    for i, dim in enumerate(cells.dims):
        bit = 1 << i
        edge = cells.edge[dim][row]
        trips = space.trips(dim)[row]
        if dim in inner:
            before = np.where(edge, before | bit, before)
        elif dim == advancing:
            short = (kind & bit) > 0
            before = before & ~bit
            ways = np.maximum(trips - 1, 1)
            share = share * np.where(short, 1.0, trips - 1.0 - edge) / ways
        else:
            short = (kind & bit) > 0
            share = share * np.where(short, 1.0, trips - edge) / trips
    return Pairs(after, cells.place[row, before], share, row)


@dataclass
class Queue:
    """The loads of one engine before a tile."""

    time: Floats
    flow: Floats
    """Cycles of the loads' bytes at the speed of main memory."""
    ahead: Ints
    """The fewest slots of an operand that is loaded."""

    @classmethod
    def empty(cls, size: int) -> Queue:
        """Return a queue that holds no loads."""
        return cls(np.zeros(size), np.zeros(size), np.full(size, 4))

    def add(self, time: Floats, flow: Floats, loaded: Bools, slots: Ints) -> None:
        """One more operand, where it is loaded."""
        self.time, self.flow = self.time + time, self.flow + flow
        self.ahead = np.where(loaded, np.minimum(self.ahead, slots), self.ahead)


def engines_of(uses: Sequence[Use]) -> tuple[str, ...]:
    """The engines that move operands."""
    return tuple(dict.fromkeys(use.move.engine for use in uses if use.move is not None))


class Step:
    """From the compute of a tile to the next one's, when one loop advances; columns over pairs."""

    def __init__(self, pricing: Pipeline, number: int, pairs: Pairs) -> None:
        self.of, self.number = pricing, number
        self.after, self.before, self.row = pairs.after, pairs.before, pairs.row
        self.compute = pricing.cells.cycles[self.before]
        self.moves = {
            use.name: (pricing.depth[use.name] >= number)[self.row].astype(np.float64)
            for use in pricing.loads + pricing.stores
        }
        self.slots = {n: column[self.row] for n, column in pricing.slots.items()}
        self.rounds = {n: column[self.row] for n, column in pricing.rounds.items()}
        self.depth = {use.name: pricing.depth[use.name][self.row] for use in pricing.loads}
        self.queued = {
            use.name: self.moves[use.name] * pricing.time[use.name][self.after]
            for use in pricing.loads
        }

    def cycles(self, spare: Mapping[str, Floats], issue: int) -> Floats:
        """The longest of what must pass; ``spare`` is what each queue had left over before."""
        instructions = 1 + sum(self.moves.values(), np.zeros(len(self.row)))
        # Their words come from main memory, with the transfers. Where results leave as well, these
        # still flow when the last tile is loaded, which takes back as much at the end.
        words = instructions * (self.of.space.machine.instruction_bytes / self.of.bandwidth)
        flow, stored = (np.zeros(len(self.row)) for _ in range(2))
        step = np.maximum(self.compute, issue * instructions)
        queues = {e: Queue.empty(len(self.row)) for e in engines_of(self.of.loads)}
        for use in self.of.loads:
            assert use.move is not None
            moves = self.moves[use.name]
            bytes_time = moves * self.of.bytes[use.name][self.after] / self.of.bandwidth
            if use.elsewhere:
                bytes_time = np.zeros(len(self.row))
            flow = flow + bytes_time
            queues[use.move.engine].add(
                self.queued[use.name], bytes_time, moves > 0, self.slots[use.name]
            )
            after = self._queued_after(use)
            if use.move.in_flight > 1:
                after = after + use.move.latency
            cycle = moves * (after + self.compute) / self.rounds[use.name]
            step = np.maximum(step, cycle)
        for use in self.of.stores:
            assert use.move is not None
            moves = self.moves[use.name]
            bytes_time = self.of.bytes[use.name][self.before] / self.of.bandwidth
            stored = stored + moves * bytes_time
            step = np.maximum(step, moves * self.of.time[use.name][self.before])
            wait = self._until_free(use) + self.of.blocks[use.name][self.before]
            cycle = moves * (self.compute + wait) / self.rounds[use.name]
            step = np.maximum(step, cycle)
        for engine in engines_of(self.of.stores):
            # Loads and stores of one engine follow one another.
            step = np.maximum(step, self._shared(engine))
        step = np.maximum(step, flow + np.maximum(stored, words))
        for engine, queue in queues.items():
            # A store delays the loads whose bytes flow at the same time.
            busy = queue.time + stored * queue.flow / np.maximum(queue.time, 1.0)
            step = np.maximum(step, busy - self._tiles_ahead(queue) * spare[engine])
        return step

    def _tiles_ahead(self, queue: Queue) -> Floats:
        """Return the number of tiles before this one whose spare time serves its loads: as far as
        slots let a queue run ahead, counted since the loop last advanced."""
        inner = np.ones(self.of.space.rows)
        for count in self.of.trips[self.number + 1 :]:
            inner = inner * count
        return np.minimum(queue.ahead - 1, inner[self.row] - 1)

    def _until_free(self, use: Use) -> Floats:
        """Time from a tile's compute until its result lets the next one begin."""
        assert use.move is not None
        return use.move.latency + self.of.bytes[use.name][self.before] / use.move.bytes_per_cycle

    def _shared(self, engine: str) -> Floats:
        """Time of an engine's loads and stores together; 0 for one that has only stores."""
        loads = [use for use in self.of.loads if use.move and use.move.engine == engine]
        total = np.zeros(len(self.row))
        for use in loads:
            total = total + self.queued[use.name]
        for use in self.of.stores if loads else ():
            if use.move is not None and use.move.engine == engine:
                total = total + self.moves[use.name] * self.of.time[use.name][self.before]
        return total

    def _queued_after(self, use: Use) -> Floats:
        """Queue time of the operand's move and those after it before the tile's compute."""
        total, mine = np.zeros(len(self.row)), self.depth[use.name]
        assert use.move is not None
        after = False
        for other in self.of.loads:
            after |= other is use
            assert other.move is not None
            if other.move.engine != use.move.engine:
                continue
            its = self.depth[other.name]
            counted = its >= mine if after else its > mine
            total = total + counted * self.queued[other.name]
        return total

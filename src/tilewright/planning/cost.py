"""The cost of schedules: cycles of the pipeline that a nest and its buffering allow, as columns.

Trip counts and moved bytes are exact. The tiles of a nest fall into **classes** by the loop that
advanced before them: that says which operands are moved anew. Within a class, tiles are kept apart
by the dims along which they are cut short (``space.Cells``). From one tile to the next passes the
longest of

- the compute of a tile;
- the in-order load queue: every transfer's latency (unless transfers in flight hide it) and bytes;
- the bytes of loads and stores together through main memory;
- for an operand of s slots, 1 / s of the time from its move's start through the moves behind it in
  the queue to the end of the compute that frees the slot. With one slot this is the serialisation
  that a single-buffered operand causes: nothing behind it in the queue overlaps with compute;
- likewise for the output, compute and store.

A class whose loads take longer than compute borrows the time that the queue had left over in the
tile before, as far as slots let it run ahead. The first loads and the last compute and store stand
alone. 0.3 % of the transfer time breaks ties between schedules that compute hides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.planning.bounds import main_bandwidth
from tilewright.planning.footprint import Floats, Ints, Use
from tilewright.planning.nests import Arrangement, arrangements, depends, nests_of
from tilewright.planning.space import Cells, Space, cells_of

TIE = 0.003
"""Share of the transfer time that is added to the cost."""


@dataclass(frozen=True)
class Priced:
    """One arrangement of a space's rows with its price."""

    arrangement: Arrangement
    cycles: Floats
    """Predicted cycles; infinite where the arrangement is not valid."""
    bytes: Floats
    """Bytes moved from and to main memory."""

    @property
    def cost(self) -> Floats:
        """What is compared: cycles, and a little of the traffic."""
        return self.cycles


def lower_bounds(space: Space) -> Floats:
    """Per tiling, cycles that no order and no buffering of it can go below."""
    cells = cells_of(space, boxes=False)
    compute = cells.sum(cells.count * cells.cycles, space.rows)
    bandwidth = main_bandwidth(space.machine)
    loads, moved = np.zeros(space.rows), np.zeros(space.rows)
    for use in space.uses:
        if use.move is None:
            continue
        size = space.total(use) * use.operand.element_bytes
        moved = moved + size
        if not use.output:
            dims = [dim for dim in space.extents if dim in use.operand.dims]
            waits = use.move.latency if use.move.in_flight == 1 and not use.host else 0
            grown = use.operand.role == "residual"
            count = np.ones(1) if grown else space.trips_of(dims)
            loads = loads + size / use.move.bytes_per_cycle + waits * count
    return np.maximum(np.maximum(compute, loads), moved / bandwidth)


def price(space: Space) -> list[Priced]:
    """The price of every arrangement of every row of a space."""
    cells = cells_of(space)
    issue = space.machine.issue_cycles
    found: list[Priced] = []
    for nest in nests_of(space):
        for arrangement in arrangements(space, nest):
            if arrangement.valid.any():
                cycles, moved = _Pricing(space, cells, arrangement).price(issue)
                cycles = np.where(arrangement.valid, cycles, np.inf)
                found.append(Priced(arrangement, cycles, moved))
    return found


class _Pricing:
    """The price of one arrangement; columns are over cells unless said otherwise."""

    def __init__(self, space: Space, cells: Cells, arrangement: Arrangement) -> None:
        self.space, self.cells, self.arrangement = space, cells, arrangement
        self.loops = arrangement.nest.loops
        self.at = cells.row
        self.uses = [use for use in space.uses if use.move is not None]
        self.loads = [use for use in self.uses if not use.output and not use.host]
        self.stores = [use for use in self.uses if use.output]
        self.bandwidth = main_bandwidth(space.machine)
        self.bytes = self._sizes()
        self.trips = [np.broadcast_to(t, (space.rows,)) for t in arrangement.trips]
        self.depth = {use.name: self._depth(use) for use in self.uses if not use.host}

    def _sizes(self) -> dict[str, Floats]:
        """Bytes of one transfer of every operand that is moved on its own."""
        sizes: dict[str, Floats] = {}
        grown = self.arrangement.grown
        for use in self.uses:
            size = self.cells.boxes[use.name] * use.operand.element_bytes
            if grown and (use.output or use.operand.role == "residual"):
                # The residency spans several tiles: the mean over them.
                space = self.space
                dims = [dim for dim in space.extents if dim in use.operand.dims]
                rounds = np.ones(space.rows)
                for dim in dims:
                    trips = space.trips(dim)
                    rounds = rounds * (-(-trips // grown[dim]) if dim in grown else trips)
                size = (space.total(use) * use.operand.element_bytes / rounds)[self.at]
            name = use.host or use.name
            sizes[name] = sizes.get(name, 0) + size
        return sizes

    def _depth(self, use: Use) -> Ints:
        """Per row, the loop in which the operand is moved; -1 before all loops."""
        depth = np.full(self.space.rows, -1)
        for number, (loop, count) in enumerate(zip(self.loops, self.trips, strict=True)):
            if depends(use, loop):
                depth = np.where(count > 1, number, depth)
        return depth

    def price(self, issue: int) -> tuple[Floats, Floats]:
        """Per row, predicted cycles (ties broken) and moved bytes."""
        space, cells, at = self.space, self.cells, self.at
        tiles = np.ones(space.rows)
        for count in self.trips:
            tiles = tiles * count
        share = cells.count / np.maximum(cells.sum(cells.count, space.rows)[at], 1)
        innermost = np.full(space.rows, -1)
        for number, count in enumerate(self.trips):
            innermost = np.where(count > 1, number, innermost)
        left = self._left_over(innermost)
        total = np.zeros(space.rows)
        before = np.ones(space.rows)
        for number, count in enumerate(self.trips):
            times = (count - 1) * before
            before = before * count
            if not (times > 0).any():
                continue
            step = self._step(number, np.where(innermost[at] == number, 0.0, left), issue)
            total = total + times * cells.sum(share * step, space.rows)
        whole = np.zeros(space.rows)
        whole[at[::-1]] = cells.cycles[::-1]  # the first cell of a row is that of its full tiles
        total = total + whole + cells.sum(share * self._ends(), space.rows)
        moved = self._moved()
        return total + TIE * moved / self.bandwidth, moved

    def _time(self, use: Use) -> Floats:
        """Cycles that one transfer occupies its engine."""
        assert use.move is not None
        wait = use.move.latency / use.move.in_flight if use.move.in_flight == 1 else 0.0
        return wait + self.bytes[use.name] / use.move.bytes_per_cycle

    def _moves_in(self, use: Use, number: int) -> Floats:
        """1 where a tile after an advance of loop ``number`` moves the operand, else 0."""
        return (self.depth[use.name] >= number)[self.at].astype(np.float64)

    def _left_over(self, innermost: Ints) -> Floats:
        """Time that the load queue has left beside compute when the innermost loop advances."""
        busy = np.zeros(len(self.at))
        for use in self.loads:
            moves = (self.depth[use.name] >= innermost)[self.at]
            busy = busy + moves * self._time(use)
        return np.maximum(self.cells.cycles - busy, 0.0)

    def _step(self, number: int, left: Floats, issue: int) -> Floats:
        """Cycles from tile to tile when loop ``number`` advances."""
        compute, at = self.cells.cycles, self.at
        slots = {name: column[at] for name, column in self.arrangement.slots.items()}
        moves = {use.name: self._moves_in(use, number) for use in self.loads + self.stores}
        queue = sum((moves[u.name] * self._time(u) for u in self.loads), np.zeros(len(at)))
        flow = (
            sum((moves[u.name] * self.bytes[u.name] for u in self.loads), np.zeros(len(at)))
            / self.bandwidth
        )
        ahead = np.full(len(at), 9.0)
        for use in self.loads:
            ahead = np.where(moves[use.name] > 0, np.minimum(ahead, slots[use.name]), ahead)
        step = np.maximum(compute, issue * (1 + sum(moves.values())))
        stored = np.zeros(len(at))
        for use in self.stores:
            assert use.move is not None
            bytes_time = moves[use.name] * self.bytes[use.name] / self.bandwidth
            stored = stored + bytes_time
            one = moves[use.name] * use.move.latency + bytes_time
            step = np.maximum(step, one)
            step = np.maximum(step, moves[use.name] * (compute + one) / slots[use.name])
        # A store delays the loads whose bytes flow at the same time.
        busy = queue + stored * flow / np.maximum(queue, 1.0)
        step = np.maximum(step, flow + stored)
        for use in self.loads:
            assert use.move is not None
            behind = np.zeros(len(at))
            for other in self.loads:
                behind = behind + self._behind(use, other) * moves[other.name] * self._time(other)
            if use.move.in_flight > 1:
                behind = behind + use.move.latency
            cycle = (behind + compute) * moves[use.name] / slots[use.name]
            step = np.maximum(step, cycle)
        borrowed = np.maximum(np.minimum(ahead, 4.0) - 1.0, 0.0) * left
        return np.maximum(step, busy - borrowed)

    def _behind(self, use: Use, other: Use) -> Floats:
        """1 where ``other`` is ``use`` or comes after it among the moves of a tile, else 0."""
        mine, its = self.depth[use.name][self.at], self.depth[other.name][self.at]
        later = self.loads.index(other) >= self.loads.index(use)
        return ((its > mine) | ((its == mine) & later)).astype(np.float64)

    def _ends(self) -> Floats:
        """The first tile's loads and the last tile's store."""
        ends = np.zeros(len(self.at))
        for use in self.loads + self.stores:
            assert use.move is not None
            ends = ends + self._time(use)
            if use.move.in_flight > 1 and (use.output or use is self.loads[0]):
                ends = ends + use.move.latency
        return ends

    def _moved(self) -> Floats:
        """Per row, bytes moved in all."""
        total = np.zeros(self.space.rows)
        for use in self.uses:
            host = next((u for u in self.uses if u.name == use.host), use)
            again = np.ones(self.space.rows)
            depth = self.depth[host.name]
            for number, (loop, count) in enumerate(zip(self.loops, self.trips, strict=True)):
                if not depends(use, loop):
                    again = again * np.where(depth >= number, count, 1.0)
            total = total + again * self.space.total(use) * use.operand.element_bytes
        return total

"""Schedules of two levels in one pipeline: their commands, on the timing core.

What a closed form takes apart (an outer tile's loads, the inner tiles' within it), the engines do
in one order: the next outer tile's loads stand in front of the inner tiles' in the same queue, wait
there for a slot, and share main memory with the results that leave. The commands of a schedule are
those of a chain of one kernel (chains/commands.py), which is cut once more in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, prod

from tilewright.errors import TilewrightError
from tilewright.machine import Machine, Move, Primitive
from tilewright.planning.chains.commands import Commands
from tilewright.planning.chains.cost import Tiling
from tilewright.planning.chains.inner import Inner
from tilewright.planning.chains.tiles import Tile
from tilewright.planning.chains.units import Places, units_of
from tilewright.planning.cost.columns import cost_of
from tilewright.planning.cost.own import row_instructions
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Schedule

COMPUTES = 20_000
"""Computes of a schedule whose commands are timed, at most."""


@dataclass
class LevelCommands:
    """The commands of schedules of two levels of one kernel on one primitive."""

    kernel: Kernel
    machine: Machine
    primitive: Primitive

    def __post_init__(self) -> None:
        self.places: Places | None = None
        self.tiles: dict[tuple[int, ...], Tile] = {}
        """By sizes: many schedules have an outer tile in common."""
        try:
            units = units_of(self.kernel, self.machine, (self.primitive,))
            self.places = Places(units, self.machine)
        except TilewrightError:
            # Instances of fixed sizes have no chains; the closed form says what they cost.
            self.places = None

    def price(self, schedule: Schedule, limit: float = inf) -> tuple[float, int] | None:
        """Cycles, and bytes through main memory; None for a schedule that is not timed so.

        Where the cost (columns.py) cannot be below ``limit`` nothing is timed: the cycles are then
        a lower bound.
        """
        if self.places is None or len(schedule.levels) != 2:
            return None
        tiling = self._tiling(self.places, schedule)
        if self._computes(tiling) > COMPUTES:
            return None
        try:
            totals = {index: int(sizes.sum()) for index, sizes in tiling.transfers.items()}
            moved, least = self._moved(tiling, totals), self._least(tiling, totals)
            if cost_of(least, moved, self.machine) > limit:
                return least, moved
            return Commands(tiling).cycles(), moved
        except TilewrightError:
            return None  # An axis changes with two loops, such as groups and their channels.

    def _least(self, tiling: Tiling, totals: Mapping[int, int]) -> float:
        """Cycles that the commands take at least: those of the busiest engine, and of the one that
        computes also those before its first command and behind its last one."""
        compute = int(tiling.computing(0).sum())
        busy = {self.primitive.engine: float(compute)}
        for index, size in totals.items():
            move = _move(tiling, index)
            busy[move.engine] = busy.get(move.engine, 0.0) + size / move.bytes_per_cycle
        if row_instructions(self.machine) is not None:
            return max(busy.values())  # A compute may begin before its operands are all there.
        ends = self._until_first(tiling) + self._after_last(tiling)
        return max(*busy.values(), ends + compute)

    def _until_first(self, tiling: Tiling) -> float:
        """Cycles until the first compute may begin, at least: its operands come on their ways, and
        those that an engine moves one after the other."""
        places, ends = tiling.places.all, [0.0]
        queues: dict[str, tuple[float, float, float]] = {}
        for index in tiling.places.reads[0]:
            way, queued = index, 0.0
            while way is not None:
                place = places[way]
                move = place.fill
                assert move is not None
                if way in tiling.transfers:  # Elsewhere it comes with another operand.
                    flow = tiling.transfers[way][0] / move.bytes_per_cycle
                    latency, flows, rest = queues.get(move.engine, (inf, 0.0, inf))
                    queues[move.engine] = (
                        min(latency, move.latency),
                        flows + flow,
                        min(rest, queued),
                    )
                    queued += move.latency + flow
                way = place.source
            ends.append(queued)
        return max(*ends, *(sum(queue) for queue in queues.values()))

    def _after_last(self, tiling: Tiling) -> float:
        """Cycles from the last compute to the end, at least: its result leaves."""
        total, way = 0.0, tiling.places.makes[0]
        while way is not None:
            place = tiling.places.all[way]
            assert place.flush is not None
            total += place.flush.latency
            total += tiling.transfers[way][-1] / place.flush.bytes_per_cycle
            way = place.target
        return total

    def _moved(self, tiling: Tiling, totals: Mapping[int, int]) -> int:
        """Bytes through main memory; ``Tiling.moved_bytes`` is of tiles with one inner tile."""
        total = 0
        for index, size in totals.items():
            move = _move(tiling, index)
            total += size if self.machine.main in (move.source, move.target) else 0
        return total

    def _tiling(self, places: Places, schedule: Schedule) -> Tiling:
        outer, inner = schedule.levels
        sizes = {d: outer.size(d, n) for d, n in self.kernel.anchor.extents.items()}
        parts = {dim: inner.size(dim, sizes[dim]) for dim in inner.order}
        tile = self.tiles.setdefault(tuple(sizes.values()), Tile(places, sizes))
        tiling = Tiling(tile, self.machine, outer.order, (Inner(parts, inner.order),))
        staged = {(name, memory): slots for name, memory, slots in schedule.staged}
        for index in range(len(places.all)):
            name, memory = tiling.key(index)
            slots = staged.get((name, memory), 1) if memory else schedule.slots(name)
            tiling.slots[name, memory] = slots
        return tiling

    def _computes(self, tiling: Tiling) -> int:
        inner = tiling.inner[0].sizes
        parts = [-(-tiling.shape.sizes[dim] // size) for dim, size in inner.items()]
        return tiling.count * prod(parts)


def _move(tiling: Tiling, index: int) -> Move:
    """The move that fills or empties a buffer."""
    place = tiling.places.all[index]
    move = place.fill or place.flush
    assert move is not None
    return move


__all__ = ["LevelCommands"]

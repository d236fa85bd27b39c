"""Schedules of two levels in one pipeline: their commands, on the timing core.

What a closed form takes apart (an outer tile's loads, the inner tiles' within it), the engines do
in one order: the next outer tile's loads stand in front of the inner tiles' in the same queue, wait
there for a slot, and share main memory with the results that leave. The commands of a schedule are
those of a chain of one kernel (chain_commands.py), which is cut once more in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilewright.errors import TilewrightError
from tilewright.machine import Machine, Primitive
from tilewright.planning.chain_commands import Commands
from tilewright.planning.chain_cost import Tiling
from tilewright.planning.chain_inner import Inner
from tilewright.planning.chain_tiles import Tile
from tilewright.planning.chain_units import Places, units_of
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

    def price(self, schedule: Schedule) -> tuple[float, int] | None:
        """Cycles, and bytes through main memory; None for a schedule that is not timed so."""
        if self.places is None or len(schedule.levels) != 2:
            return None
        tiling = self._tiling(self.places, schedule)
        if self._computes(tiling) > COMPUTES:
            return None
        try:
            return Commands(tiling).cycles(), self._moved(tiling)
        except TilewrightError:
            return None  # An axis changes with two loops, such as groups and their channels.

    def _moved(self, tiling: Tiling) -> int:
        """Bytes through main memory; ``Tiling.moved_bytes`` is of tiles with one inner tile."""
        main, total = self.machine.main, 0
        for index, sizes in tiling.transfers.items():
            move = tiling.places.all[index].fill or tiling.places.all[index].drain
            if move is not None and main in (move.source, move.target):
                total += int(sizes.sum())
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


__all__ = ["LevelCommands"]

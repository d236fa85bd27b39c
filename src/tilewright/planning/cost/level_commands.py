"""Schedules of two levels in one pipeline: their commands, on the timing core.

What a closed form takes apart (an outer tile's loads, the inner tiles' within it), the engines do
in one order: the next outer tile's loads stand in front of the inner tiles' in the same queue, wait
there for a slot, and share main memory with the results that leave. The commands of a schedule are
those of a chain of one kernel (chains/commands.py), which is cut once more in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, prod

from tilewright.errors import TilewrightError
from tilewright.machine import Machine, Primitive
from tilewright.planning.chains.commands import Commands
from tilewright.planning.chains.cost import Tiling
from tilewright.planning.chains.inner import Inner
from tilewright.planning.chains.tiles import Tile
from tilewright.planning.chains.units import Places, units_of
from tilewright.planning.cost.columns import cost_of
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
        outer, inner = schedule.levels
        sizes = {d: outer.size(d, n) for d, n in self.kernel.anchor.extents.items()}
        parts = {dim: inner.size(dim, sizes[dim]) for dim in inner.order}
        tile = Tile(self.places, sizes)
        tiling = Tiling(tile, self.machine, outer.order, (Inner(parts, inner.order),))
        if tiling.count * prod(-(-sizes[dim] // size) for dim, size in parts.items()) > COMPUTES:
            return None
        staged = {(name, memory): slots for name, memory, slots in schedule.staged}
        for name, memory in self.places.keys:
            slots = staged.get((name, memory), 1) if memory else schedule.slots(name)
            tiling.slots[name, memory] = slots
        try:
            least, moved = tiling.bound, tiling.moved_bytes
            if cost_of(least, moved, self.machine) > limit:
                return least, moved
            return Commands(tiling).cycles(), moved
        except TilewrightError:
            return None  # An axis changes with two loops, such as groups and their channels.

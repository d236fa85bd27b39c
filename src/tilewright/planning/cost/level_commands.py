"""Schedules of several levels in one pipeline: their commands, on the timing core.

What a closed form takes apart (an outer tile's loads, the inner tiles' within it), the engines do
in one order: the next outer tile's loads stand in front of the inner tiles' in the same queue, wait
there for a slot, and share main memory with the results that leave. The commands of a schedule are
those of a chain of one kernel (chains/commands.py), whose tiles are cut further in the same way.
"""

from __future__ import annotations

from math import inf

from tilewright.errors import TilewrightError
from tilewright.machine import Machine
from tilewright.planning.chains.commands import Commands
from tilewright.planning.chains.cost import Tiling
from tilewright.planning.chains.inner import Inner
from tilewright.planning.chains.tiles import Tile
from tilewright.planning.chains.units import Places
from tilewright.planning.cost.columns import cost_of
from tilewright.planning.schedule import Schedule

COMPUTES = 20_000
"""Computes of a schedule whose commands are timed, at most."""


def price_levels(
    places: Places, machine: Machine, schedule: Schedule, limit: float = inf
) -> tuple[float, int] | None:
    """Cycles of a schedule of several levels, and bytes through main memory; None for one that is
    not timed so.

    Where the cost (columns.py) cannot be below ``limit`` nothing is timed: the cycles are then a
    lower bound.
    """
    outer, *rest = schedule.levels
    extents = places.units[-1].kernel.anchor.extents
    sizes = {dim: outer.size(dim, extent) for dim, extent in extents.items()}
    around, count = dict(sizes), 1
    loops: list[tuple[str, int]] = []
    ends: list[int] = []
    for level in rest:
        for dim in level.order:
            step = level.size(dim, around[dim])
            loops.append((dim, step))
            count *= -(-around[dim] // step)
            around[dim] = step
        ends.append(len(loops))
    inner = Inner(tuple(loops), tuple(ends[:-1]))
    tiling = Tiling(Tile(places, sizes), machine, outer.order, (inner,))
    if not rest or tiling.count * count > COMPUTES:
        return None
    staged = {(name, memory): slots for name, memory, slots in schedule.staged}
    for name, memory in places.keys:
        slots = staged.get((name, memory), 1) if memory else schedule.slots(name)
        tiling.slots[name, memory] = slots
    try:
        least, moved = tiling.bound, tiling.moved_bytes
        if cost_of(least, moved, machine) > limit:
            return least, moved
        return Commands(tiling).cycles(), moved
    except TilewrightError:
        return None  # An axis changes with two loops, such as groups and their channels.

"""The ``greedy`` planner: the partitioning of DLIR (the thesis' section 5.2.5.3, figure 5.7).

A tile starts small. Step by step the dim is made larger whose growth leaves the least memory-access
time, until no dim can grow without a tile overflowing its memory. The access time is that of all
transfers one after the other, bytes / bandwidth + latency each; compute does not count, "as the
size of segments has little influence on it". With double buffering the memories count as half their
size. The rule fills the memories in a few dozen steps where an exhaustive search looks at many
thousand tilings (161.44 times fewer on AlexNet, the thesis says).

What the thesis leaves open is decided here: a dim grows to the next size with fewer tiles (sizes in
between need as many); sliding windows stay whole while anything fits; the loops take the order with
the least access time, as a programmer who writes them would; a tie goes to the dim that the
operator names first; where not even the smallest tile fits twice, buffers are single; what a kernel
loads once, whole, has one buffer and counts once; a linear move makes a transfer of each run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tilewright.machine import Machine, Primitive
from tilewright.planning.cost.bounds import granule_bound, physical_bound
from tilewright.planning.cost.pipeline import Pipeline
from tilewright.planning.domain import Kernel
from tilewright.planning.plan import Budget, Plan, Timer, timed
from tilewright.planning.planners.schedules import agreeing, cheapest, schedule_of
from tilewright.planning.space.cells import cells_of
from tilewright.planning.space.footprint import Floats, Ints, Use, uses_of
from tilewright.planning.space.nests import (
    Arrangement,
    Nest,
    groups_of,
    moves_of,
    nests_of,
    trips_along,
    trips_of,
)
from tilewright.planning.space.sizes import EFFORTS, tile_sizes
from tilewright.planning.space.tilings import Space, no_tile_fits, uncrossed

if TYPE_CHECKING:
    from tilewright.planning.planners.registry import Made, Request

ENOUGH = 1 << 30
"""Slots of tilings that stay as a whole."""

AUTOMATIC = 0
"""Buffers single or double, whichever is faster."""


@dataclass(frozen=True)
class Greedy:
    """DLIR's partitioning with its options; ``plan(..., search=Greedy())``."""

    start: str = "one"
    """The first sizes of tiles: ``one``, as published, or ``granule``, the machine's own rounding,
    by which they then also grow."""
    buffers: int = AUTOMATIC
    """2: double buffering in memories of half the size; 1: single; ``AUTOMATIC``: the faster of
    the two, kernel by kernel. Where latency is high, fully connected layers lose by smaller tiles
    more than they gain by overlap."""

    def __call__(
        self,
        kernel: Kernel,
        machine: Machine,
        *,
        timer: Timer | None = None,
        budget: Budget | None = None,
    ) -> Plan:
        """The plan of a kernel whose primitives keep operands in software-managed memory.

        ``Plan.candidates`` counts the steps: tilings whose access time was asked for. ``budget``
        is not used. Raises TilewrightError when no primitive computes the kernel or no tile fits.
        """
        every = (2, 1) if self.buffers == AUTOMATIC else (self.buffers,)
        return cheapest(partial(self._plan, kernel, machine, slots, timer) for slots in every)

    def _plan(
        self, kernel: Kernel, machine: Machine, slots: int, timer: Timer | None
    ) -> list[Plan]:
        """The best primitive's plan with ``slots`` slots, or with fewer where they do not fit."""
        best = cheapest(
            partial(self._partition, kernel, machine, primitive, slots)
            for primitive in agreeing(kernel, machine)
        )
        return [best if timer is None else timed(best, kernel, timer)]

    def _partition(
        self, kernel: Kernel, machine: Machine, primitive: Primitive, most: int
    ) -> list[Plan]:
        """The plan on one primitive."""
        uses = uses_of(kernel, machine, primitive)
        steps = 0
        for slots in range(most, 0, -1):
            for cut, small in EFFORTS:
                granular = self.start == "granule"
                sizes = tile_sizes(kernel, primitive, uses, cut=cut, small=small, granular=granular)
                space = uncrossed(kernel, machine, primitive, uses, sizes)
                tiling, tried = grow(space, slots)
                steps += tried
                if tiling is not None:
                    return [_plan_of(tiling, slots, steps)]
        raise no_tile_fits(kernel, machine, (use.memory for use in uses))


def greedy(request: Request) -> Made:
    """The planner with the options that are asked for."""
    return request.of(Greedy(request.options.get("start", "one"), request.buffers(AUTOMATIC)))


def grow(space: Space, slots: int) -> tuple[Space | None, int]:
    """The tiling (a space of one row) at which no dim can grow further, and the steps to it.

    None if not even the smallest tile fits ``slots`` times.
    """
    at = {dim: len(sizes) - 1 for dim, sizes in space.sizes.items()}
    tiling, steps = _rows(space, [at]), 1
    if most_slots(tiling)[0] < slots:
        return None, steps
    names = [dim for dim in space.extents if dim in at]
    # Sizes are in descending order: the next larger one stands before.
    while grown := [at | {dim: at[dim] - 1} for dim in names if at[dim]]:
        steps += len(grown)
        larger = _rows(space, grown)
        fits = most_slots(larger) >= slots
        if not fits.any():
            break
        cycles, _, _ = access_cycles(larger)
        best = int(np.argmin(np.where(fits, cycles, np.inf)))
        at, tiling = grown[best], larger.take(np.array([best]))
    return tiling, steps


def access_cycles(space: Space) -> tuple[Floats, list[Nest], Ints]:
    """Per row, cycles of all transfers one after the other, in the best order of the loops.

    Also the orders that were looked at, and which of them is best in each row.
    """
    groups, nests = groups_of(space), nests_of(space, single_level=True)
    trips = np.array([trips_along(space, group.dims) for group in groups])
    number = {group.dims: n for n, group in enumerate(groups)}
    loops = np.array([[number[loop.group.dims] for loop in nest.loops] for nest in nests], np.int64)
    counts = trips[loops]
    runs, many = np.cumprod(counts, axis=1), counts > 1
    total = np.zeros((len(nests), space.rows))
    for use in space.uses:
        if use.move is None:
            continue
        host = _travelling_with(use, space)
        depends = np.array([host.name in group.users for group in groups])
        # Runs grow inwards: the innermost loop that moves the box has most of them.
        moving = depends[loops][:, :, None] & many
        moves = np.where(moving, runs, 1).max(axis=1, initial=1)
        boxes = np.prod(trips[[n for n in loops[0] if depends[n]]], axis=0)
        once = space.total(use) * space.bytes_per_element(use)
        total = total + once * (moves / boxes) / use.move.bytes_per_cycle
        if not use.host:
            latency = use.move.latency / use.move.in_flight + space.further_latency(use)
            total = total + moves * latency
    return total.min(axis=0), nests, total.argmin(axis=0)


def _travelling_with(use: Use, space: Space) -> Use:
    """The operand in whose transfer an operand moves: mostly itself."""
    return next((other for other in space.uses if other.name == use.host), use)


def _rows(space: Space, tilings: list[dict[str, int]]) -> Space:
    """The space with tilings that are given by the index of each dim's size."""
    index = {dim: np.array([at[dim] for at in tilings], np.int64) for dim in space.sizes}
    return replace(space, index=index)


def most_slots(space: Space) -> Ints:
    """Per row, how often every memory holds its tiles, those that stay once."""
    most = np.where(space.allowed(), ENOUGH, 0)
    for memory in {use.memory.name: use.memory for use in space.uses}.values():
        if memory.room is None:
            continue
        once, again = np.zeros(space.rows, np.int64), np.zeros(space.rows, np.int64)
        for use in (use for use in space.uses if use.memory.name == memory.name):
            parts = space.trips_of(sorted(_travelling_with(use, space).operand.dims))
            size = space.slot_bytes(use)
            once += size
            again += np.where(parts > 1, size, 0)
        slots = np.where(again > 0, 1 + (memory.room - once) // np.maximum(again, 1), ENOUGH)
        most = np.minimum(most, np.where(once <= memory.room, slots, 0))
    return most


def _plan_of(tiling: Space, slots: int, steps: int) -> Plan:
    """The plan of the tiling that was grown, priced as the exact planner prices its own."""
    kernel, machine, primitive = tiling.kernel, tiling.machine, tiling.primitive
    _, nests, best = access_cycles(tiling)
    nest = nests[int(best[0])]
    trips = trips_of(tiling, nest, {})
    by_moves = [use for use in tiling.uses if use.move is not None and not use.host]
    # What is moved once needs no second slot.
    buffers = {
        use.name: np.where(moves_of(use, nest, trips) > 1, slots, 1) * np.ones(1, np.int64)
        for use in by_moves
    }
    arrangement = Arrangement(nest, np.ones(1, np.bool_), trips, {}, buffers)
    cycles, moved = Pipeline(tiling, cells_of(tiling), arrangement).cycles_and_bytes()
    return Plan(
        schedule=schedule_of(tiling, arrangement, 0),
        predicted_cycles=float(cycles[0]),
        moved_bytes=int(moved[0]),
        physical_bound=physical_bound(kernel, machine, primitive),
        granule_bound=granule_bound(kernel, machine, primitive),
        candidates=steps,
        priced=1,
        planner="greedy",
    )

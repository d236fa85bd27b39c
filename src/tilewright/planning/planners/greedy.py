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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.machine import Machine, Primitive
from tilewright.planning.bounds import granule_bound, physical_bound
from tilewright.planning.cells import cells_of
from tilewright.planning.domain import Kernel
from tilewright.planning.footprint import Bools, Floats, Ints, Use, uses_of
from tilewright.planning.nests import (
    Arrangement,
    Nest,
    depends,
    groups_of,
    moves_of,
    nests_of,
    trips_along,
    trips_of,
)
from tilewright.planning.pipeline import Pipeline
from tilewright.planning.plan import Budget, Plan, Timer
from tilewright.planning.planners.schedules import agreeing, schedule_of
from tilewright.planning.sizes import EFFORTS, tile_sizes
from tilewright.planning.space import Space, no_tile_fits, uncrossed

AUTOMATIC = 0
"""Buffers single or double, whichever is faster."""


@dataclass(frozen=True)
class Greedy:
    """DLIR's partitioning with its options; ``plan(..., search=Greedy())``."""

    start: str = "one"
    """Where tiles start: ``one``, as published, or ``granule``, the machine's own rounding, by
    which they then also grow."""
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
        begin = perf_counter()
        plans = [
            self._plan(kernel, machine, slots, timer)
            for slots in ((2, 1) if self.buffers == AUTOMATIC else (self.buffers,))
        ]
        return replace(
            min(plans, key=lambda found: found.cycles),
            candidates=sum(found.candidates for found in plans),
            priced=sum(found.priced for found in plans),
            timed=sum(found.timed for found in plans),
            seconds=perf_counter() - begin,
        )

    def _plan(self, kernel: Kernel, machine: Machine, slots: int, timer: Timer | None) -> Plan:
        """The best primitive's plan with so many slots, or fewer where they do not fit."""
        found: list[Plan] = []
        failures: list[TilewrightError] = []
        for primitive in agreeing(kernel, machine):
            try:
                found.append(self._partition(kernel, machine, primitive, slots))
            except TilewrightError as error:
                failures.append(error)
        if not found:
            raise failures[0]
        best = min(found, key=lambda plan: plan.predicted_cycles)
        cycles = None if timer is None else timer(kernel, best.schedule)
        return replace(
            best,
            physical_bound=min(plan.physical_bound for plan in found),
            granule_bound=min(plan.granule_bound for plan in found),
            candidates=sum(plan.candidates for plan in found),
            priced=len(found),
            timed_cycles=cycles,
            timed=0 if timer is None else 1,
        )

    def _partition(self, kernel: Kernel, machine: Machine, primitive: Primitive, most: int) -> Plan:
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
                    return _plan_of(tiling, slots, steps)
        raise no_tile_fits(kernel, machine, uses)


def grow(space: Space, slots: int) -> tuple[Space | None, int]:
    """The tiling (a space of one row) at which no dim can grow further, and the steps to it.

    None if not even the smallest tile fits ``slots`` times.
    """
    at = {dim: len(sizes) - 1 for dim, sizes in space.sizes.items()}
    steps = 1
    if not _fits(_rows(space, [at]), slots)[0]:
        return None, steps
    names = [dim for dim in space.extents if dim in at]
    orders: Orders = {}
    while True:
        # Sizes are in descending order: the next larger one stands before.
        grown = [at | {dim: at[dim] - 1} for dim in names if at[dim]]
        steps += len(grown)
        if not grown:
            return _rows(space, [at]), steps
        rows = _rows(space, grown)
        fits = _fits(rows, slots)
        if not fits.any():
            return _rows(space, [at]), steps
        cost = np.where(fits, access_cycles(rows, orders)[0], np.inf)
        at = grown[int(np.argmin(cost))]


Orders = dict[tuple[bool, ...], list[Nest]]
"""Orders of the loops by which groups of dims are cut at all."""


def access_cycles(space: Space, known: Orders | None = None) -> tuple[Floats, list[Nest], Ints]:
    """Per row, cycles of all transfers one after the other, in the best order of the loops.

    Also the orders that were looked at, and which of them is best in each row. ``known`` keeps
    orders for other tilings of the space.
    """
    trips = {group.dims: trips_along(space, group.dims) for group in groups_of(space)}
    cut = tuple(bool((count > 1).any()) for count in trips.values())
    known = {} if known is None else known
    if cut not in known:
        known[cut] = [nest for nest in nests_of(space) if nest.grown is None]
    nests = known[cut]
    moved = [_Moved.of(space, use, nests[0], trips) for use in space.uses if use.move is not None]
    costs = np.array([_access_cycles(space, nest, moved, trips) for nest in nests])
    return costs.min(axis=0), nests, costs.argmin(axis=0)


Trips = Mapping[tuple[str, ...], Floats]
"""Trips of the loops over groups of dims."""


@dataclass(frozen=True)
class _Moved:
    """What the transfers of an operand take in whatever order of the loops."""

    host: Use
    """The operand in whose transfer it moves: mostly itself."""
    bytes: Floats
    """When every distinct box is moved once."""
    per_cycle: float
    boxes: Floats
    latency: Floats | None
    """Of a box; None for one that travels with another."""

    @classmethod
    def of(cls, space: Space, use: Use, nest: Nest, trips: Trips) -> _Moved:
        """The transfers of an operand that is moved; any order has the same loops."""
        assert use.move is not None
        host = _travelling_with(use, space)
        boxes = np.ones(space.rows)
        for loop in nest.loops:
            if depends(host, loop):
                boxes = boxes * trips[loop.group.dims]
        bytes_ = space.total(use) * space.bytes_per_element(use)
        latency = None
        if not use.host:
            latency = use.move.latency / use.move.in_flight + space.further_latency(use)
        return cls(host, bytes_, use.move.bytes_per_cycle, boxes, latency)


def _access_cycles(space: Space, nest: Nest, moved: Sequence[_Moved], trips: Trips) -> Floats:
    counts = tuple(trips[loop.group.dims] for loop in nest.loops)
    times: dict[str, Floats] = {}
    total = np.zeros(space.rows)
    for one in moved:
        if one.host.name not in times:
            times[one.host.name] = moves_of(one.host, nest, counts) * np.ones(space.rows)
        moves = times[one.host.name]
        total = total + one.bytes * (moves / one.boxes) / one.per_cycle
        if one.latency is not None:
            total = total + moves * one.latency
    return total


def _travelling_with(use: Use, space: Space) -> Use:
    """The operand in whose transfer an operand moves: mostly itself."""
    return next((other for other in space.uses if other.name == use.host), use)


def _rows(space: Space, tilings: list[dict[str, int]]) -> Space:
    """The space with these tilings."""
    index = {dim: np.array([at[dim] for at in tilings], np.int64) for dim in space.sizes}
    return replace(space, index=index)


def _fits(space: Space, slots: int) -> Bools:
    """Per row, whether every memory holds its tiles ``slots`` times, those that stay once."""
    fits = space.allowed()
    for memory in {use.memory.name: use.memory for use in space.uses}.values():
        if memory.room is None or memory.managed == "hardware":
            continue
        used = np.zeros(space.rows, np.int64)
        for use in (use for use in space.uses if use.memory == memory):
            parts = space.trips_of(sorted(_travelling_with(use, space).operand.dims))
            used += space.slot_bytes(use) * np.where(parts > 1, slots, 1)
        fits &= used <= memory.room
    return fits


def _plan_of(tiling: Space, slots: int, steps: int) -> Plan:
    """The plan of the tiling that was grown, priced as the exact planner prices its own."""
    kernel, machine, primitive = tiling.kernel, tiling.machine, tiling.primitive
    _, nests, best = access_cycles(tiling)
    nest = nests[int(best[0])]
    trips = trips_of(tiling, nest, {})
    own = [use for use in tiling.uses if use.move is not None and not use.host]
    # What is moved once needs no second slot.
    buffers = {
        use.name: np.where(moves_of(use, nest, trips) > 1, slots, 1) * np.ones(1, np.int64)
        for use in own
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
        seconds=0.0,
        planner="greedy",
    )

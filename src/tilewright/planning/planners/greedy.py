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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.machine import Machine, Primitive
from tilewright.planning.cost.bounds import granule_bound, physical_bound
from tilewright.planning.cost.pipeline import Pipeline
from tilewright.planning.domain import Kernel
from tilewright.planning.plan import Budget, Plan, Timer
from tilewright.planning.planners.schedules import agreeing, schedule_of
from tilewright.planning.space.cells import cells_of
from tilewright.planning.space.footprint import Bools, Floats, Ints, Use, uses_of
from tilewright.planning.space.nests import (
    Arrangement,
    Group,
    Nest,
    groups_of,
    moves_of,
    nests_of,
    trips_along,
    trips_of,
)
from tilewright.planning.space.sizes import EFFORTS, tile_sizes
from tilewright.planning.space.tilings import Space, no_tile_fits, uncrossed

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
        tilings: Tilings | None = None,
    ) -> Plan:
        """The plan of a kernel whose primitives keep operands in software-managed memory.

        ``Plan.candidates`` counts the steps: tilings whose access time was asked for. ``budget``
        is not used; ``tilings`` spares further plans of the kernel what one has found out. Raises
        TilewrightError when no primitive computes the kernel or no tile fits.
        """
        begin = perf_counter()
        tilings = {} if tilings is None else tilings
        plans = [
            self._plan(kernel, machine, slots, timer, tilings)
            for slots in ((2, 1) if self.buffers == AUTOMATIC else (self.buffers,))
        ]
        return replace(
            min(plans, key=lambda candidate: candidate.cycles),
            candidates=sum(candidate.candidates for candidate in plans),
            priced=sum(candidate.priced for candidate in plans),
            timed=sum(candidate.timed for candidate in plans),
            seconds=perf_counter() - begin,
        )

    def _plan(
        self, kernel: Kernel, machine: Machine, slots: int, timer: Timer | None, tilings: Tilings
    ) -> Plan:
        """The best primitive's plan with so many slots, or fewer where they do not fit."""
        plans: list[Plan] = []
        failures: list[TilewrightError] = []
        for primitive in agreeing(kernel, machine):
            try:
                plans.append(self._partition(kernel, machine, primitive, slots, tilings))
            except TilewrightError as error:
                failures.append(error)
        if not plans:
            raise failures[0]
        best = min(plans, key=lambda plan: plan.predicted_cycles)
        cycles = None if timer is None else timer(kernel, best.schedule)
        return replace(
            best,
            physical_bound=min(plan.physical_bound for plan in plans),
            granule_bound=min(plan.granule_bound for plan in plans),
            candidates=sum(plan.candidates for plan in plans),
            priced=len(plans),
            timed_cycles=cycles,
            timed=0 if timer is None else 1,
        )

    def _partition(
        self, kernel: Kernel, machine: Machine, primitive: Primitive, most: int, tilings: Tilings
    ) -> Plan:
        """The plan on one primitive."""
        uses = uses_of(kernel, machine, primitive)
        steps = 0
        for slots in range(most, 0, -1):
            for cut, small in EFFORTS:
                key = primitive.name, self.start, cut, small
                if key not in tilings:
                    granular = self.start == "granule"
                    sizes = tile_sizes(
                        kernel, primitive, uses, cut=cut, small=small, granular=granular
                    )
                    space = uncrossed(kernel, machine, primitive, uses, sizes)
                    tilings[key] = Known(space)
                known = tilings[key]
                tiling, tried = grow(known.space, slots, known)
                steps += tried
                if tiling is not None:
                    return _plan_of(tiling, slots, steps)
        raise no_tile_fits(kernel, machine, uses)


def grow(space: Space, slots: int, known: Known | None = None) -> tuple[Space | None, int]:
    """The tiling (a space of one row) at which no dim can grow further, and the steps to it.

    None if not even the smallest tile fits ``slots`` times. ``known`` is what has been found out
    about tilings of the space.
    """
    known = known or Known(space)
    at = {dim: len(sizes) - 1 for dim, sizes in space.sizes.items()}
    steps = 1
    if not known.fits([at], slots)[0]:
        return None, steps
    names = [dim for dim in space.extents if dim in at]
    while True:
        # Sizes are in descending order: the next larger one stands before.
        grown = [at | {dim: at[dim] - 1} for dim in names if at[dim]]
        steps += len(grown)
        fits = known.fits(grown, slots) if grown else np.zeros(0, np.bool_)
        if not fits.any():
            return _rows(space, [at]), steps
        at = grown[int(np.argmin(np.where(fits, known.cycles(grown), np.inf)))]


Tiling = dict[str, int]
"""By dim, the index of its size."""

Key = tuple[int, ...]


class Known:
    """A cache of results for single tilings of a space: growing with one slot meets those of
    two."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.orders = Orders(space)
        self._trips = {
            dim: (-(-space.extents[dim] // sizes)).tolist() for dim, sizes in space.sizes.items()
        }
        self._slots: dict[Key, int] = {}
        self._cycles: dict[tuple[Cut, Key], float] = {}
        self._moved: dict[str, dict[Key, tuple[float, float]]] = {}

    def fits(self, tilings: list[Tiling], slots: int) -> Bools:
        """Return True for each tiling whose tiles all memories hold ``slots`` times, those that
        stay once."""
        keys = [tuple(tiling.values()) for tiling in tilings]
        new = [n for n, key in enumerate(keys) if key not in self._slots]
        if new:
            most = most_slots(_rows(self.space, [tilings[n] for n in new]))
            self._slots |= {keys[n]: count for n, count in zip(new, most.tolist(), strict=True)}
        return np.array([self._slots[key] >= slots for key in keys])

    def cycles(self, tilings: list[Tiling]) -> Floats:
        """Access cycles of each, in the orders of the loops by which any of them is cut."""
        cut = tuple(
            any(self._trips[dim][tiling[dim]] > 1 for dim in group.dims for tiling in tilings)
            for group in self.orders.groups
        )
        keys = [(cut, tuple(tiling.values())) for tiling in tilings]
        new = [n for n, key in enumerate(keys) if key not in self._cycles]
        if new:
            rows, others = _rows(self.space, tilings), [tilings[n] for n in new]
            nests = self.orders.nests(rows, cut)
            cycles = _transfer_cycles(
                rows.take(np.array(new)),
                self.orders.groups,
                nests,
                lambda _, use: self._moved_by(use, others),
            )
            for n, fewest in zip(new, cycles.min(axis=0).tolist(), strict=True):
                self._cycles[keys[n]] = fewest
        return np.array([self._cycles[key] for key in keys])

    def _moved_by(self, use: Use, tilings: list[Tiling]) -> tuple[Floats, Floats]:
        """``moved_by`` of tilings, of which most have an operand's sizes in common with others."""
        dims = sorted({dim for table in self.space.tables[use.name] for dim in table.dims})
        known = self._moved.setdefault(use.name, {})
        by_key = {tuple([tiling[dim] for dim in dims]): tiling for tiling in tilings}
        new = {key: tiling for key, tiling in by_key.items() if key not in known}
        if new:
            columns = moved_by(_rows(self.space, [*new.values()]), use)
            pairs = zip(*(column.tolist() for column in columns), strict=True)
            known |= dict(zip(new, pairs, strict=True))
        moved = [known[tuple([tiling[dim] for dim in dims])] for tiling in tilings]
        once, latency = np.array(moved).T
        return once, latency


Tilings = dict[tuple[str, str, bool, bool], Known]
"""The known results of one kernel's tilings, by primitive, start and effort (space/sizes.py)."""


Cut = tuple[bool, ...]
"""By which groups of dims any of some tilings is cut."""


class Orders:
    """Orders of the loops over the tilings of a space."""

    def __init__(self, space: Space) -> None:
        self.groups = groups_of(space)
        self._nests: dict[Cut, list[Nest]] = {}

    def nests(self, space: Space, cut: Cut) -> list[Nest]:
        """The orders of the groups by which the rows of a space are cut."""
        if cut not in self._nests:
            self._nests[cut] = [nest for nest in nests_of(space) if nest.grown is None]
        return self._nests[cut]


def access_cycles(space: Space) -> tuple[Floats, list[Nest], Ints]:
    """Per row, cycles of all transfers one after the other, in the best order of the loops.

    Also the orders that were looked at, and which of them is best in each row.
    """
    nests = [nest for nest in nests_of(space) if nest.grown is None]
    costs = _transfer_cycles(space, groups_of(space), nests)
    return costs.min(axis=0), nests, costs.argmin(axis=0)


def moved_by(space: Space, use: Use) -> tuple[Floats, Floats]:
    """Bytes of an operand if each of its boxes is moved once, and the latencies after the first of
    a box; they depend on the operand's own dims alone."""
    return space.total(use) * space.bytes_per_element(use), space.further_latency(use)


def _transfer_cycles(
    space: Space,
    groups: Sequence[Group],
    nests: Sequence[Nest],
    moved: Callable[[Space, Use], tuple[Floats, Floats]] = moved_by,
) -> Floats:
    """Cycles of all transfers, per order of the loops and row; all orders have the same loops."""
    trips = np.array([trips_along(space, group.dims) for group in groups])
    number = {group.dims: n for n, group in enumerate(groups)}
    loops = np.array([[number[loop.group.dims] for loop in nest.loops] for nest in nests], np.int64)
    counts = trips[loops]
    runs, many = np.cumprod(counts, axis=1), counts > 1
    moves: dict[str, Floats] = {}
    total = np.zeros((len(nests), space.rows))
    for use in space.uses:
        if use.move is None:
            continue
        host = _travelling_with(use, space)
        depends = np.array([host.name in group.users for group in groups])
        if host.name not in moves:
            # Runs grow inwards: the innermost loop that moves the box has most of them.
            moving = depends[loops][:, :, None] & many
            moves[host.name] = np.where(moving, runs, 1).max(axis=1, initial=1)
        boxes = np.prod(trips[[n for n in loops[0] if depends[n]]], axis=0)
        once, further = moved(space, use)
        total = total + once * (moves[host.name] / boxes) / use.move.bytes_per_cycle
        if not use.host:
            latency = use.move.latency / use.move.in_flight + further
            total = total + moves[host.name] * latency
    return total


def _travelling_with(use: Use, space: Space) -> Use:
    """The operand in whose transfer an operand moves: mostly itself."""
    return next((other for other in space.uses if other.name == use.host), use)


def _rows(space: Space, tilings: list[Tiling]) -> Space:
    """The space with these tilings."""
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

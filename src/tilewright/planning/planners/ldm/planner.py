"""The ``ldm`` planner: what swTVM does with a layer (its section 5).

The result is split over the cores (parallel.py). Buffers take of every loop variable what
algorithm 1 gives them (buffers.py), the loops over tiles are ordered by algorithm 2 (order.py), and
transfers stand where algorithm 3 puts them (correlation.py, the pass ``place-moves``). Nothing is
searched, so the planner may lose against the machine's own cost model, by which it is priced.

It works on every machine whose primitives keep operands in memories that software manages: tiles
grow until one of these is full. Beyond the paper there are two slots where they fit (the paper's
section 4.3 says that DMA overlaps with computing, its algorithm fills LDM with one), the granules
of primitives, and sums that stay on the chip.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.machine import Machine, Primitive
from tilewright.planning.bounds import granule_bound, physical_bound
from tilewright.planning.cells import cells_of
from tilewright.planning.domain import Kernel
from tilewright.planning.footprint import Use, uses_of
from tilewright.planning.layout import Layout
from tilewright.planning.nests import Arrangement, Group, Loop, Nest, moves_of, trips_of
from tilewright.planning.parallel import Parts, parallel_parts
from tilewright.planning.pipeline import Pipeline
from tilewright.planning.plan import Budget, Plan, Timer
from tilewright.planning.planners.cores import one_core, part_of, shareable, whole_schedule
from tilewright.planning.planners.greedy import AUTOMATIC, most_slots
from tilewright.planning.planners.ldm.buffers import BLOCK, Buffering
from tilewright.planning.planners.ldm.order import Tensor, loop_order
from tilewright.planning.planners.schedules import agreeing, schedule_of
from tilewright.planning.sizes import tile_sizes
from tilewright.planning.space import Space, no_tile_fits, uncrossed


@dataclass(frozen=True)
class Ldm:
    """swTVM's planner with its options; ``plan(..., search=Ldm())``."""

    block: int = BLOCK
    """Elements that the buffer of a variable begins with."""
    buffers: int = AUTOMATIC
    """Slots of what is moved again and again: 1, as the algorithm is printed; 2; or the faster."""

    def __call__(
        self,
        kernel: Kernel,
        machine: Machine,
        *,
        timer: Timer | None = None,
        budget: Budget | None = None,
    ) -> Plan:
        """The plan of a kernel whose primitives keep operands in software-managed memory.

        ``Plan.candidates`` counts the sizes of buffers that were looked at. ``budget`` is not used.
        Raises TilewrightError when no primitive computes the kernel or no tile fits.
        """
        begin = perf_counter()
        plans: list[Plan] = []
        failures: list[TilewrightError] = []
        for primitive in agreeing(kernel, machine):
            for slots in (2, 1) if self.buffers == AUTOMATIC else (self.buffers,):
                try:
                    plans.append(self._plan(kernel, machine, primitive, slots))
                except TilewrightError as error:
                    failures.append(error)
        if not plans:
            raise failures[0]
        best = min(plans, key=lambda plan: plan.predicted_cycles)
        timed = timer is not None and machine.cores == 1
        return replace(
            best,
            physical_bound=min(plan.physical_bound for plan in plans),
            granule_bound=min(plan.granule_bound for plan in plans),
            candidates=sum(plan.candidates for plan in plans),
            priced=len(plans),
            timed_cycles=timer(kernel, best.schedule) if timer is not None and timed else None,
            timed=int(timed),
            seconds=perf_counter() - begin,
        )

    def _plan(self, kernel: Kernel, machine: Machine, primitive: Primitive, slots: int) -> Plan:
        """The plan on one primitive with so many slots."""
        parts = parts_for(kernel, machine, primitive)
        core = one_core(machine) if machine.cores > 1 else machine
        part = part_of(kernel, dict(parts.sizes))
        tile, steps = self.tile(part, core, primitive, slots)
        found = priced(tile, slots, loops_of(tile))
        spawn = machine.spawn_cycles if machine.cores > 1 else 0
        return replace(
            found,
            schedule=whole_schedule(found.schedule, dict(parts.sizes), machine),
            predicted_cycles=parts.rounds * found.predicted_cycles + spawn,
            moved_bytes=found.moved_bytes * parts.count,
            physical_bound=physical_bound(kernel, core, primitive) / machine.cores,
            granule_bound=granule_bound(kernel, core, primitive) / machine.cores,
            candidates=steps,
        )

    def tile(
        self, kernel: Kernel, machine: Machine, primitive: Primitive, slots: int
    ) -> tuple[Space, int]:
        """The tile of one core as a space of one row, and the sizes that were looked at."""
        uses = uses_of(kernel, machine, primitive)
        extents = kernel.anchor.extents
        known = tile_sizes(kernel, primitive, uses, cut=True, granular=False)
        granules = {
            dim: primitive.multiples.get(dim, 1)
            for dim in extents
            if primitive.multiples.get(dim, 1) < extents[dim]
        }
        limits = {dim: int(sizes[0]) for dim, sizes in known.items()}
        whole = frozenset(dim for dim, sizes in known.items() if len(sizes) == 1)

        def of(sizes: Mapping[str, int]) -> Space:
            chosen = {d: np.array([min(sizes[d], limits[d])], np.int64) for d in known}
            space = uncrossed(kernel, machine, primitive, uses, chosen)
            return replace(space, index={dim: np.zeros(1, np.int64) for dim in known})

        def fits(sizes: Mapping[str, int]) -> bool:
            return bool(most_slots(of(sizes))[0] >= slots)

        ranges = {dim: limits.get(dim, extent) for dim, extent in extents.items()}
        state = Buffering(ranges, tensors_of(uses), fits, self.block, granules, whole)
        sizes = state.run()
        if sizes is None:
            raise no_tile_fits(kernel, machine, uses)
        return of(sizes), state.steps


def tensors_of(uses: tuple[Use, ...]) -> tuple[Tensor, ...]:
    """The operands that are moved, their lowest dims in main memory first."""
    found: list[Tensor] = []
    for use in uses:
        if use.move is None:
            continue
        operand = use.operand
        layout = Layout.parse(operand.layout, len(operand.shape))
        axes = dict.fromkeys(factor.axis for factor in reversed(layout.factors))
        found.append(Tensor(operand.name, tuple(operand.access[axis] for axis in axes)))
    return tuple(found)


def parts_for(kernel: Kernel, machine: Machine, primitive: Primitive) -> Parts:
    """The parts of a kernel's result, one or several for each core of the machine."""
    if machine.cores == 1:
        return Parts((), (), 1)
    allowed = shareable(kernel) - set(primitive.whole)
    output = kernel.output
    layout = Layout.parse(output.layout, len(output.shape))
    dims = [
        dim
        for factor in layout.factors
        for dim in output.access[factor.axis].dims
        if dim in allowed
    ]
    return parallel_parts(
        list(dict.fromkeys(dims)), kernel.anchor.extents, machine.cores, primitive.multiples
    )


def loops_of(space: Space) -> list[str]:
    """The loops over the tiles of a space of one row, outermost first."""
    trips = {dim: int(space.trips(dim)[0]) for dim in space.extents}
    cut = {dim: count for dim, count in trips.items() if count > 1}
    return loop_order(cut, tensors_of(space.uses), space.kernel.anchor.reduction)


def priced(space: Space, slots: int, order: list[str]) -> Plan:
    """The plan of one tile in one order, by the pipeline that the slots allow."""
    kernel, machine, primitive = space.kernel, space.machine, space.primitive
    reduction = kernel.anchor.reduction
    loops = [
        Loop(
            Group(
                (dim,),
                frozenset(u.name for u in space.uses if dim in u.operand.dims and u.move),
                dim in reduction,
            )
        )
        for dim in order
    ]
    nest = Nest(tuple(loops))
    trips = trips_of(space, nest, {})
    buffers = {
        use.name: np.where(moves_of(use, nest, trips) > 1, slots, 1) * np.ones(1, np.int64)
        for use in space.uses
        if use.move is not None and not use.host
    }
    arrangement = Arrangement(nest, np.ones(1, np.bool_), trips, {}, buffers)
    cycles, moved = Pipeline(space, cells_of(space), arrangement).cycles_and_bytes()
    return Plan(
        schedule=schedule_of(space, arrangement, 0),
        predicted_cycles=float(cycles[0]),
        moved_bytes=int(moved[0]),
        physical_bound=physical_bound(kernel, machine, primitive),
        granule_bound=granule_bound(kernel, machine, primitive),
        candidates=1,
        priced=1,
        seconds=0.0,
        planner="ldm",
    )

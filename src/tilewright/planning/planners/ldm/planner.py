"""The ``ldm`` planner: what swTVM does with a layer (its section 5).

The result is split over the cores (planners/papers/parallel.py). Buffers take of every loop
variable what algorithm 1 gives them (buffers.py), the loops over tiles are ordered by algorithm 2
(order.py), and transfers stand where algorithm 3 puts them (planners/papers/correlation.py, the
pass ``place-moves``). Nothing is searched, so the planner may lose against the machine's own cost
model, by which it is priced.

It works on every machine whose primitives keep operands in memories that software manages: tiles
grow until one of these is full. Beyond the paper there are two slots where they fit (the paper's
section 4.3 says that DMA overlaps with computing, its algorithm fills LDM with one), the granules
of primitives, and sums that stay on the chip.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING

from tilewright.errors import TilewrightError
from tilewright.machine import Machine, Primitive
from tilewright.planning.domain import Kernel
from tilewright.planning.layout import Layout
from tilewright.planning.plan import Budget, Plan, Timer, timed
from tilewright.planning.planners.cores import one_core, part_of, shareable
from tilewright.planning.planners.greedy import AUTOMATIC, most_slots
from tilewright.planning.planners.ldm.buffers import BLOCK, Buffering
from tilewright.planning.planners.ldm.order import Tensor, loop_order
from tilewright.planning.planners.papers.parallel import parallel_parts
from tilewright.planning.planners.schedules import agreeing, cheapest
from tilewright.planning.planners.stated import slots_of, stated_plan, stated_schedule, tiling
from tilewright.planning.space.footprint import Use, uses_of
from tilewright.planning.space.mesh import (
    Axis,
    Division,
    Mesh,
    divisions,
    in_step,
    needed_by_all,
)
from tilewright.planning.space.sizes import tile_sizes
from tilewright.planning.space.tilings import Space, no_tile_fits

if TYPE_CHECKING:
    from tilewright.planning.planners.registry import Made, Request

DIVISIONS = 8
"""Cuts of the result for a mesh that are planned, those first of which a core moves least."""


@dataclass(frozen=True)
class Ldm:
    """swTVM's planner with its options; ``plan(..., search=Ldm())``."""

    block: int = BLOCK
    """Elements that the buffer of a variable begins with."""
    buffers: int = AUTOMATIC
    """Slots of what is moved again and again: 1, as the algorithm is printed; 2; or the faster."""
    mesh: Mesh | None = None
    """The mesh, if cores may get operands from others (space/mesh.py): those of their row or
    column, or, for the paper's own parts, one that loads them for all. None: no exchange."""
    broadcast: bool = False
    """True if the mesh is used for the latter."""

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
        every = (2, 1) if self.buffers == AUTOMATIC else (self.buffers,)
        best = cheapest(
            partial(self._plans, kernel, machine, primitive, slots)
            for primitive in agreeing(kernel, machine)
            for slots in every
        )
        return best if timer is None or machine.cores > 1 else timed(best, kernel, timer)

    def _plans(
        self, kernel: Kernel, machine: Machine, primitive: Primitive, slots: int
    ) -> list[Plan]:
        """The plans on one primitive with ``slots`` slots for each operand: that of the paper's
        parts, and those of the parts for a mesh between which least is moved."""
        dims = shared_dims(kernel, primitive) if machine.cores > 1 else []
        extents = kernel.anchor.extents
        grid = parallel_parts(dims, extents, machine.cores, primitive.multiples)
        plans = [self._plan(kernel, machine, primitive, slots, grid)]
        if self.mesh is None or machine.cores != self.mesh.cores:
            return plans
        if self.broadcast:
            shared = needed_by_all(kernel, grid, machine.cores)
            plan = self._plan(kernel, machine, primitive, slots, grid, shared)
            steady = in_step(kernel, grid, dict(plan.schedule.levels[-1].tile))
            return [*plans, plan] if shared and steady else plans
        cuts = divisions(dims, extents, primitive.multiples, self.mesh.side)
        cuts = [cut for cut in cuts if cut.exchanged(kernel)]
        for cut in sorted(cuts, key=lambda cut: moved(kernel, cut, self.mesh))[:DIVISIONS]:
            try:
                shared = cut.exchanged(kernel)
                plan = self._plan(kernel, machine, primitive, slots, cut.grid, shared)
            except TilewrightError:
                continue  # The paper's parts fit.
            if in_step(kernel, cut.grid, dict(plan.schedule.levels[-1].tile)):
                plans.append(plan)
        return plans

    def _plan(
        self,
        kernel: Kernel,
        machine: Machine,
        primitive: Primitive,
        slots: int,
        grid: Mapping[str, int],
        exchanged: tuple[tuple[str, Axis], ...] = (),
    ) -> Plan:
        """The plan of parts of certain sizes."""
        core = one_core(machine) if machine.cores > 1 else machine
        tile, steps = self.tile(part_of(kernel, grid), core, primitive, slots)
        order = loops_of(tile)
        doubled = slots_of(tile, order, slots)
        schedule = stated_schedule(tile, order, doubled, grid, machine, exchanged)
        return replace(stated_plan(kernel, machine, schedule, "ldm", self.mesh), candidates=steps)

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
            return tiling(kernel, machine, primitive, uses, sizes)

        def fits(sizes: Mapping[str, int]) -> bool:
            return bool(most_slots(of(sizes))[0] >= slots)

        ranges = {dim: limits.get(dim, extent) for dim, extent in extents.items()}
        state = Buffering(ranges, tensors_of(uses), fits, self.block, granules, whole)
        sizes = state.run()
        if sizes is None:
            raise no_tile_fits(kernel, machine, (use.memory for use in uses))
        return of(sizes), state.steps


def ldm(request: Request) -> Made:
    """The planner with the options that are asked for."""
    return request.of(
        Ldm(
            int(request.options.get("block", str(BLOCK))),
            request.buffers(AUTOMATIC),
            request.sharing_mesh(),
            request.options.get("share") == "broadcast",
        )
    )


def tensors_of(uses: tuple[Use, ...]) -> tuple[Tensor, ...]:
    """The operands that are moved, their lowest dims in main memory first."""
    tensors: list[Tensor] = []
    for use in uses:
        if use.move is None:
            continue
        operand = use.operand
        layout = Layout.parse(operand.layout, len(operand.shape))
        axes = dict.fromkeys(factor.axis for factor in reversed(layout.factors))
        tensors.append(Tensor(operand.name, tuple(operand.access[axis] for axis in axes)))
    return tuple(tensors)


def moved(kernel: Kernel, division: Division, mesh: Mesh | None) -> float:
    """Elements that one core loads and stores of its part, each once."""
    assert mesh is not None
    part = part_of(kernel, division.grid)
    exchanged = dict(division.exchanged(kernel))
    total = 0.0
    for operand in part.operands:
        axes = zip(operand.access, operand.shape, strict=True)
        count = prod(min(axis.span(part.anchor.extents), extent) for axis, extent in axes)
        total += count / (mesh.side if operand.name in exchanged else 1)
    return total


def shared_dims(kernel: Kernel, primitive: Primitive) -> list[str]:
    """The dims of the result that cores may share, the highest in main memory first."""
    allowed = shareable(kernel) - set(primitive.whole)
    output = kernel.output
    layout = Layout.parse(output.layout, len(output.shape))
    dims = [
        dim
        for factor in layout.factors
        for dim in output.access[factor.axis].dims
        if dim in allowed
    ]
    return list(dict.fromkeys(dims))


def loops_of(space: Space) -> list[str]:
    """The loops over the tiles of a space of one row, outermost first."""
    trips = {dim: int(space.trips(dim)[0]) for dim in space.extents}
    cut = {dim: count for dim, count in trips.items() if count > 1}
    return loop_order(cut, tensors_of(space.uses), space.kernel.anchor.reduction)

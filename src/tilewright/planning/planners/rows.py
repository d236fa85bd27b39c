"""The ``rows`` planner: what swTVM is compared with, DMA as OpenACC compilers have it.

The highest dim of the result is split over the cores, and no other is fused with it. Of every
tensor a row is fetched, all that lies along its lowest dim; everything else is one index, so a row
is fetched anew for each use. Sums alone stay on the chip while they are not complete. Buffers are
single. Where a primitive takes a dim whole, so does the tile; where rows do not fit, the longest
dim is halved.

It is a baseline: programs that run, whose transfers can be counted, and which lose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.machine import Machine, Primitive
from tilewright.planning.domain import Affine, Kernel
from tilewright.planning.layout import Layout
from tilewright.planning.plan import Budget, Plan, Timer, timed
from tilewright.planning.planners.cores import part_of
from tilewright.planning.planners.greedy import most_slots
from tilewright.planning.planners.ldm.planner import shared_dims
from tilewright.planning.planners.papers.parallel import parallel_parts
from tilewright.planning.planners.schedules import agreeing
from tilewright.planning.planners.stated import stated_plan, stated_schedule, tiling
from tilewright.planning.space.footprint import uses_of
from tilewright.planning.space.tilings import no_tile_fits

if TYPE_CHECKING:
    from tilewright.planning.planners.registry import Made, Request


@dataclass(frozen=True)
class Rows:
    """A search for swTVM's baseline: ``plan(..., search=Rows())``."""

    def __call__(
        self,
        kernel: Kernel,
        machine: Machine,
        *,
        timer: Timer | None = None,
        budget: Budget | None = None,
    ) -> Plan:
        """The plan; raises TilewrightError when no primitive computes the kernel or no row fits."""
        del budget
        primitive = agreeing(kernel, machine)[0]
        extents = kernel.anchor.extents
        grid: dict[str, int] = {}
        if machine.cores > 1:
            dims = highest_dims(kernel, primitive)
            grid = parallel_parts(dims, extents, machine.cores, primitive.multiples)
        part = part_of(kernel, grid)
        uses = uses_of(part, machine, primitive)
        rows = row_dims(kernel) - set(grid)
        tile = {
            dim: extent if dim in rows else _least(primitive, dim, extent)
            for dim, extent in part.anchor.extents.items()
        }
        space = tiling(part, machine, primitive, uses, tile)
        while most_slots(space)[0] < 1:
            larger = [d for d in tile if tile[d] > _least(primitive, d, tile[d])]
            if not larger:
                raise no_tile_fits(kernel, machine, (use.memory for use in uses))
            longest = max(larger, key=tile.__getitem__)
            tile[longest] = max(tile[longest] // 2, _least(primitive, longest, tile[longest]))
            space = tiling(part, machine, primitive, uses, tile)
        cut = [d for d in part.anchor.extents if int(space.trips(d)[0]) > 1]
        reduction = kernel.anchor.reduction
        order = [*(d for d in cut if d not in reduction), *(d for d in cut if d in reduction)]
        slots = [(use.name, 1) for use in uses if use.move is not None]
        schedule = stated_schedule(space, order, slots, grid, machine)
        plan = stated_plan(kernel, machine, schedule, "rows")
        return plan if timer is None or machine.cores > 1 else timed(plan, kernel, timer)


def rows(request: Request) -> Made:
    """The planner, which has no options."""
    return request.of(Rows())


def highest_dims(kernel: Kernel, primitive: Primitive) -> list[str]:
    """The dims of the result's highest axis of several indices, which the cores share."""
    allowed = shared_dims(kernel, primitive)
    layout = Layout.parse(kernel.output.layout, len(kernel.output.shape))
    for factor in layout.factors:
        dims = [dim for dim in kernel.output.access[factor.axis].dims if dim in allowed]
        if any(kernel.anchor.extents[dim] > 1 for dim in dims):
            return dims
    return []


def row_dims(kernel: Kernel) -> frozenset[str]:
    """The dims along which the lowest axes of the anchor's factors and of its result run."""
    dims: set[str] = set()
    for operand in (*kernel.anchor.inputs[:2], kernel.output):
        layout = Layout.parse(operand.layout, len(operand.shape))
        lowest = (operand.access[factor.axis] for factor in reversed(layout.factors))
        several = (access for access in lowest if access.dims)
        dims.update(next(several, Affine()).dims)
    return frozenset(dims & set(kernel.anchor.extents))


def _least(primitive: Primitive, dim: str, extent: int) -> int:
    """The smallest tile along a dim."""
    if dim in primitive.whole:
        return extent
    return min(primitive.multiples.get(dim, 1), extent)

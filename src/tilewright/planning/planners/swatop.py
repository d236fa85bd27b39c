"""The ``swatop`` planner: swATOP's space of strategies, priced by its Eq. 1 and Eq. 2.

A strategy is a cut of the result over the cores, a tile, and an order of the loops over tiles; the
innermost are those of the reduction. All are listed (``strategies``), none that does not fit. The
static model (section 4.6) charges

    DMA       latency + (size + waste) / (peak bandwidth / cores)     Eq. 1; blocks are rounded up
              to transactions of 128 bytes
    compute   Eq. 2, a linear function of a tile's sizes              linear_fit.py
    in all    the greater of both sums, as transfers are prefetched

and the least is taken, or of the ``top`` least the one that the machine's own cost model (the
curve of DMA, edges, the fill of the pipeline) finds fastest. ``blackbox`` asks that model for all.
Registers that cores exchange count as compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.machine import Machine, Primitive, parse_expression
from tilewright.planning.domain import Kernel
from tilewright.planning.plan import Budget, Plan, Timer
from tilewright.planning.planners.cores import one_core, part_of
from tilewright.planning.planners.ldm.planner import moved, shared_dims
from tilewright.planning.planners.linear_fit import fit
from tilewright.planning.planners.papers.parallel import parallel_parts
from tilewright.planning.planners.schedules import agreeing
from tilewright.planning.planners.stated import (
    core_in_turns,
    exchanging,
    priced,
    stated_plan,
    stated_schedule,
)
from tilewright.planning.schedule import Schedule
from tilewright.planning.space.footprint import Use, run_elements, uses_of
from tilewright.planning.space.mesh import (
    Axis,
    Division,
    Mesh,
    divisions,
    exchanged_in_turns,
    in_step,
    sending_in_turn,
    turn_division,
)
from tilewright.planning.space.nests import Nest, moves_of, nests_of, trips_of
from tilewright.planning.space.sizes import EFFORTS, tile_sizes
from tilewright.planning.space.tilings import Space, crossed, no_tile_fits, uncrossed

if TYPE_CHECKING:
    from tilewright.planning.planners.registry import Made, Request

Floats = NDArray[np.float64]

TRANSACTION = 128
"""Bytes that main memory moves at least (section 4.6)."""

ROWS = 60_000
"""Tilings of one cut of the result; sizes are thinned out where there are more."""

STEP = 0.8
"""The largest ratio of a tile's size to the next larger one (FactorVar, section 4.2)."""

VECTOR = 4
"""Sizes beyond two vectors are whole ones."""

DIVISIONS = 6
"""Cuts of the result for a mesh, those first of which a core moves least."""

SHARED = 2
"""Cuts beyond these in which two operands are exchanged: what a core loads once, it may load again
and again where its part fits no tile."""

SAMPLES = 400
"""The number of tilings to which Eq. 2 is fitted."""

PRODUCTS = ("conv", "matmul")


@dataclass(frozen=True)
class Strategies:
    """Strategies that differ in their tiles alone: one for each row of a space."""

    space: Space
    nest: Nest
    slots: int
    grid: tuple[tuple[str, int], ...]
    rounds: int
    """Parts of the result that the core with the most has."""
    division: Division | None = None
    exchanged: tuple[tuple[str, Axis], ...] = ()

    @property
    def trips(self) -> tuple[Floats, ...]:
        """Trips of every loop."""
        return trips_of(self.space, self.nest, {})

    def visits(self, use: Use) -> Floats:
        """Times that an operand is moved."""
        return np.broadcast_to(moves_of(use, self.nest, self.trips), self.space.rows)

    @property
    def order(self) -> list[str]:
        """The dims of the loops, outermost first."""
        return [dim for loop in self.nest.loops for dim in loop.group.dims]

    def modelled(self, mesh: Mesh | None) -> Floats:
        """Return the cycles by Eq. 1, Eq. 2 and the greater of both."""
        space, once, again = exchanging(self.space, self.nest, self.exchanged, mesh)
        transfers = np.zeros(space.rows)
        for use in space.uses:
            if use.move is None:
                continue
            size = space.box(use) * use.operand.element_bytes
            size = size / space.shares.get(use.name, space.together.get(use.name, 1))
            lengths = [
                table.largest[tuple(space.index[dim] for dim in table.dims)]
                for table in space.tables[use.name]
            ]
            run = run_elements(use.operand, lengths) * use.operand.element_bytes
            waste = np.ceil(run / TRANSACTION) * TRANSACTION / run
            each = use.move.latency + size * waste / use.move.bytes_per_cycle
            transfers = transfers + self.visits(use) * each
        tiles = space.trips_of(list(space.index))
        compute = tiles * tile_cycles(space) + (once + again)
        both = transfers + compute if self.slots == 1 else np.maximum(transfers, compute)
        return self.rounds * both

    def simulated(self, mesh: Mesh | None, rows: Sequence[int] | None = None) -> Floats:
        """Cycles by the machine's own cost model, of all rows or of some."""
        part = self if rows is None else replace(self, space=self.space.take(np.array(rows)))
        slots = {
            use.name: np.where(part.visits(use) > 1, part.slots, 1).astype(np.int64)
            for use in part.space.uses
            if use.move is not None
        }
        return part.rounds * priced(part.space, part.nest, slots, part.exchanged, mesh)[0]

    def keeps_step(self, kernel: Kernel, row: int) -> bool:
        """Return True if all cores compute equally many tiles."""
        tile = {dim: int(self.space.size(dim)[row]) for dim in self.space.index}
        return self.division is None or in_step(kernel, dict(self.grid), tile)


def tile_cycles(space: Space) -> Floats:
    """Cycles of every row's tile: Eq. 2 for products, the primitive's expression for others."""
    tile = {dim: space.size(dim) for dim in space.index}
    cycles = np.asarray(parse_expression(space.primitive.cycles).evaluate(tile), np.float64)
    if space.kernel.anchor.operation not in PRODUCTS or space.rows < 8:
        return np.broadcast_to(cycles, space.rows)
    rows = np.unique(np.linspace(0, space.rows - 1, SAMPLES).astype(np.int64))
    sizes = {dim: column[rows].astype(np.float64) for dim, column in tile.items()}
    whole = {dim: column.astype(np.float64) for dim, column in tile.items()}
    return fit(space.primitive, sizes).cycles(whole)


def strategies(
    kernel: Kernel, machine: Machine, primitive: Primitive, mesh: Mesh | None
) -> Iterator[Strategies]:
    """All strategies of a kernel on one primitive, those alike together."""
    cores = machine.cores
    cuts: list[tuple[dict[str, int], int, Division | None]] = [({}, 1, None)]
    if cores > 1:
        dims = shared_dims(kernel, primitive)
        parts = parallel_parts(dims, kernel.anchor.extents, cores, primitive.multiples)
        grid = dict(parts)
        cuts = [(grid, _rounds(kernel, grid, cores), None)]
        if mesh is not None and mesh.cores == cores:
            exchanges = divisions(dims, kernel.anchor.extents, primitive.multiples, mesh.side)
            exchanges = [cut for cut in exchanges if cut.exchanged(kernel)]
            exchanges.sort(key=lambda cut: moved(kernel, cut, mesh))
            both = [cut for cut in exchanges[DIVISIONS:] if len(cut.exchanged(kernel)) > 1]
            cuts += [(cut.grid, 1, cut) for cut in (*exchanges[:DIVISIONS], *both[:SHARED])]
    core = one_core(machine) if cores > 1 else machine
    for grid, rounds, division in cuts:
        try:
            space = tilings(part_of(kernel, grid), core, primitive)
        except TilewrightError:
            continue
        exchanged = () if division is None else division.exchanged(kernel)
        for nest in nests_of(space, single_level=True):
            trial = Strategies(space, nest, 2, tuple(grid.items()), rounds, division, exchanged)
            rows = np.flatnonzero(_fits(trial))
            if not rows.size:
                trial, rows = replace(trial, slots=1), np.arange(space.rows)
            yield replace(trial, space=space.take(rows))


def strategies_in_turns(
    kernel: Kernel, machine: Machine, primitive: Primitive, mesh: Mesh | None
) -> Iterator[Strategies]:
    """Yield the strategies of a primitive that the cores of a mesh compute together
    (planning/space/mesh.py): tiles of whole granules, several of them along the reduction, two
    slots for what is sent."""
    if mesh is None or mesh.cores != machine.cores:
        return
    division = turn_division(kernel, primitive, mesh.side)
    if division is None:
        return
    core = core_in_turns(one_core(machine), mesh.side)
    space = tilings(part_of(kernel, division.grid), core, primitive)
    granules = primitive.multiples.items()
    whole = np.ones(space.rows, np.bool_)
    for dim, granule in granules:
        if dim in space.index and space.extents[dim] > 1:
            whole &= space.size(dim) % granule == 0
    for dim in kernel.anchor.reduction:
        whole &= (space.trips(dim) > 1) & (space.extents[dim] % primitive.multiples[dim] == 0)
    space = space.take(np.flatnonzero(whole))
    grid, exchanged = tuple(division.grid.items()), exchanged_in_turns(kernel)
    for nest in nests_of(space, single_level=True) if space.rows else ():
        trial = Strategies(space, nest, 2, grid, 1, division, exchanged)
        rows = np.flatnonzero(_fits(trial))
        if rows.size:
            yield replace(trial, space=space.take(rows))


def tilings(kernel: Kernel, machine: Machine, primitive: Primitive) -> Space:
    """The tilings of one core's part: of every dim sizes in steps of a factor, whole vectors first.

    Raises TilewrightError when not even the smallest fits.
    """
    uses = uses_of(kernel, machine, primitive)
    for cut, small in EFFORTS:
        sizes = tile_sizes(kernel, primitive, uses, cut=cut, small=small)
        sizes = {dim: _factors(column) for dim, column in sizes.items()}
        space = crossed(uncrossed(kernel, machine, primitive, uses, sizes), ROWS)
        if space.rows:
            return space
    raise no_tile_fits(kernel, machine, (use.memory for use in uses))


def _factors(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the largest of sizes in descending order, and each that is the next step down or
    less."""
    chosen = [int(sizes[0])]
    whole = [size for size in sizes.tolist() if size % VECTOR == 0]
    for size in (*whole, *(size for size in sizes.tolist() if size < 2 * VECTOR)):
        if size <= STEP * chosen[-1] or (size < chosen[-1] and size < 2 * VECTOR):
            chosen.append(size)
    return np.array(chosen, np.int64)


def _rounds(kernel: Kernel, grid: dict[str, int], cores: int) -> int:
    parts = 1
    for dim, size in grid.items():
        parts *= -(-kernel.anchor.extents[dim] // size)
    return -(-parts // cores)


def _fits(trial: Strategies) -> NDArray[np.bool_]:
    """Rows of which what is moved again and again fits twice."""
    fits = np.ones(trial.space.rows, np.bool_)
    for memory in {use.memory.name: use.memory for use in trial.space.uses}.values():
        if memory.room is None:
            continue
        used = np.zeros(trial.space.rows)
        for use in trial.space.uses:
            if use.memory.name == memory.name:
                slots = np.where(trial.visits(use) > 1, trial.slots, 1)
                used = used + slots * trial.space.slot_bytes(use)
        fits &= used <= memory.room
    return fits


@dataclass(frozen=True)
class Swatop:
    """swATOP's planner with its options; ``plan(..., search=Swatop())``."""

    top: int = 1
    """Strategies, best by the static model, of which the machine's cost model chooses; and of a
    quarter as many, each the best of another cut of the result."""
    measure: bool = False
    """True if all strategies are measured (the black box)."""
    mesh: Mesh | None = None
    """The mesh, if cores may get operands from those of their row or column; else None."""

    def __call__(
        self,
        kernel: Kernel,
        machine: Machine,
        *,
        timer: Timer | None = None,
        budget: Budget | None = None,
    ) -> Plan:
        """The plan; ``Plan.candidates`` is the size of the space. Raises as ``plan_exact``."""
        del timer, budget
        groups = [
            group
            for primitive in agreeing(kernel, machine)
            for group in strategies(kernel, machine, primitive, self.mesh)
        ]
        for primitive in sending_in_turn(kernel, machine):
            groups += strategies_in_turns(kernel, machine, primitive, self.mesh)
        if not groups:
            core = one_core(machine) if machine.cores > 1 else machine
            for primitive in agreeing(kernel, machine):
                tilings(kernel, core, primitive)  # It says why nothing fits.
        columns = [
            group.simulated(self.mesh) if self.measure else group.modelled(self.mesh)
            for group in groups
        ]
        best: Plan | None = None
        chosen = self.ranked(kernel, groups, columns)
        for number, row in chosen[:1] if self.measure else chosen:
            plan = self._plan(kernel, machine, groups[number], row)
            if best is None or plan.predicted_cycles < best.predicted_cycles:
                best = plan
        assert best is not None
        size = sum(group.space.rows for group in groups)
        return replace(
            best,
            candidates=size,
            priced=size,
            planner="blackbox" if self.measure else "swatop",
        )

    def ranked(
        self, kernel: Kernel, groups: Sequence[Strategies], columns: Sequence[Floats]
    ) -> list[tuple[int, int]]:
        """Group and row of the best strategies, the best first: as many as are asked for, of those
        that differ in their tiles alone a quarter at most.

        After them come the best of further cuts of the result, a quarter as many: what the model
        leaves out, the curve of DMA, depends on what cores share.
        """
        every = np.concatenate(columns)
        starts = np.cumsum([0, *(len(column) for column in columns)])
        ranks: list[tuple[int, int]] = []
        others: list[tuple[int, int]] = []
        cuts = {group.grid for group in groups}
        first = max(self.top, 1)
        for place in np.argsort(every, kind="stable").tolist():
            number = int(np.searchsorted(starts, place, "right")) - 1
            row = place - int(starts[number])
            grid = groups[number].grid
            alike = sum(group == number for group, _ in ranks)
            best = len(ranks) < first and alike < max(self.top // 4, 1)
            if not (best or grid in cuts) or not groups[number].keeps_step(kernel, row):
                continue
            cuts.discard(grid)
            if best:
                ranks.append((number, row))
            elif len(others) < self.top // 4:
                others.append((number, row))
            if len(ranks) == first and (not cuts or len(others) == self.top // 4):
                break
        return ranks + others

    def _plan(self, kernel: Kernel, machine: Machine, group: Strategies, row: int) -> Plan:
        """The plan of one strategy."""
        schedule = self.strategy(machine, group, row)
        return stated_plan(kernel, machine, schedule, "swatop", self.mesh)

    def strategy(self, machine: Machine, group: Strategies, row: int) -> Schedule:
        """One strategy as a schedule."""
        space = group.space.take(np.array([row]))
        slots = [
            (use.name, group.slots if float(group.visits(use)[row]) > 1 else 1)
            for use in space.uses
            if use.move is not None
        ]
        order = [dim for dim in group.order if int(space.trips(dim)[0]) > 1]
        return stated_schedule(space, order, slots, dict(group.grid), machine, group.exchanged)


def swatop(request: Request) -> Made:
    """The planner with the options that are asked for; ``blackbox`` measures all strategies."""
    request.sharing_mesh()
    mesh = None if request.options.get("share") == "none" else request.mesh
    top = int(request.options.get("top", "1"))
    return request.of(Swatop(top, request.name == "blackbox", mesh))

"""The ``exact`` planner: the optimum of the cost model over the whole pruned space.

Tilings come sorted by an exact lower bound and are priced in blocks, until the next bound exceeds
the last of the best candidates so far: what is left out cannot be among them. Where the best stays
far from the granule bound, as where memories are small, the sizes that are tried otherwise when
nothing else fits are searched, too.

With a timer the candidates are run, best cost first, and the fastest is taken; timing stops early
at one that is as good as at the granule bound. The greedy planner's tilings are run, too, so that
no error of the cost model lets it win.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product, repeat

import numpy as np

from tilewright.errors import TilewrightError, refuse
from tilewright.machine import Machine, Primitive
from tilewright.planning.cost.bounds import granule_bound, physical_bound
from tilewright.planning.cost.columns import Priced, lower_bounds, price, rough_bounds
from tilewright.planning.domain import Kernel
from tilewright.planning.plan import Budget, Plan, Timer
from tilewright.planning.planners.greedy import Greedy
from tilewright.planning.planners.schedules import agreeing, schedule_of
from tilewright.planning.schedule import Schedule
from tilewright.planning.space.cells import cells_of
from tilewright.planning.space.nests import Arrangement
from tilewright.planning.space.sizes import EFFORTS
from tilewright.planning.space.tilings import Space, build_space

FIRST_BLOCK, BLOCK = 128, 1024
"""Tilings priced at once: few at first, so that the best bounds the rest."""

MISJUDGED = 1.0
"""A greedy tiling is timed unless its cost exceeds the best time by more: the cost is never that
much too high."""

FAR = 0.25
"""The excess over the granule bound, as a share, at which a best cost lets more sizes be
searched."""

MIRRORS = 4
"""Rows taken from a block for each candidate that is kept; mirrored ones drop out again."""


@dataclass(frozen=True)
class Candidate:
    """One schedule with its cost, not yet written out."""

    cost: float
    cycles: float
    moved_bytes: float
    space: Space
    arrangement: Arrangement
    row: int

    @property
    def kind(self) -> tuple[str, str]:
        """The key that candidates that mirror each other (oh for ow, say) have in common."""
        return _kind(self.cost, self.moved_bytes)

    @property
    def tiles(self) -> float:
        """The number of computes."""
        return self.space.computes(self.row)

    @property
    def schedule(self) -> Schedule:
        """The schedule of the candidate."""
        return schedule_of(self.space, self.arrangement, self.row)


@dataclass
class Search:
    """The outcome of a search: candidates by cost, best first, no two of a kind."""

    candidates: list[Candidate]
    considered: int
    priced: int
    cuts: list[str]


def search(
    kernel: Kernel, machine: Machine, primitive: Primitive, budget: Budget, keep: int
) -> Search:
    """The ``keep`` best schedules of a kernel on one primitive."""
    result = Search([], 0, 0, [])
    for efforts in (EFFORTS, EFFORTS[-1:]):
        space = build_space(kernel, machine, primitive, budget.rows, efforts)
        result = _searched(space, result, budget, keep)
        best = result.candidates[0].cost if result.candidates else np.inf
        if not result.candidates and budget.limit < np.inf:
            break  # Sizes that are rarely better would have to be below the limit at once.
        if best <= granule_bound(kernel, machine, primitive) * (1 + FAR):
            break
    return result


def _searched(space: Space, before: Search, budget: Budget, keep: int) -> Search:
    """The best of a space and of what an earlier search has found."""
    cuts, best = before.cuts + space.cuts, before.candidates
    limit = best[-1].cost if len(best) == keep else budget.limit
    if limit < np.inf:
        space = space.part(np.flatnonzero(rough_bounds(space) <= limit))
    considered = before.considered + space.considered
    if not space.rows:
        return Search(best, considered, before.priced, cuts)
    cells = cells_of(space)
    bounds = lower_bounds(space, cells)
    order = np.argsort(bounds, kind="stable")
    priced, start, size = 0, 0, FIRST_BLOCK
    while start < len(order):
        block = order[start : start + size]
        block = block[bounds[block] <= (best[-1].cost if len(best) == keep else budget.limit)]
        if not block.size:
            break
        if start >= budget.priced:
            cuts.append("priced")
            break
        part, limit = space.part(block), best[-1].cost if len(best) == keep else budget.limit
        prices = price(part, cells.take(block))
        priced += sum(int(np.isfinite(some.cycles).sum()) for some in prices)
        best = _better(best, part, prices, keep, limit)
        start, size = start + size, BLOCK
    return Search(best, considered, before.priced + priced, cuts)


def _better(
    best: Sequence[Candidate], space: Space, prices: Sequence[Priced], keep: int, limit: float
) -> list[Candidate]:
    """The best by cost of some candidates and of what was priced, of those that mirror each other
    the first found."""
    entries = [(known.cost, known.moved_bytes, -1, n) for n, known in enumerate(best)]
    for number, some in enumerate(prices):
        rows = np.flatnonzero((some.cost <= limit) & np.isfinite(some.cost))
        if len(rows) > MIRRORS * keep:
            rows = rows[np.argsort(some.cost[rows], kind="stable")[: MIRRORS * keep]]
        costs, moved = some.cost[rows].tolist(), some.bytes[rows].tolist()
        entries += zip(costs, moved, repeat(number), rows.tolist(), strict=False)
    by_kind: dict[tuple[str, str], Candidate] = {}
    for cost, moved, number, row in sorted(entries):
        kind = _kind(cost, moved)
        if kind in by_kind:
            continue
        if number < 0:
            by_kind[kind] = best[row]
        else:
            cycles, arrangement = float(prices[number].cycles[row]), prices[number].arrangement
            by_kind[kind] = Candidate(cost, cycles, moved, space, arrangement, row)
        if len(by_kind) == keep:
            break
    return list(by_kind.values())


def _kind(cost: float, moved: float) -> tuple[str, str]:
    """Return the key that schedules that mirror each other (oh for ow, say) have in common."""
    return f"{cost:.7g}", f"{moved:.7g}"


def _distinct(candidates: list[Candidate]) -> list[Candidate]:
    """The candidates by cost, of those that mirror each other the first found."""
    by_kind: dict[tuple[str, str], Candidate] = {}
    for candidate in sorted(candidates, key=lambda c: (c.cost, c.moved_bytes)):
        by_kind.setdefault(candidate.kind, candidate)
    return list(by_kind.values())


def _timed(
    kernel: Kernel,
    candidates: list[Candidate],
    firsts: list[Candidate],
    timer: Timer,
    budget: Budget,
    granule: float,
) -> list[tuple[float, Candidate]]:
    """Candidates with their timed cycles, the fastest first; ``firsts`` are those of primitives."""
    best = {id(option) for option in firsts}
    cycles, tiles = timer(kernel, candidates[0].schedule), candidates[0].tiles
    times = [(cycles, candidates[0])]
    for candidate in candidates[1:]:
        if cycles <= granule * (1 + budget.settled):
            break
        margin = max(budget.margin, budget.firsts * (id(candidate) in best))
        if candidate.cost > cycles * (1 + margin):
            continue
        if tiles + candidate.tiles > budget.timed_tiles:
            continue
        took = timer(kernel, candidate.schedule)
        cycles, tiles = min(cycles, took), tiles + candidate.tiles
        times.append((took, candidate))
    return sorted(times, key=lambda option: option[0])


def _remembering(timer: Timer) -> Timer:
    """The timer of one kernel with a memory: planners ask for the same schedules several times."""
    known: dict[Schedule, float] = {}

    def cycles(kernel: Kernel, schedule: Schedule) -> float:
        if schedule not in known:
            known[schedule] = timer(kernel, schedule)
        return known[schedule]

    return cycles


def plan_exact(
    kernel: Kernel, machine: Machine, *, timer: Timer | None = None, budget: Budget | None = None
) -> Plan:
    """The best schedule of a kernel whose primitives keep operands in software-managed memory.

    Raises TilewrightError when no primitive computes the kernel, no tile fits, or nothing is below
    the budget's limit (``plan-limit``).
    """
    budget = budget or Budget()
    keep = max(budget.timed, 1) if timer is not None else 1
    searches: list[tuple[Primitive, Search]] = []
    failures: list[TilewrightError] = []
    for primitive in agreeing(kernel, machine):
        try:
            searches.append((primitive, search(kernel, machine, primitive, budget, keep)))
        except TilewrightError as error:
            failures.append(error)
    if not searches:
        raise failures[0]
    physical = min(physical_bound(kernel, machine, p) for p, _ in searches)
    granule = min(granule_bound(kernel, machine, p) for p, _ in searches)
    every = [c for _, s in searches for c in s.candidates]
    if not every:
        reason = f"no plan takes less than {budget.limit:,.0f} cycles"
        raise refuse("plan-limit", reason, kernel.symbol, "raise Budget.limit")
    candidates = _distinct(every)
    # The best of every primitive is among them: the cost may misjudge all of another one's.
    firsts = [s.candidates[0] for _, s in searches if timer]
    kept = {id(c) for c in (*candidates[:keep], *firsts)}
    candidates = [c for c in candidates if id(c) in kept]
    times: list[tuple[float | None, Candidate]] = [(None, candidates[0])]
    if timer is not None:
        timer = _remembering(timer)
        times = [*_timed(kernel, candidates, firsts, timer, budget, granule)]
    cuts = tuple(dict.fromkeys(cut for _, s in searches for cut in s.cuts))
    cycles, option = times[0]
    chosen = Plan(
        schedule=option.schedule,
        predicted_cycles=option.cycles,
        moved_bytes=int(option.moved_bytes),
        physical_bound=physical,
        granule_bound=granule,
        candidates=sum(s.considered for _, s in searches),
        priced=sum(s.priced for _, s in searches),
        complete=not cuts,
        cuts=cuts,
        timed_cycles=cycles,
        timed=0 if cycles is None else len(times),
    )
    if timer is None or not budget.greedy:
        return chosen
    return _beside_greedy(kernel, machine, chosen, timer, budget)


def _beside_greedy(
    kernel: Kernel, machine: Machine, best: Plan, timer: Timer, budget: Budget
) -> Plan:
    """The plan, or the greedy planner's if that is faster."""
    for start, buffers in product(("granule", "one"), (2, 1)):
        if best.cycles <= best.granule_bound:
            break
        try:
            greedy = Greedy(start, buffers)(kernel, machine)
        except TilewrightError:
            # It starts from a tile that resident operands do not allow.
            continue
        if greedy.predicted_cycles > best.cycles * (1 + MISJUDGED):
            continue
        took = timer(kernel, greedy.schedule)
        best = replace(best, timed=best.timed + 1)
        if took < best.cycles:
            best = replace(
                best,
                schedule=greedy.schedule,
                predicted_cycles=greedy.predicted_cycles,
                moved_bytes=greedy.moved_bytes,
                timed_cycles=took,
            )
    return best

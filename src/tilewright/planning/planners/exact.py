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

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product, repeat
from math import prod

import numpy as np

from tilewright.errors import TilewrightError, refuse
from tilewright.machine import Machine, Primitive
from tilewright.planning.chains.units import Places, units_of
from tilewright.planning.cost.bounds import granule_bound, physical_bound
from tilewright.planning.cost.columns import Priced, cost_of, lower_bounds, price, rough_bounds
from tilewright.planning.cost.level_commands import price_levels
from tilewright.planning.domain import Kernel
from tilewright.planning.plan import Budget, Plan, Timer, timed
from tilewright.planning.planners.greedy import Greedy
from tilewright.planning.planners.schedules import agreeing, schedule_of
from tilewright.planning.schedule import Schedule
from tilewright.planning.space.cells import cells_of
from tilewright.planning.space.footprint import uses_of
from tilewright.planning.space.level_tiles import Inside, LevelTiling
from tilewright.planning.space.levels import inner_view, is_deep, merged_view
from tilewright.planning.space.nests import Arrangement
from tilewright.planning.space.outer_tiles import OuterSpace, outer_spaces
from tilewright.planning.space.sizes import EFFORTS
from tilewright.planning.space.tilings import Space, build_space, no_tile_fits

FIRST_BLOCK, BLOCK = 128, 1024
"""Tilings priced at once: few at first, so that the best bounds the rest."""

MISJUDGED = 1.0
"""A greedy tiling is timed unless its cost exceeds the best time by more: the cost is never that
much too high."""

FAR = 0.25
"""The excess over the granule bound, as a share, at which a best cost lets more sizes be
searched."""

INNER, WITHIN = 150, 8
"""Inner tilings that are kept, and around how many of them outer tiles are sought: of those that
cut the result alike, around the best. A larger tile of the result is the better one next to the
primitive; a smaller one may let more of an operand stay in the outer memory."""

LARGEST = 3
"""Around how many more outer tiles are sought: those of the largest tiles of the result, which may
cost more next to the primitive, and spare the outer memories most."""

AROUND = 12
"""Outer tilings around each of them whose commands may be timed."""

TOGETHER = 24
"""Schedules of several levels whose commands are timed, best cost by the closed form first."""

MISJUDGED_LEVELS = 0.25
"""The excess over the best cost, as a share, at which candidates of several levels are left out."""

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
    divided: Machine | None = None
    """The machine of which the two outermost levels were searched as one."""

    @property
    def kind(self) -> tuple[str, str]:
        """The key that candidates that mirror each other (oh for ow, say) have in common."""
        return _kind(self.cost, self.moved_bytes)

    @property
    def tiles(self) -> float:
        """The number of computes."""
        return self.space.computes(self.row)

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule of the candidate."""
        return self.tiling().whole if isinstance(self.space, OuterSpace) else self._single

    @property
    def _single(self) -> Schedule:
        """The schedule of the level that was searched."""
        return schedule_of(self.space, self.arrangement, self.row)

    def tiling(self, inside: Inside | None = None) -> LevelTiling:
        """The tiles of the level that was searched, and those within; ``inside`` a level around
        it, if given."""
        if not isinstance(self.space, OuterSpace):
            assert inside is not None
            return LevelTiling(inside, self._single)
        within, schedule = self.space.tiling(self.row), self._single
        around = inside or replace(
            within.inside, machine=self.divided or within.inside.machine, uses=self.space.uses
        )
        if self.divided is not None:
            same = replace(schedule, levels=(replace(schedule.levels[0], order=()),))
            within = LevelTiling(replace(within.inside, uses=self.space.uses), same, within)
        return LevelTiling(around, schedule, within)


@dataclass
class Search:
    """The outcome of a search: candidates by cost, best first, no two of a kind."""

    candidates: list[Candidate]
    considered: int
    priced: int
    cuts: list[str]


def search(
    kernel: Kernel,
    machine: Machine,
    primitive: Primitive,
    budget: Budget,
    keep: int,
    *,
    single_level: bool = False,
) -> Search:
    """The ``keep`` best schedules of a kernel on one primitive; with ``single_level``, of those
    whose nests have one level."""
    if is_deep(machine, primitive):
        return search_levels(kernel, machine, primitive, budget)
    result = Search([], 0, 0, [])
    for efforts in (EFFORTS, EFFORTS[-1:]):
        space = build_space(kernel, machine, primitive, budget.rows, efforts)
        space.single_level = single_level
        result = _searched(space, result, budget, keep)
        best = result.candidates[0].cost if result.candidates else np.inf
        if not result.candidates and budget.limit < np.inf:
            break  # Sizes that are rarely better would have to be below the limit at once.
        if best <= granule_bound(kernel, machine, primitive) * (1 + FAR):
            break
    return result


def search_levels(kernel: Kernel, machine: Machine, primitive: Primitive, budget: Budget) -> Search:
    """The best schedule of several levels; see planning/space/levels.py."""
    best = level_candidates(kernel, machine, primitive, budget)
    merged = [candidate for candidate in best.candidates if candidate.divided is not None]
    own = [candidate for candidate in best.candidates if candidate.divided is None]
    candidates = sorted(_apart(own) + _apart(merged), key=lambda each: each.cost)
    if primitive.sizes != "fixed":  # Its instances have no chains; the closed form is their cost.
        places = Places(units_of(kernel, machine, (primitive,)), machine)
        candidates = _in_one_pipeline(candidates, places, machine)
    return replace(best, candidates=_distinct(candidates, 1))


def level_candidates(
    kernel: Kernel, machine: Machine, primitive: Primitive, budget: Budget
) -> Search:
    """The best schedules of several levels by the closed form: outermost tiles around the best
    tilings of a machine whose outermost memories hold all, which may have several levels itself;
    and those in which the two outermost levels have the same tile."""
    view = inner_view(machine, primitive)
    if is_deep(view, primitive):
        within = level_candidates(kernel, view, primitive, budget)
    else:
        within = search(kernel, view, primitive, budget, INNER, single_level=True)
    best = Search([], within.considered, within.priced, within.cuts)
    for space in outer_spaces(
        inner_tilings(within.candidates, kernel, machine, primitive), budget.rows
    ):
        best = _searched(space, best, budget, AROUND * len(space.inner))
    if not best.candidates:
        raise no_tile_fits(kernel, machine, uses_of(kernel, view, primitive))
    merged = merged_view(machine, primitive)
    if merged is None:
        return best
    try:
        other = level_candidates(kernel, merged, primitive, budget)
    except TilewrightError:
        return best  # The tiles of one level do not fit the memories of both.
    divided = [replace(c, divided=machine) for c in other.candidates if c.divided is None]
    return Search(
        sorted((*best.candidates, *divided), key=lambda each: each.cost),
        best.considered + other.considered,
        best.priced + other.priced,
        best.cuts + other.cuts,
    )


def _apart(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The best by the closed form, no more around each inner tiling than may be."""
    count: Counter[int] = Counter()
    chosen: list[Candidate] = []
    for candidate in candidates:
        assert isinstance(candidate.space, OuterSpace)
        inner = id(candidate.space.tiling(candidate.row))
        count[inner] += 1
        if count[inner] <= AROUND and len(chosen) < TOGETHER:
            chosen.append(candidate)
    return chosen


def inner_tilings(
    candidates: Sequence[Candidate], kernel: Kernel, machine: Machine, primitive: Primitive
) -> list[LevelTiling]:
    """The inner tilings around which outer ones are sought, of those that cut the result alike the
    best."""
    parallel = [dim for dim in kernel.anchor.extents if dim not in kernel.anchor.reduction]
    tilings: dict[tuple[int, ...], LevelTiling] = {}
    inside = Inside(kernel, machine, primitive, candidates[0].space.uses if candidates else ())
    for candidate in candidates:
        cut = tuple(int(candidate.space.size(dim)[candidate.row]) for dim in parallel)
        if cut in tilings:
            continue
        tiling = candidate.tiling(inside)
        if tiling.fits:
            tilings[cut] = tiling
    ranked = list(tilings)
    # The larger a tile of the result, the less is loaded for all of it. Only around one innermost
    # tile of the result may a reduction be cut.
    largest = sorted(ranked[WITHIN:], key=lambda cut: -prod(cut))[:LARGEST]
    chosen = [*ranked[:WITHIN], *largest]
    single = [cut for cut in ranked if tilings[cut].within and tilings[cut].is_one_result]
    chosen += [cut for cut in single[:LARGEST] if cut not in chosen]
    return [tilings[cut] for cut in chosen]


def _in_one_pipeline(
    candidates: list[Candidate], places: Places, machine: Machine
) -> list[Candidate]:
    """The best candidates with the cycles of their commands, in which all hops share the engines;
    those whose commands are too many stay as the closed form has them. Of those that cannot be the
    best the cycles are lower bounds."""
    priced: list[Candidate] = []
    best = np.inf
    for candidate in candidates:
        if candidate.cost > best * (1 + MISJUDGED_LEVELS):
            break
        known = price_levels(places, machine, candidate.schedule, best)
        if known is not None:
            cycles, moved = known
            cost = cost_of(cycles, moved, machine)
            candidate = replace(candidate, cost=cost, cycles=cycles, moved_bytes=moved)
        priced.append(candidate)
        best = min(best, candidate.cost)
    return priced


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


def _distinct(candidates: list[Candidate], keep: int) -> list[Candidate]:
    """The best by cost, of those that mirror each other the first found."""
    by_kind: dict[tuple[str, str], Candidate] = {}
    for candidate in sorted(candidates, key=lambda c: (c.cost, c.moved_bytes)):
        by_kind.setdefault(candidate.kind, candidate)
        if len(by_kind) == keep:
            break
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
    """The timer of one kernel: planners come upon the same schedules."""
    known: dict[Schedule, float] = {}

    def cycles(kernel: Kernel, schedule: Schedule) -> float:
        if schedule not in known:
            known[schedule] = timer(kernel, schedule)
        return known[schedule]

    return cycles


def priced_first(kernel: Kernel, machine: Machine) -> bool:
    """Return True if a kernel's plan is found without a timer, which then times it: with several
    levels all commands are timed to price it (cost/level_commands.py)."""
    return all(is_deep(machine, primitive) for primitive in agreeing(kernel, machine))


def plan_exact(
    kernel: Kernel, machine: Machine, *, timer: Timer | None = None, budget: Budget | None = None
) -> Plan:
    """The best schedule of a kernel whose primitives keep operands in software-managed memory.

    Raises TilewrightError when no primitive computes the kernel, no tile fits, or nothing is below
    the budget's limit (``plan-limit``).
    """
    budget = budget or Budget()
    if timer is not None and priced_first(kernel, machine):
        return timed(plan_exact(kernel, machine, budget=budget), kernel, timer)
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
    candidates = _distinct(every, len(every))
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

"""Searches for the points that a sweep tries: all, some at random, or those near the best.

A search gives one batch of points after the other, and is sent the rows of each: what it tries
depends on rows alone, not on the order in which they were finished.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from tilewright.errors import choose, refuse
from tilewright.sweeps.rows import Objective, Row
from tilewright.sweeps.space import MOST_POINTS, Point, Space
from tilewright.system.choices import SEARCHES
from tilewright.system.extras import library

Search = Generator[list[Point], list[Row], None]

SAMPLES = 100
"""Points of a random or Pareto search unless a number is given."""

POPULATION = 20
"""Points of a generation of NSGA-II."""


def search_of(
    name: str, space: Space, objectives: Sequence[Objective], samples: int | None, seed: int
) -> tuple[Search, int]:
    """A search by its name, and how many points it tries at most.

    Raises TilewrightError (``sweep-search``, ``sweep-range``, ``sweep-extra``).
    """
    if name not in SEARCHES:
        raise refuse("sweep-search", f"no search {name[:80]!r}", help=choose(name, SEARCHES))
    if name == "grid" and samples is not None:
        reason = "a grid has all of its points"
        raise refuse("sweep-search", reason, "--samples", "--search random tries some")
    if name == "grid" and seed:
        reason = "nothing of a grid is random"
        raise refuse("sweep-search", reason, "--seed", "--search random or pareto takes one")
    count = space.count if name == "grid" else min(samples or SAMPLES, space.count)
    if count > MOST_POINTS:
        reason = f"there are {count:,} points; at most {MOST_POINTS:,} are tried"
        help = "--search random or pareto with --samples tries some of them"
        raise refuse("sweep-range", reason, "--vary", help)
    if name == "pareto":
        return _pareto(space, objectives, count, seed), count
    if name == "random" and count < space.count:
        return _once([space.numbered(n) for n in _numbers(space.count, count, seed)]), count
    return _once(list(space)), count


def _once(points: list[Point]) -> Search:
    yield points


def _numbers(every: int, count: int, seed: int) -> list[int]:
    """Distinct numbers in ascending order, so that neighbours share what they can."""
    return sorted(random.Random(seed).sample(range(every), count))


def _pareto(space: Space, objectives: Sequence[Objective], count: int, seed: int) -> Search:
    """NSGA-II (Deb et al., 2002) by Optuna, a model after the other; whole generations at a time.

    Each value is a whole number to it, its place along its axis, so that near values are near.
    """
    with warnings.catch_warnings():
        # Its dependencies deprecate what it uses.
        warnings.simplefilter("ignore")
        optuna = library("optuna", "sweep", "sweep-extra", "Pareto fronts")
    return _generations(optuna, space, objectives, count, seed)


def _generations(
    optuna: Any, space: Space, objectives: Sequence[Objective], count: int, seed: int
) -> Search:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    for number, model in enumerate(space.models):
        single = Space((model,), space.planners, space.axes)
        share = count // len(space.models) + (number < count % len(space.models))
        yield from _of_model(optuna, single, objectives, share, seed)


def _of_model(
    optuna: Any, space: Space, objectives: Sequence[Objective], count: int, seed: int
) -> Search:
    size = max(min(POPULATION, count // 2), 2)
    sampler = optuna.samplers.NSGAIISampler(population_size=size, seed=seed)
    study = optuna.create_study(directions=["minimize"] * len(objectives), sampler=sampler)
    places = {
        str(axis): optuna.distributions.IntDistribution(0, length - 1)
        for axis, length in enumerate(space.sizes)
    }
    known: dict[Point, Row] = {}
    failure, asked = optuna.trial.TrialState.FAIL, 0
    # Points that come again cost nothing; there may be few others.
    while len(known) < count and asked < 20 * count:
        trials = [study.ask(places) for _ in range(size)]
        asked += size
        points = [space.point([trial.params[key] for key in places]) for trial in trials]
        fresh = [point for point in dict.fromkeys(points) if point not in known]
        fresh = fresh[: count - len(known)]
        if fresh:
            rows = yield fresh
            known |= zip(fresh, rows, strict=True)
        for trial, point in zip(trials, points, strict=True):
            row = known.get(point)
            costs = [None if row is None else each.cost(row) for each in objectives]
            if row is None or row.status != "planned" or None in costs:
                study.tell(trial, state=failure)
            else:
                study.tell(trial, costs)


def batches(search: Search, rows_of: Any) -> Iterator[tuple[Point, Row]]:
    """The points of a search with their rows, which ``rows_of`` finds for a batch."""
    points = next(search, None)
    while points is not None:
        rows: list[Row] = rows_of(points)
        yield from zip(points, rows, strict=True)
        try:
            points = search.send(rows)
        except StopIteration:
            return

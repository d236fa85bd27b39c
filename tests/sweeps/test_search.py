"""Searches try what they say, the same points every time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.sweeps.models import MACHINE, small_model
from tilewright.compiler.pipeline import resolve
from tilewright.errors import TilewrightError
from tilewright.sweeps.rows import Objective, Row
from tilewright.sweeps.run import sweep
from tilewright.sweeps.search import batches, search_of
from tilewright.sweeps.space import Point, Space, axis_of, space_of


def space(models: tuple[str, ...] = ("a",)) -> Space:
    _, machine = resolve(MACHINE)
    axes = [axis_of("memory.feature.bytes=1..64:+1"), axis_of("clock_hz=1..64:+1")]
    return space_of(models, "model", axes, machine)


def cost(point: Point) -> Row:
    """Two ends of a trade: memory against cycles; small clocks cost nothing but time."""
    values = dict(point.values)
    memory, clock = (int(values[key]) for key in ("memory.feature.bytes", "clock_hz"))
    cycles = 1000 / memory + 3 * (64 - clock)
    status = "refused" if memory == 7 else "planned"
    return Row(point.model, point.planner, values, status, cycles=cycles)


AIMS = [Objective("cycles"), Objective("memory.feature.bytes")]


def tried(name: str, samples: int | None, seed: int = 0, of: Space | None = None) -> list[Point]:
    search, _ = search_of(name, of or space(), AIMS, samples, seed)
    return [point for point, _ in batches(search, lambda points: [cost(p) for p in points])]


def test_grid_tries_every_point_in_order() -> None:
    assert tried("grid", None) == list(space())


def test_random_tries_distinct_points_the_same_for_a_seed() -> None:
    first = tried("random", 50, seed=1)
    assert len(set(first)) == len(first) == 50
    assert set(first) <= set(space())
    assert first == tried("random", 50, seed=1)
    assert first != tried("random", 50, seed=2)
    assert tried("random", 10**6) == list(space())


def test_pareto_comes_nearer_to_the_front_than_random() -> None:
    pytest.importorskip("optuna")

    def dominated(points: list[Point]) -> float:
        """The area of costs, up to 1,300 cycles and 64 bytes, that some points better."""
        rows = [row for row in map(cost, points) if row.status == "planned"]
        fastest = np.full(65, 1300.0)
        for row in rows:
            memory = int(row.values["memory.feature.bytes"])
            fastest[memory] = min(fastest[memory], row.cycles or 0.0)
        return float((1300.0 - np.minimum.accumulate(fastest)).sum())

    found = tried("pareto", 300, seed=3)
    assert len(set(found)) == len(found) <= 300
    assert found == tried("pareto", 300, seed=3)
    assert set(found) <= set(space())
    best = [dominated(tried("random", len(found), seed=seed)) for seed in range(5)]
    assert dominated(found) > sum(best) / len(best)


def test_pareto_shares_its_points_among_models_and_ends_in_small_spaces() -> None:
    pytest.importorskip("optuna")
    _, machine = resolve(MACHINE)
    small = space_of(["a", "b"], "model", [axis_of("clock_hz=1..3:+1")], machine)
    search, count = search_of("pareto", small, [Objective("clock_hz")], 100, 0)
    rows = dict(batches(search, lambda points: [Row(p.model, p.planner) for p in points]))
    assert count == 6
    assert set(rows) == set(small)


def test_searches_that_do_not_exist_or_are_too_large_are_refused() -> None:
    _, machine = resolve(MACHINE)
    axes = [axis_of(f"{key}=1..2000:+1") for key in ("clock_hz", "memory.feature.bytes")]
    large = space_of(["a"], "model", axes, machine)
    for name, samples, code in (
        ("gird", None, "sweep-search"),
        ("grid", 5, "sweep-search"),
        ("grid", None, "sweep-range"),
        ("random", 2_000_000, "sweep-range"),
    ):
        with pytest.raises(TilewrightError) as caught:
            search_of(name, large, AIMS, samples, 0)
        assert caught.value.problems[0].code == code
    assert len(tried("random", 5, of=large)) == 5


def test_a_pareto_sweep_of_a_model(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    model, vary = small_model(tmp_path), {"memory.feature.bytes": "1K..32K:2x"}
    grid = sweep(model, MACHINE, vary)
    found = sweep(model, MACHINE, vary, search="pareto", samples=6)
    known = {row.values["memory.feature.bytes"]: row.cycles for row in grid}
    assert all(known[row.values["memory.feature.bytes"]] == row.cycles for row in found)
    assert any(row.pareto for row in found)

"""swATOP's page for SW26010: doubles as a variant for timing, and results written by hand."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from benchmarks.papers.swatop_sunway.experiments import ELEMENTS, fits_table, tables
from benchmarks.papers.swatop_sunway.kernels import convolution
from benchmarks.papers.swatop_sunway.listing import CHECKED, Sizes, rows_of, scattered

from tilewright.planning import Planner
from tilewright.planning.planners.swatop import Swatop
from tilewright.targets.sunway.machine import MACHINE
from tilewright.targets.sunway.mesh import MESH


def test_doubles_take_more_bytes_and_as_many_instructions() -> None:
    search = Swatop(mesh=MESH)
    single, double = (
        Planner(MACHINE, search=search).plan(convolution(4, 64, 32, 8, element=element))
        for element in ELEMENTS[::-1]
    )
    # Transactions of 128 bytes, which short rows do not fill, hide a part of the difference.
    assert single.moved_bytes < double.moved_bytes <= 2 * single.moved_bytes
    assert single.predicted_cycles < double.predicted_cycles <= 2 * single.predicted_cycles


def test_results_by_hand_come_from_a_file(request: pytest.FixtureRequest) -> None:
    """``pytest --swdnn FILE``: swDNN's, of which each line is batch, Ni, No, Ro, GFLOPS."""
    file = request.config.getoption("--swdnn")
    if file is None:
        pytest.skip("no file given (--swdnn)")
    (table,) = tables([file])
    lines = [line for line in Path(file).read_text().splitlines() if line.strip()]
    assert len(table.rows) == len(lines) > 0
    assert mean(row["ratio"] >= 1 for row in table.rows) >= 0.95
    assert all(row["efficiency"] < 1 and row["float64"] < row["float32"] for row in table.rows)


@pytest.mark.slow
def test_eq_2_holds_for_sizes_that_it_was_not_fitted_to() -> None:
    rows = {str(row["name"]): row for row in fits_table(60).rows}
    variants = {name.split(",")[0] for name in rows if name.endswith("mended")}
    assert len(variants) == 8
    turned = {name.split(",")[0] for name in rows if name.endswith("turned")}
    assert len(turned) == 4
    for name in variants:
        # Vectors that lie across are turned first, which is a term of its own.
        own = rows[f"{name}, {'turned' if name in turned else 'mended'}"]
        assert own["mean"] < 0.02 and own["worst"] < 0.06
        assert rows[f"{name}, mended"]["mean"] < rows[f"{name}, printed"]["mean"]
    assert rows["swGEMM's tuner, measured"]["step"] == 22.88


def share(case: Sizes) -> dict[str, Any]:
    return {"name": str(case), "share": case[0] / case[1] / 3}


def test_cases_are_kept_one_by_one_and_planned_once(tmp_path: Path) -> None:
    path = tmp_path / "listing.jsonl"
    cases = [(a, b, 8) for a in range(1, 6) for b in range(1, 6)]
    asked: list[Sizes] = []

    def planned(case: Sizes) -> dict[str, Any]:
        asked.append(case)
        if len(asked) == 15:
            raise KeyboardInterrupt
        return share(case)

    with pytest.raises(KeyboardInterrupt):
        rows_of(cases, planned, path)
    before, first = asked[:14], path.read_text()
    assert len(first.splitlines()) == len(before)
    path.write_text(first + '{"case": "3x')  # A line that was cut off.
    rows = rows_of(cases, planned, path, resume=True)
    assert path.read_text().startswith(first)
    assert asked[15 : 15 + CHECKED] == before[:CHECKED]
    assert sorted([*before, *asked[15 + CHECKED :]]) == cases
    assert [row["name"] for row in rows] == [str(case) for case in cases]
    assert rows[0] == {"name": "(1, 1, 8)", "share": 0.333333}
    # Runs that were cut and whole ones keep the same bytes.
    other = tmp_path / "other.jsonl"
    rows_of(cases, share, other)
    assert other.read_text() == path.read_text()
    # Nothing is begun where there is no time.
    assert rows_of(cases, planned, path, resume=True, seconds=0) == rows
    assert rows_of(cases, planned, path, seconds=0) == []


def test_cases_that_are_planned_otherwise_begin_anew(tmp_path: Path) -> None:
    path = tmp_path / "listing.jsonl"
    cases = [(place, 1, 1) for place in range(20)]
    rows_of(cases, share, path)
    rows = rows_of(cases, lambda case: share(case) | {"share": 1.0}, path, resume=True)
    assert [row["share"] for row in rows] == [1.0] * 20


def test_the_order_of_cases_visits_each_once() -> None:
    for count in (9, 100, 559):
        cases = [(place, 1, 1) for place in range(count)]
        assert sorted(scattered(cases)) == cases

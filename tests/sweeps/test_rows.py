"""Rows as tables, and the Pareto front against its definition."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

from tests.sweeps.models import MACHINE
from tilewright.compiler.pipeline import resolve
from tilewright.errors import TilewrightError
from tilewright.sweeps.rows import Objective, Row, Rows, front, marked, objectives_of
from tilewright.sweeps.run import csv_of, parquet_of
from tilewright.sweeps.space import axis_of, space_of


def by_definition(costs: np.ndarray) -> list[int]:
    return [
        number
        for number, cost in enumerate(costs)
        if not any((other <= cost).all() and (other < cost).any() for other in costs)
    ]


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
def test_front_is_what_no_row_betters(objectives: int) -> None:
    random = np.random.default_rng(objectives)
    for count in (0, 1, 2, 50, 200):
        # Few values, so that rows are equal in some or all objectives.
        costs = random.integers(0, 8, (count, objectives)).astype(np.float64)
        assert front(costs) == by_definition(costs)


def test_models_do_not_better_each_other_and_refused_rows_are_no_best() -> None:
    rows = [
        Row("a", "model", {"k": 1}, cycles=10.0),
        Row("a", "model", {"k": 2}, cycles=20.0),
        Row("b", "model", {"k": 1}, cycles=99.0),
        Row("a", "model", {"k": 0}, "refused", code="plan-capacity"),
    ]
    assert [row.pareto for row in marked(rows, [Objective("cycles")])] == [
        True, False, True, False,
    ]  # fmt: skip
    largest = marked(rows, [Objective("cycles"), Objective("k", largest=True)])
    assert [row.pareto for row in largest] == [True, True, True, False]


def test_rows_with_more_kernels_on_the_host_better_none_with_fewer() -> None:
    """The time of what the host takes is in no column."""
    rows = [
        Row("a", "model", {"x": 1}, cycles=10.0, seconds=1.0, host_kernels=7),
        Row("a", "model", {"x": 2}, cycles=20.0, seconds=2.0, host_kernels=3),
        Row("a", "model", {"x": 3}, cycles=20.0, seconds=2.0, host_kernels=3),
    ]
    found = marked(rows, [Objective("seconds"), Objective("x")])
    assert [row.pareto for row in found] == [True, True, False]


def test_a_row_survives_json() -> None:
    row = Row("a", "model", {"k": 1, "s": "x"}, cycles=0.1 + 0.2, peak_bytes={"sram": 5})
    assert Row.from_json(json.loads(json.dumps(row.to_json()))) == row


def test_csv_has_a_column_for_each_key_and_memory() -> None:
    rows = Rows(
        [
            Row("a", "model", {"k": 1}, cycles=10.0, seconds=1e-7, peak_bytes={"sram": 5}),
            Row("a", "model", {"k": 2}, "refused", code="machine-invalid", reason='no, "really"'),
        ]
    )
    first, second = csv.DictReader(io.StringIO(csv_of(rows)))
    assert (first["k"], first["cycles"], first["seconds"]) == ("1", "10", "1e-07")
    assert (first["peak_bytes.sram"], first["pareto"]) == ("5", "false")
    assert (second["status"], second["cycles"]) == ("refused", "")
    assert (second["code"], second["reason"]) == ("machine-invalid", 'no, "really"')
    assert "energy_pj" not in first


def test_energy_is_a_column_where_a_row_has_it() -> None:
    rows = Rows([Row("a", "model", cycles=1.0, energy_pj=2.5), Row("b", "model", cycles=1.0)])
    lines = list(csv.DictReader(io.StringIO(csv_of(rows))))
    assert [line["energy_pj"] for line in lines] == ["2.5", ""]


def test_parquet_holds_what_the_table_does() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow = pytest.importorskip("pyarrow")
    rows = Rows([Row("a", "model", {"k": 1}, cycles=10.0), Row("a", "model", {"k": "none"})])
    data = parquet_of(rows)
    assert data == parquet_of(rows)
    lines = parquet.read_table(arrow.BufferReader(data)).to_pylist()
    assert [line["k"] for line in lines] == ["1", "none"]
    assert [line["cycles"] for line in lines] == [10.0, None]


def test_frames_hold_what_the_table_does() -> None:
    pytest.importorskip("pandas")
    frame = Rows([Row("a", "model", {"k": 1}, cycles=10.0)]).to_frame()
    assert frame["k"].tolist() == [1]
    assert frame["cycles"].tolist() == [10.0]


def test_objectives_by_name() -> None:
    _, machine = resolve(MACHINE)
    axes = [axis_of("memory.feature.bytes=1K,2K"), axis_of("clock_hz=1e8")]
    space = space_of(["a"], "model", axes, machine)
    assert objectives_of([], space, []) == [
        Objective("seconds"), Objective("memory.feature.bytes"),
    ]  # fmt: skip
    assert objectives_of(["-cycles", "peak_bytes.feature"], space, ["feature"]) == [
        Objective("cycles", largest=True), Objective("peak_bytes.feature"),
    ]  # fmt: skip
    with pytest.raises(TilewrightError) as caught:
        objectives_of(["cycels"], space, [])
    assert caught.value.problems[0].code == "sweep-objective"
    assert "cycles" in caught.value.problems[0].help


def test_notebooks_show_rows_as_a_table_escaped() -> None:
    best = Row("a<b>.onnx", "model", {"clock_hz": 8}, cycles=1234.0, seconds=1e-3, pareto=True)
    refused = Row("b.onnx", "model", {"clock_hz": 9}, "refused", code="plan-capacity")
    html = Rows([best, refused])._repr_html_()
    assert html.startswith("<table>") and html.endswith("</table>")
    assert html.count("<tr>") == 3 and "2 of 2 points" in html
    assert "a&lt;b&gt;.onnx" in html and "<b>" not in html
    assert "<td>*</td>" in html and "1,234" in html and "plan-capacity" in html
    assert "1 of 1 points" in best._repr_html_() and "code" not in best._repr_html_()
    many = Rows([refused] * 100 + [best])
    assert many._repr_html_().count("<tr>") == 2

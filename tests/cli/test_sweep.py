"""``tilewright sweep`` as a user types it: tables, JSON, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.sweeps.models import MACHINE, small_model
from tilewright.cli.main import app


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["sweep", *map(str, arguments), "--quiet"])


def test_a_table_with_the_front_marked(tmp_path: Path) -> None:
    output = tmp_path / "rows.csv"
    result = call(
        small_model(tmp_path), "-t", MACHINE, "-o", output,
        "--vary", "memory.feature.bytes=1K,2K,1M,2M", "--vary", "planner=model,greedy",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    table = result.output.splitlines()
    assert table[0].split()[:3] == ["planner", "memory.feature.bytes", "cycles"]
    # Twice the memory for nothing is on no front.
    by_key = {tuple(line.lstrip("* ").split()[:2]): line[0] for line in table[1:9]}
    assert by_key["model", "1,024"] == "*"
    assert by_key["model", "2,097,152"] == " "
    assert f"8rowsin{output}" in "".join(result.output.split())  # Long paths are folded.
    assert output.read_text().startswith("model,planner,memory.feature.bytes,status,cycles,")


def test_json_has_the_rows_of_the_file(tmp_path: Path) -> None:
    result = call(
        small_model(tmp_path), "-t", MACHINE, "-o", tmp_path / "rows.csv", "--json",
        "--vary", "memory.feature.bytes=1K,0", "--objective", "cycles",
    )  # fmt: skip
    rows = json.loads(result.output)["rows"]
    assert [row["status"] for row in rows] == ["planned", "refused"]
    assert [row["pareto"] for row in rows] == [True, False]
    assert rows[1]["code"] == "machine-invalid"


def test_a_sweep_of_which_every_point_is_refused_fails(tmp_path: Path) -> None:
    output = tmp_path / "rows.csv"
    result = call(
        small_model(tmp_path), "-t", MACHINE, "-o", output, "--vary", "memory.feature.bytes=0,-1"
    )
    assert result.exit_code == 1
    assert "2 refused" in result.output
    assert len(output.read_text().splitlines()) == 3, "the rows say why"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("--vary memory.featur.bytes=1K", "sweep-key"),
        ("--vary clock_hz=2..1:+1", "sweep-range"),
        ("--vary clock_hz=1..2:1x", "sweep-range"),
        ("--vary clock_hz", "sweep-vary"),
        ("--vary planner=modle", "option-planner"),
        ("--vary planner=model,greedy{start=big}", "option-planner"),
        ("--vary model=nowhere.onnx", "model-missing"),
        ("--search griddy", "sweep-search"),
        ("--effort none", "sweep-search"),
        ("--objective cost", "sweep-objective"),
        ("--numbers int7", "numbers-format"),
        ("--constant size=1", "input-name"),
        ("--on kubernetes", "sweep-cluster"),
    ],
)
def test_what_is_wrong_is_told_before_anything_runs(
    options: str, code: str, tmp_path: Path
) -> None:
    output = tmp_path / "rows.csv"
    result = call(small_model(tmp_path), "-t", MACHINE, "-o", output, *options.split())
    assert result.exit_code == 2
    assert f"[{code}]" in result.output
    assert "Traceback" not in result.output
    assert not output.exists()
    journal = tmp_path / "rows.csv.journal"
    assert not journal.exists() or len(journal.read_text().splitlines()) == 1


def test_a_damaged_model_is_refused(tmp_path: Path) -> None:
    model = tmp_path / "broken.onnx"
    model.write_bytes(b"not a model")
    result = call(model, "-t", MACHINE, "-o", tmp_path / "rows.csv")
    assert result.exit_code == 2
    assert "[onnx-" in result.output

"""Every table of benchmarks/ on one network, in this process; times are not looked at."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from benchmarks.papers.dlir import experiments as dlir
from benchmarks.tables import (
    cambricon_x,
    compiling,
    cpu,
    importing,
    planner,
    prediction,
    scaling,
    simulation,
)
from onnx import TensorProto, helper, numpy_helper

from benchmarks import __main__ as command
from benchmarks import measuring, report

MODULES = (cambricon_x, compiling, cpu, dlir, importing, planner, prediction, scaling, simulation)


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    def here(cores: int, function: Callable[..., Any], *arguments: Any) -> Any:
        assert cores in (1, 2)
        return function(*arguments)

    for module in MODULES:
        monkeypatch.setattr(module, "alone", here)
    monkeypatch.setattr(cpu, "ROUNDS", 2)
    monkeypatch.setattr(cpu, "SECONDS", 0.0)
    monkeypatch.setattr(cpu, "KEPT", tmp_path / "rows")
    monkeypatch.setattr(measuring, "MODELS", tmp_path / "models")
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")


@pytest.fixture
def small(in_this_process: None) -> None:
    """A network of four layers under the name of LeNet-5, whose first ones it has."""
    random = np.random.default_rng(3)
    shapes = {"w1": (6, 1, 5, 5), "b1": (6,), "w2": (20, 216), "b2": (20,)}
    weights = [
        numpy_helper.from_array(random.normal(0, 0.2, shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["image", "w1", "b1"], ["a"], "conv1"),
        helper.make_node("Relu", ["a"], ["b"], "relu1"),
        helper.make_node("MaxPool", ["b"], ["c"], "pool1", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["c"], ["d"], "flatten"),
        helper.make_node("Gemm", ["d", "w2", "b2"], ["e"], "fc1", transB=1),
        helper.make_node("Softmax", ["e"], ["y"], "softmax"),
    ]
    inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, (1, 1, 16, 16))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 20))]
    graph = helper.make_graph(nodes, "small", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    measuring.MODELS.mkdir()
    onnx.save(model, measuring.MODELS / "lenet5.onnx")


@pytest.mark.usefixtures("small")
@pytest.mark.slow
def test_cambricon_x_is_exact_and_below_its_bounds() -> None:
    efficiency, deviation, runs, low = cambricon_x.tables(["lenet5"])
    assert [row["part"] for row in efficiency.rows] == ["all", "convolutions"] * 2
    whole = efficiency.rows[0]
    assert whole["kernels"] == 4
    assert efficiency.rows[1]["kernels"] == 1
    for row in efficiency.rows:
        assert row["physical_bound"] <= row["granule_bound"] <= row["cycles"]
        assert 0 < row["mean_granule_efficiency"] <= 1
        assert row["mean_deviation"] <= row["worst_deviation"]
    assert efficiency.rows[2]["cycles"] < whole["cycles"], "latencies that overlap cost less"
    assert [row["passed"] for row in runs.rows] == [True, True]
    assert all(row["reason"] for row in low.rows)
    assert "k0_conv1" in low.markdown()
    assert deviation.markdown().count("\n|") == 6


@pytest.mark.usefixtures("small")
@pytest.mark.slow
def test_dlir_compares_planners_on_its_machines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(dlir, "KEPT", tmp_path)
    monkeypatch.setattr(dlir, "TARGETS", ("cambricon-x", "shidiannao"))
    monkeypatch.setattr(dlir, "published", dict)
    efficiency, overall, beside, buffering, split = dlir.tables(["lenet5"])
    assert not beside.rows
    for row in efficiency.rows:
        assert row["passed"] and row["host"] == 0 and row["kernels"] == 4
        assert row["physical_bound"] <= row["granule_bound"] <= row["cycles"]
    assert [row["networks"] for row in overall.rows] == [1, 1]
    for row in buffering.rows:
        assert row["best_gain"] >= max(row["gain"], 0)
    assert [row["paper"] for row in buffering.rows if row["network"] == "mean of 1"] == [
        0.0329,
        0.0127,
    ]
    assert [row["start"] for row in split.rows] == ["one", "granule"] * 2
    for row in split.rows:
        assert row["slower"] > 0.99 and 0 < row["steps"] < row["tilings"]
    # A second run takes what the first has kept, and begins nothing that there is no time for.
    again = dlir.tables(["lenet5"], resume=True, seconds=0)
    assert again[0].markdown() == efficiency.markdown()
    short = dlir.tables(["lenet5", "vgg16"], resume=True, seconds=0)
    assert "Not measured: vgg16 on cambricon-x" in short[0].remarks[-1]
    # Rows of other code are measured anew where there is time, and else told from the others.
    monkeypatch.setattr(dlir, "code_of", lambda target: f"{target}!")
    older = dlir.tables(["lenet5"], resume=True, targets=["shidiannao"])
    assert older[0].rows[0]["code"] == f"{efficiency.rows[0]['code']}, older"
    assert older[0].rows[1]["code"] == "shidiannao!"
    assert older[0].rows[1]["cycles"] == efficiency.rows[1]["cycles"]


@pytest.mark.usefixtures("planned_anew", "small")
@pytest.mark.slow
def test_planner_counts_every_kernel() -> None:
    (table,) = planner.tables(["lenet5"])
    assert [row["target"] for row in table.rows] == list(planner.TARGETS)
    assert all(row["kernels"] == 4 and row["candidates"] >= 4 for row in table.rows)


@pytest.mark.usefixtures("small")
@pytest.mark.slow
def test_compile_names_every_stage() -> None:
    from tilewright.compiler.pipeline import PIPELINE

    (table,) = compiling.tables(["lenet5"])
    stages = [*(stage.name for stage in PIPELINE), "emit", "load"]
    for row in table.rows:
        assert set(stages) <= row.keys()
        assert row["total"] == pytest.approx(sum(row[stage] for stage in stages))


def test_import_tells_time_and_memory() -> None:
    (table,) = importing.tables(["lenet5"])
    (row,) = table.rows
    assert 0 < row["weight_bytes"] <= row["file_bytes"] < row["process_bytes"]
    assert row["ratio"] == row["process_bytes"] / row["file_bytes"]


@pytest.mark.slow
def test_scaling_compiles_three_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {
        name: replace(family, least=4)
        for name, family in scaling.FAMILIES.items()
        if family.target in ("cpu", scaling.SMALL_NPU)
    }
    monkeypatch.setattr(scaling, "FAMILIES", small)
    monkeypatch.setattr(scaling, "FLOOR", (10, 20))
    measured, floors = scaling.tables(list(small))
    assert [row["n"] for row in measured.rows] == [4] * len(small)
    for row in measured.rows:
        assert min(row["once"], row["twice"], row["four"]) > 0
        assert row["ratio"] == row["four"] / row["once"]
    assert [row["nodes"] for row in floors.rows] == [10, 20]


@pytest.mark.slow
def test_cpu_agrees_with_its_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, memory, compiled, roofline, slow = cpu.tables(["lenet5"])
    assert roofline.rows[0]["kernels"] == 8
    assert 0 <= roofline.rows[0]["low"] <= 8
    assert all(row["efficiency"] < 0.7 and row["reason"] for row in slow.rows)
    assert [table.rows[0]["threads"] for table in (one, two)] == [1, 2]
    for table in (one, two):
        assert table.rows[0]["error"] < 1e-5
        assert table.rows[0]["ratio"] > 0
    taken = memory.rows[0]
    # LeNet-5 has 430 thousand weights or less, of four bytes.
    assert 100_000 < taken["bound"] <= taken["arenas"] < 2_000_000
    assert taken["growth"] >= 0 and taken["ONNX Runtime"] >= 0
    assert 0 <= compiled.rows[0]["c_seconds"] < compiled.rows[0]["compile_seconds"]

    def refuse(name: str, *more: object) -> dict[str, Any]:
        raise AssertionError(f"{name} was kept")

    monkeypatch.setattr(cpu, "building", refuse)
    monkeypatch.setattr(cpu, "timing", refuse)
    again = cpu.tables(["lenet5"], resume=True)
    assert [table.markdown() for table in again] == [
        table.markdown() for table in (one, two, memory, compiled, roofline, slow)
    ]
    with pytest.raises(AssertionError):
        cpu.tables(["lenet5"])


@pytest.mark.usefixtures("planned_anew", "small")
@pytest.mark.slow
def test_command_prints_and_keeps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--networks", "lenet5", "--as", "one"]
    monkeypatch.setattr("sys.argv", ["benchmarks", "planner", *options])
    command.main()
    printed = capsys.readouterr().out
    assert printed.strip() == (report.RESULTS / "planner-one.md").read_text().strip()
    kept = json.loads((report.RESULTS / "planner-one.json").read_text())
    assert kept["tables"][0]["rows"][0]["network"] == "lenet5"
    assert kept["about"]["numpy"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["nothing"], "no table nothing"),
        (["planner", "--networks", "lenet5"], "a part is no whole page"),
    ],
)
def test_command_refuses(
    words: list[str],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", *words])
    with pytest.raises(SystemExit):
        command.main()
    assert reason in capsys.readouterr().err


def test_table_leaves_out_what_a_row_lacks() -> None:
    columns = (report.Column("a", "A", report.percent), report.Column("b", "B", report.whole))
    table = report.Table("T", columns, [{"a": 0.5}, {"a": 1.0, "b": 1234}], ("note",))
    assert table.markdown() == (
        "## T\n\n| A       | B     |\n|---------|-------|\n| 50.0 %  | -     |\n"
        "| 100.0 % | 1,234 |\n\n- note\n"
    )


def test_alone_runs_in_a_process_on_few_cores() -> None:
    import os

    assert measuring.alone(1, os.getpid) != os.getpid()
    if hasattr(os, "sched_getaffinity"):
        assert len(measuring.alone(1, os.sched_getaffinity, 0)) == 1


@pytest.mark.slow_cases(0)
@pytest.mark.usefixtures("small")
@pytest.mark.slow
def test_simulation_counts_cycles_of_whole_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "ROUNDS", 1)
    (table,) = simulation.tables(["lenet5"])
    (row,) = table.rows
    assert row["cycles"] > 100
    assert row["speed"] * row["seconds"] == pytest.approx(row["cycles"])
    assert "million cycles a second" in table.markdown()


def test_predictions_are_told_by_machine_and_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "LAYERS", 1)
    monkeypatch.setattr(prediction, "TARGETS", {"img2col": prediction.TARGETS["img2col"]})
    (table,) = prediction.tables(["matmul", "depthwise"])
    assert [(row["machine"], row["kind"]) for row in table.rows] == [
        ("img2col", "matmul"),
        ("img2col", "depthwise"),
        ("all", "all"),
    ]
    for row in table.rows:
        assert 0 <= row["mean"] <= row["worst"] < 0.12
    assert table.rows[-1]["kernels"] == sum(row["kernels"] for row in table.rows[:-1])

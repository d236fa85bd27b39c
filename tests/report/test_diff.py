"""Differences are found where they are: faults in a package, noise, ONNX Runtime's tensors."""

import json
import sys
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from report_models import folded, wide_softmax
from tests.slow import but_fast
from typer.testing import CliRunner

import tilewright
from tilewright.cli.main import app
from tilewright.codegen.host.library import arena
from tilewright.graph.dialect import KernelOp, WeightOp, network_of
from tilewright.graph.placement import placement_of
from tilewright.ir.types import Array
from tilewright.report.differences import Comparison, beside_interpreter, layers_of
from tilewright.report.measures import measure

LENET = Path(__file__).parents[2] / "examples" / "lenet5" / "lenet5.onnx"
IMAGE = {"image": np.random.default_rng(5).standard_normal((1, 1, 32, 32)).astype(np.float32)}


def call(*arguments: object) -> tuple[int, Any]:
    words = ["diff", *map(str, arguments), "--quiet", "--json"]
    result = CliRunner().invoke(app, words)
    assert "Traceback" not in result.output
    return result.exit_code, json.loads(result.stdout)


def test_measures() -> None:
    want = np.array([3.0, -4.0, np.nan], np.float32)
    assert measure(want, want).exact and measure(want, want).snr == inf
    found = measure(np.array([3.0, -3.96, np.nan]), want)
    assert found.max_abs == pytest.approx(0.04) and found.max_rel == pytest.approx(0.01)
    assert found.snr == pytest.approx(10 * np.log10(25 / 0.0016))
    lost = measure(np.array([np.nan, -4.0, np.nan]), want)
    assert lost.max_abs == inf and lost.snr == -inf and not lost.exact
    assert measure(np.zeros(0), np.zeros(0)).exact


@pytest.mark.parametrize(
    "broken",
    ["k2_conv2", *(pytest.param(n, marks=pytest.mark.slow) for n in ("k0_conv1", "k5_fc2"))],
)
def test_a_fault_is_found_in_its_kernel(broken: str) -> None:
    executable = tilewright.compile(LENET, "cpu")
    network = network_of(executable.graph)
    kernels = [op for op in network.block.ops if isinstance(op, KernelOp)]
    kernel = next(op for op in kernels if op.symbol.data == broken)
    weight = next(value for value in kernel.inputs if isinstance(value.owner, WeightOp))
    # One weight of the package becomes a large number; the graph keeps the right one.
    runner: Any = executable.runner
    at = placement_of(weight).offset
    spoilt = arena(runner.weights.size)
    spoilt[:] = runner.weights
    runner.weights = spoilt
    runner.weights[at : at + 4] = np.frombuffer(np.float32(40).tobytes(), np.uint8)
    seen: dict[str, Array] = {}
    want: dict[str, Array] = {}
    executable.run(IMAGE, observe=seen.__setitem__)
    executable.reference(IMAGE, want.__setitem__)
    rows, _ = beside_interpreter(layers_of(network, seen), want, 1e-4, {})
    found = Comparison("cpu", "interpreter", 1e-4, tuple(rows), ())
    assert found.first is not None and found.first.layer.kernel == broken
    before = rows[: rows.index(found.first)]
    assert all(row.measures.max_rel < 1e-4 for row in before)
    assert "first beyond the tolerance" in str(found) and " <" in str(found)


@pytest.mark.parametrize("target", but_fast(["cpu", "cambricon-x"], ["cpu"]))
@pytest.mark.parametrize("reference", but_fast(["interpreter", "onnxruntime"], ["onnxruntime"]))
def test_folded_models_agree_node_by_node(target: str, reference: str, tmp_path: Path) -> None:
    model = folded(tmp_path / "folded.onnx")
    code, found = call(model, "-t", target, "--reference", reference, "--random", 2)
    assert code == 0 and found["passed"] and found["first"] is None
    nodes = {row["node"]: row for row in found["values"]}
    # What the normalisation and the scale became part of is compared as their result.
    assert {"relu", "sum", "power"} <= set(nodes)
    floor = 20 if target == "cambricon-x" and reference == "onnxruntime" else 80
    assert all(row["exact"] or row["snr_db"] > floor for row in found["values"]), nodes
    assert ("own" in nodes["sum"]) == (target == "cambricon-x")


@pytest.mark.parametrize(("dtype", "zero"), [(np.int8, -128), (np.int8, 3), (np.uint8, 100)])
def test_bytes_are_compared_as_the_model_has_them(dtype: Any, zero: int, tmp_path: Path) -> None:
    """Kernels may take bytes of the other kind, which are moved by 128."""
    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["x", "s", "z"], ["a"], "quantised"),
            helper.make_node("DequantizeLinear", ["a", "s", "z"], ["b"], "dequantised"),
            helper.make_node("DequantizeLinear", ["w8", "s", "wz"], ["w"], "weights"),
            helper.make_node("Conv", ["b", "w"], ["c"], "conv"),
            helper.make_node("QuantizeLinear", ["c", "t", "z"], ["d"], "results"),
            helper.make_node("DequantizeLinear", ["d", "t", "z"], ["y"], "floats"),
        ],
        "bytes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 9, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 7, 7])],
        [
            numpy_helper.from_array(np.array(0.03, np.float32), "s"),
            numpy_helper.from_array(np.array(0.25, np.float32), "t"),
            numpy_helper.from_array(np.array(zero, dtype), "z"),
            numpy_helper.from_array(np.array(0, np.int8), "wz"),
            numpy_helper.from_array(
                np.random.default_rng(4).integers(-127, 128, (8, 4, 3, 3), np.int8), "w8"
            ),
        ],
    )
    path = tmp_path / "bytes.onnx"
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    _, found = call(path, "-t", "cpu", "--reference", "onnxruntime")
    rows = {row["node"]: row for row in found["values"]}
    assert rows["quantised"]["exact"]
    assert rows["floats"]["max_abs_error"] <= 0.26


@pytest.mark.slow
def test_own_error_is_the_kernels_share() -> None:
    code, found = call(LENET, "-t", "cambricon-x")
    assert code == 0 and all(row["exact"] for row in found["values"])
    rows = {row["node"]: row for row in found["values"] if row["node"]}
    # A maximum adds no error of its own, and passes on what it gets.
    assert rows["pool1"]["own"]["exact"] and not rows["pool1"]["float32"]["exact"]
    for row in rows.values():
        assert row["own"]["exact"] or row["own"]["snr_db"] >= row["float32"]["snr_db"] - 3
    noisiest = min(
        (row for row in rows.values() if not row["own"]["exact"]),
        key=lambda row: row["own"]["snr_db"],
    )
    assert found["adds_most_error"] == noisiest["name"]
    assert "own" not in call(LENET, "-t", "cambricon-x", "--no-float")[1]["values"][1]


@pytest.mark.slow
def test_tolerance_and_saved_tensors(tmp_path: Path) -> None:
    file = tmp_path / "both.npz"
    code, found = call(LENET, "-t", "cambricon-x", "--reference", "onnxruntime", "--tolerance",
                       1e-6, "--save", file)  # fmt: skip
    assert code == 1 and found["first"] == found["values"][0]["name"] and not found["passed"]
    with np.load(file, allow_pickle=False) as saved:
        assert {"run/pool1", "reference/pool1_out", "reference/probabilities"} <= set(saved.files)
        assert saved["run/pool1"].dtype == np.int16


def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = wide_softmax(tmp_path / "wide.onnx", 40)
    missing = tmp_path / "nowhere" / "both.npz"
    code, found = call(model, "--save", missing)
    assert code == 2 and found["errors"][0]["code"] == "output-failed"
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    code, found = call(model, "--reference", "onnxruntime")
    assert code == 2 and found["errors"][0]["code"] == "reference-missing"
    assert "interpreter" in found["errors"][0]["help"]


def test_external_data(tmp_path: Path) -> None:
    model = onnx.load(LENET)
    path = tmp_path / "outside.onnx"
    onnx.save(model, path, save_as_external_data=True, location="outside.bin", size_threshold=64)
    code, found = call(path, "-t", "cpu", "--reference", "onnxruntime")
    assert code == 0 and len(found["values"]) == 8

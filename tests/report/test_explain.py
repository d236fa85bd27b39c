"""Every node of a model has a fate; the host's have a reason, and an edit that works."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from report_models import folded, wide_softmax
from tests.slow import but_fast
from typer.testing import CliRunner

import tilewright
from tilewright.cli.main import app
from tilewright.compiler.pipeline import resolve
from tilewright.graph.passes.constraints import CONSTRAINTS
from tilewright.report.explain import Explanation, NodeFate, explain
from tilewright.report.operators import documented, operation_rows

ROOT = Path(__file__).parents[2]
LENET = ROOT / "examples" / "lenet5" / "lenet5.onnx"


def told(model: Path, target: str, **values: float) -> Explanation:
    found, machine = resolve(target, None, values)
    return explain(model, found, machine)


def by_name(explanation: Explanation) -> dict[str, NodeFate]:
    return {fate.node: fate for fate in explanation.nodes}


@pytest.mark.parametrize("target", but_fast(["cpu", "cambricon-x"], ["cpu"]))
def test_fates_are_those_of_the_package(target: str, tmp_path: Path) -> None:
    model = folded(tmp_path / "folded.onnx")
    found = told(model, target)
    graph = onnx.load(model).graph
    assert [(f.node, f.operator) for f in found.nodes] == [(n.name, n.op_type) for n in graph.node]
    engines = {
        kernel.name: (kernel.engine, kernel.nodes)
        for kernel in tilewright.compile(model, target).manifest.kernels
    }
    for fate in found.nodes:
        assert {engines[kernel][0] for kernel in fate.kernels} <= {"accelerator", "host"}
        if fate.kernels:
            host = any(engines[kernel][0] == "host" for kernel in fate.kernels)
            assert fate.place == ("host" if host else "accelerator")
        assert (fate.objection is not None) == (fate.place == "host")
    named = {node for _, nodes in engines.values() for node in nodes}
    assert named <= {fate.node for fate in found.nodes if fate.kernels}
    added = dict(found.added)
    assert {kernel for kernel, (_, nodes) in engines.items() if not nodes} == set(added)


def test_a_node_of_two_places_names_both(tmp_path: Path) -> None:
    """An epilogue without its operand: the product is computed there, its scales are not."""
    text = (ROOT / "examples" / "machines" / "systolic-int8.toml").read_text()
    machine = tmp_path / "machine.toml"
    text = text.replace('operands.residual = "accumulators"\n', "")
    machine.write_text(text.replace('"requantise_linear", "add_linear"', '"add_linear"'))
    zero, scale = np.int8(0), np.float32(0.1)
    weight = np.ones((16, 16), np.int8)
    constants = {"s": scale, "z": zero, "w": weight}
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("QLinearMatMul", [*"xszwszsz"], ["y"], "product")],
        "product",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.INT8, (16, 16))],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT8, (16, 16))],
        [onnx.numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()],
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets), tmp_path / "model.onnx")
    fate = by_name(told(tmp_path / "model.onnx", str(machine)))["product"]
    there, here = fate.kernels
    assert fate.place == "host" and f"{there} on the accelerator" in fate.how
    assert fate.objection is not None and here
    assert "the epilogue of matmul" in fate.objection.reason


def test_what_passes_did(tmp_path: Path) -> None:
    fates = by_name(told(folded(tmp_path / "folded.onnx"), "cambricon-x"))
    kernel = fates["conv1"].kernels
    for name in ("pad", "norm", "scaled", "relu"):
        assert fates[name].kernels == kernel, name
    assert fates["norm"].how == "merged into conv1" and fates["relu"].how == "follows conv1"
    assert fates["dead"].place == "none" and fates["constants"].place in ("none", "constant")
    assert not fates["dead"].kernels
    assert fates["ratio"].place == "host" or fates["ratio"].kernels
    power = fates["power"].objection
    assert power is not None and power.constraint == "primitive" and power.settings is None
    assert "no primitive of cambricon-x computes pow" in power.reason and power.edit


@pytest.mark.slow
@pytest.mark.parametrize("width", but_fast([5000, 20011], [5000]))
def test_the_edit_brings_the_node_on(width: int, tmp_path: Path) -> None:
    model = wide_softmax(tmp_path / "wide.onnx", width)
    fate = by_name(told(model, "cambricon-x"))["probabilities"]
    assert fate.place == "host" and fate.objection is not None
    assert fate.objection.constraint == "whole-dims" and str(width) in fate.objection.reason
    settings = fate.objection.settings
    assert settings is not None and "memory.nbin.bytes" in settings
    again = by_name(told(model, "cambricon-x", **settings))["probabilities"]
    assert again.place == "accelerator" and again.objection is None
    smaller = settings | {"memory.nbin.bytes": settings["memory.nbin.bytes"] - 32}
    assert by_name(told(model, "cambricon-x", **smaller))["probabilities"].place == "host"
    executable = tilewright.compile(model, "cambricon-x", values=settings)
    x = np.random.default_rng(1).standard_normal((2, 32)).astype(np.float32)
    # Fixed point has few steps of results that are all near 1 / 5000, which is far from the model.
    assert executable.check({"x": x}, executable.run({"x": x})).equal


def test_command(tmp_path: Path) -> None:
    model = wide_softmax(tmp_path / "wide.onnx", 5000)
    arguments = ["explain", str(model), "-t", "cambricon-x", "--quiet"]
    text = CliRunner().invoke(app, arguments).stdout
    assert "[whole-dims]" in text and "--set memory.nbin.bytes=" in text
    rows = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)["nodes"]
    assert [row["place"] for row in rows] == ["accelerator", "host"]
    assert rows[1]["settings"] and rows[1]["edit"].startswith("--set ")
    for wrong in (["explain"], ["explain", str(model), "--operators"]):
        result = CliRunner().invoke(app, [*wrong, "--json"])
        assert result.exit_code == 2
        assert json.loads(result.stdout)["errors"][0]["code"] == "option-model"


def test_names_cannot_break_lines(tmp_path: Path) -> None:
    model = onnx.load(LENET)
    model.graph.node[0].name = "evil\n13 nodes: 13 host\x1b[31m"
    path = tmp_path / "evil.onnx"
    onnx.save(model, path)
    text = str(told(path, "cpu"))
    assert "\x1b" not in text and len(text.splitlines()) == len(model.graph.node) + 2


def test_operators_page_is_fresh() -> None:
    page = (ROOT / "docs" / "operators.md").read_text()
    assert page == documented(), "run: python -m tilewright.report.operators > docs/operators.md"


def test_every_operation_has_a_sample() -> None:
    from tilewright.graph.operations import OPERATIONS
    from tilewright.report.operators import HIDDEN, samples_of

    lacking = [op.name for op in OPERATIONS if not samples_of(op)]
    assert set(lacking) <= {f"graph.{name}" for name in HIDDEN}, "give them one in SAMPLES"


def test_rows_follow_the_machine() -> None:
    _, machine = resolve("cambricon-x")
    rows = {row.operation: row for row in operation_rows(machine)}
    assert rows["softmax"].limits == "axis up to 4,096"
    assert rows["pow"].runs == "host" and rows["pow"].constraint == "primitive"
    assert "conv" in rows["relu"].joins
    twice = {row.operation: row for row in operation_rows(machine.with_values(
        {"memory.nbin.bytes": 16384, "memory.nbout.bytes": 16384}))}  # fmt: skip
    assert twice["softmax"].limits == "axis up to 8,192"
    assert {row.constraint for row in rows.values()} <= {"", *(c.name for c in CONSTRAINTS)}

"""Engines side by side: what is told apart, and what is let pass."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.frontends.onnx.onnx_models import model_of, noise, single
from typer.testing import CliRunner

from tilewright.cli.main import app
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.sensitivity import spread
from tilewright.report.agreement import agreement, differing
from tilewright.runtime import Executable


def results(found) -> dict[str, str]:
    return {verdict.engine: verdict.result for verdict in found.verdicts}


def sensitivity(model: onnx.ModelProto, **inputs: np.ndarray) -> np.ndarray:
    imported = import_onnx(model)
    return spread(imported.module, imported.weights, inputs)["y0"]


def test_sums_that_cancel_may_differ_more() -> None:
    """1e4 - 1e4 + small: the error follows the terms, not the result."""
    weights = np.array([[1.0], [-1.0], [1e-4]], np.float32)
    model = single("MatMul", [(1, 3), weights])
    large = sensitivity(model, x0=np.array([[12345.67, 12345.67, 3.3]], np.float32))
    small = sensitivity(model, x0=np.array([[1.2345, 1.2345, 3.3]], np.float32))
    assert 1e3 < large.item() / small.item() < 1e5
    assert 1e-8 < small.item() < 1e-5


def test_comparisons_about_equal_may_come_out_either_way() -> None:
    nodes = [
        helper.make_node("Exp", ["x0"], ["e"]),
        helper.make_node("Log", ["e"], ["l"]),
        helper.make_node("Less", ["l", "x0"], ["b"]),
        helper.make_node("Cast", ["b"], ["y0"], to=TensorProto.INT32),
    ]
    model = model_of(nodes, {"x0": (40,)}, ["y0"])
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32
    doubtful = sensitivity(model, x0=noise(40))
    assert 0 < doubtful.mean() <= 1
    clear = model_of([helper.make_node("Floor", ["x0"], ["y0"])], {"x0": (40,)}, ["y0"])
    assert not sensitivity(clear, x0=np.arange(40, dtype=np.float32) + 0.5).any()


def test_whole_numbers_are_exact() -> None:
    model = model_of([helper.make_node("Mul", ["x0", "x0"], ["y0"])], {"x0": (8,)}, ["y0"])
    assert not sensitivity(model, x0=np.arange(8, dtype=np.float32)).any()


def test_what_is_not_finite_is_not_judged() -> None:
    model = model_of([helper.make_node("Log", ["x0"], ["y0"])], {"x0": (2,)}, ["y0"])
    found = sensitivity(model, x0=np.array([-1.5, 1.5], np.float32))
    assert np.isinf(found[0]) and np.isfinite(found[1])


@pytest.mark.parametrize(
    ("got", "want", "allowed", "beyond"),
    [
        (np.float32([1, 2]), np.float32([1, 2.5]), 0.4, [False, True]),
        (np.float32([np.nan, np.inf]), np.float32([np.nan, np.inf]), 0, [False, False]),
        (np.float32([np.nan, 1]), np.float32([1, np.inf]), 1e9, [True, True]),
        (np.int64([2**62 + 1]), np.int64([2**62]), 0, [True]),
        (np.array([True]), np.array([False]), 0, [True]),
        (np.float32([7]), np.float32([1]), np.inf, [False]),
    ],
)
def test_differing(got, want, allowed, beyond) -> None:
    found = differing(got, want, np.broadcast_to(np.float64(allowed), want.shape))
    assert found.tolist() == beyond


def test_short_floats_are_judged_by_their_own_last_place() -> None:
    nodes = [helper.make_node("Cast", ["x0"], ["h"], to=TensorProto.BFLOAT16)]
    nodes += [helper.make_node("Cast", ["h"], ["y0"], to=TensorProto.FLOAT)]
    found = sensitivity(model_of(nodes, {"x0": (50,)}, ["y0"]), x0=noise(50))
    assert found.max() > float(ml_dtypes.finfo(ml_dtypes.bfloat16).eps) / 8


def small() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    return model_of(nodes, {"x": (1, 3, 6, 6)}, ["y"], {"w": noise(4, 3, 3, 3)})


def test_engines_agree_and_the_fixed_point_machine_does_bit_for_bit() -> None:
    found = agreement(small(), {"x": noise(1, 3, 6, 6)})
    assert found.passed
    assert results(found) == dict.fromkeys(
        ("import", "onnxruntime", "cpu", "cambricon-x"), "agrees"
    )
    assert "bit for bit" in str(found)


@pytest.mark.parametrize("factor", [1 + 1e-4, np.nan])
def test_a_wrong_engine_is_named(factor: float) -> None:
    def spoilt(executable: Executable, inputs) -> dict[str, np.ndarray]:
        outputs = executable.run(inputs)
        outputs["y"].reshape(-1)[outputs["y"].argmax()] *= np.float32(factor)
        return outputs

    found = agreement(small(), {"x": noise(1, 3, 6, 6)}, ("cpu",), run=spoilt)
    assert not found.passed
    assert results(found) == {"import": "agrees", "onnxruntime": "agrees", "cpu": "differs"}
    assert "output 'y' at" in found.verdicts[-1].detail


def test_what_fails_is_a_verdict() -> None:
    def broken(executable: Executable, inputs) -> dict[str, np.ndarray]:
        raise ZeroDivisionError("oh")

    found = agreement(small(), {"x": noise(1, 3, 6, 6)}, ("cpu",), run=broken)
    assert results(found)["cpu"] == "failed"
    assert "ZeroDivisionError: oh" in str(found)
    refused = agreement(single("StringNormalizer", [(1,)]), {})
    assert results(refused) == {"import": "refused"} and refused.passed


@pytest.mark.slow
def test_replay(tmp_path: Path) -> None:
    path = tmp_path / "case.onnx"
    onnx.save(small(), path)
    np.savez(tmp_path / "case.npz", x=noise(1, 3, 6, 6))
    call = CliRunner().invoke
    found = call(app, ["replay", str(path), "--target", "cpu", "--json", "--quiet"])
    assert found.exit_code == 0, found.output
    answer = json.loads(found.stdout)
    assert answer["passed"]
    assert [engine["engine"] for engine in answer["engines"]] == ["import", "onnxruntime", "cpu"]
    found = call(app, ["replay", str(path), "-t", "cpu", "--random", "3", "--quiet"])
    assert found.exit_code == 0 and "agrees" in found.stdout
    for arguments, code in (
        ([str(tmp_path / "case.npz")], "reference-model"),
        ([str(path), "--target", "abacus"], "target-unknown"),
        ([str(path), "--input", str(path)], "input-file"),
    ):
        found = call(app, ["replay", *arguments, "--json", "--quiet"])
        assert found.exit_code == 2 and code in found.stdout, found.output


@pytest.mark.parametrize(
    "nodes",
    [
        [helper.make_node("ReduceL2", ["x"], ["y"], keepdims=0)],
        [
            helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
            helper.make_node("Tanh", ["m"], ["t"]),
            helper.make_node("Mul", ["t", "m"], ["y"]),
        ],
    ],
)
def test_single_numbers_run_on_every_engine(nodes: list[onnx.NodeProto]) -> None:
    found = agreement(model_of(nodes, {"x": (5,)}, ["y"]), {"x": noise(5)})
    assert set(results(found).values()) == {"agrees"}, str(found)

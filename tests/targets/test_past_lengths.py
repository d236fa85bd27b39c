"""A step of a decoder whose past is an input of any length: what is new is joined at its end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.frontends.onnx.onnx_models import onnxruntime_of
from tests.targets.free_sizes import ended, filled, floats, node, random

import tilewright
from tilewright.errors import TilewrightError
from tilewright.graph.interpreter import interpret
from tilewright.runtime.output_sizes import cut_to_sizes

HEADS, WIDE = 2, 8
SHAPES = {
    "x": ["batch", 1, HEADS * WIDE],
    "past_key": ["batch", HEADS, "past", WIDE],
    "past_value": ["batch", HEADS, "past", WIDE],
}


def decoder(path: Path) -> Path:
    """Attention of one token over a past; the past with the token is given back."""
    heads = np.array([0, 1, HEADS, WIDE], np.int64)
    nodes = [
        *(node("MatMul", ["x", f"w{name}"], [f"{name}0"]) for name in "qkv"),
        *(node("Reshape", [f"{name}0", "heads"], [f"{name}1"]) for name in "qkv"),
        *(node("Transpose", [f"{name}1"], [f"{name}2"], perm=[0, 2, 1, 3]) for name in "qkv"),
        node("Concat", ["past_key", "k2"], ["key"], axis=2),
        node("Concat", ["past_value", "v2"], ["value"], axis=-2),
        node("Transpose", ["key"], ["turned"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q2", "turned"], ["scores"]),
        node("Softmax", ["scores"], ["weights"], axis=-1),
        node("MatMul", ["weights", "value"], ["mixed"]),
        node("Transpose", ["mixed"], ["rows"], perm=[0, 2, 1, 3]),
        node("Reshape", ["rows", "whole"], ["y"]),
    ]
    weights = {f"w{name}": random(HEADS * WIDE, HEADS * WIDE) for name in "qkv"}
    weights |= {"heads": heads, "whole": np.array([0, 1, HEADS * WIDE], np.int64)}
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in SHAPES.items()]
    outs = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", "key", "value")
    ]
    stored = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "step", ends, outs, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def test_what_lies_after_the_past_never_shows(tmp_path: Path) -> None:
    path = decoder(tmp_path / "step.onnx")
    model, make, noise = onnx.load(path), floats(SHAPES), np.random.default_rng(0)
    most = {"batch": 3, "past": 11}
    one, ends = ended(path, most)
    for run in ({"batch": 3, "past": 11}, {"batch": 1, "past": 1}, {"batch": 2, "past": 6}):
        inputs = make(run)
        given = filled(inputs, make(most), run, noise)
        with np.errstate(all="ignore"):
            found = cut_to_sizes(ends, interpret(one.module, one.weights, given))
        for name, want in onnxruntime_of(model, inputs).items():
            assert found[name].shape == want.shape
            np.testing.assert_allclose(found[name], want, rtol=1e-4, atol=1e-5, err_msg=name)


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("sunway", "ascend910", "zu2")]


@pytest.mark.parametrize("target", ["cpu", *SLOW])
def test_a_package_for_every_past(target: str, tmp_path: Path) -> None:
    path = decoder(tmp_path / "step.onnx")
    model, make = onnx.load(path), floats(SHAPES)
    package = tilewright.compile(
        path, target, shapes={"batch": "1..2", "past": "1..40"}, directory=tmp_path / "package"
    )
    manifest = package.manifest
    assert manifest.open_model is not None and 1 < len(manifest.open_model.plans) <= 3
    for run in ({"batch": 2, "past": 40}, {"batch": 1, "past": 1}, {"batch": 1, "past": 23}):
        inputs = make(run)
        outputs = package.run(inputs)
        for name, want in onnxruntime_of(model, inputs).items():
            assert outputs[name].shape == want.shape
            error = np.abs(outputs[name] - want).max() / np.abs(want).max()
            assert error < {"cpu": 1e-5, "sunway": 1e-5, "zu2": 0.05}.get(target, 5e-3), name


def test_a_past_beyond_the_bound(tmp_path: Path) -> None:
    path = decoder(tmp_path / "step.onnx")
    package = tilewright.compile(
        path, shapes={"batch": 1, "past": "1..4"}, directory=tmp_path / "package"
    )
    with pytest.raises(TilewrightError, match="size 5 is outside"):
        package.run(floats(SHAPES)({"batch": 1, "past": 5}))

"""An ``onnx.ModelProto`` is compiled as its file is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright import TilewrightError


def network(rows: int | str = 4) -> onnx.ModelProto:
    a = np.random.default_rng(3).normal(size=(6, 5)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "a"], ["b"]), helper.make_node("Relu", ["b"], ["y"])],
        "two layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 5])],
        [numpy_helper.from_array(a, "a")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_the_results_are_those_of_the_file(tmp_path: Path) -> None:
    model = network()
    onnx.save(model, tmp_path / "saved.onnx")
    x = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)
    in_memory = tilewright.compile(model, cpu="native")
    y = in_memory.run(x)["y"]
    np.testing.assert_array_equal(
        y, tilewright.compile(tmp_path / "saved.onnx", cpu="native").run(x)["y"]
    )
    assert in_memory.check(x, {"y": y}).passed
    assert in_memory.manifest.model == "two_layers"


def test_sizes_settle_free_dims() -> None:
    x = np.ones((3, 6), np.float32)
    executable = tilewright.compile(network("rows"), cpu="native", shapes={"rows": 3})
    assert executable.run(x)["y"].shape == (3, 5)
    with pytest.raises(TilewrightError, match=r"shape-open.*save the model"):
        tilewright.compile(network("rows"), cpu="native", shapes={"rows": "1..8"})


def test_inputs_become_constants() -> None:
    executable = tilewright.compile(
        network(), cpu="native", constants={"x": np.ones((4, 6), np.float32)}
    )
    assert not executable.inputs


def test_what_no_model_is_refused() -> None:
    with pytest.raises(TilewrightError, match=r"model-format.*NodeProto"):
        tilewright.compile(network().graph.node[0], cpu="native")

"""Floats as integers of all kinds, in range and beyond: C, the interpreter and ONNX Runtime."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tilewright.report.onnx_reference import onnx_tensors

KINDS = ("INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64")
SPECIAL = (0.9, -0.9, 300.7, -5.2, 7e4, 3e9, -3e9, 1e19, -1e19, 1e30, np.nan, np.inf, -np.inf)


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_casts(kind: str, tmp_path: Path) -> None:
    values = np.random.default_rng(3)
    x = values.standard_normal(90) * 10 ** values.uniform(-1, 20, 90)
    dtype = {"FLOAT": np.float32, "DOUBLE": np.float64}[kind]
    x = np.concatenate([x, SPECIAL]).astype(dtype)
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Cast", ["x"], [to], to=getattr(TensorProto, to)) for to in KINDS],
        "casts",
        [info("x", getattr(TensorProto, kind), x.shape)],
        [info(to, getattr(TensorProto, to), x.shape) for to in KINDS],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "casts.onnx"
    onnx.save(model, path)
    executable = tilewright.compile(path)
    outputs, reference = executable.run({"x": x}), executable.reference({"x": x})
    other = onnx_tensors(model, {"x": x}, list(KINDS))
    held = np.abs(np.nan_to_num(x, nan=np.inf)) < 2**31
    for name in KINDS:
        np.testing.assert_array_equal(outputs[name], reference[name], err_msg=name)
        np.testing.assert_array_equal(reference[name][held], other[name][held], err_msg=name)

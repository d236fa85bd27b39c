"""Fixed point without samples: a quantised model states the ranges of what it dequantises."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tests.slow import but_fast
from tilewright.frontends.onnx import import_onnx


def network(scale: float, zero: np.int8 | np.uint8) -> onnx.ModelProto:
    """A pair of quantisation and its inverse, and what is not negative of its result."""
    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["x", "s", "z"], ["a"]),
            helper.make_node("DequantizeLinear", ["a", "s", "z"], ["b"]),
            helper.make_node("Relu", ["b"], ["y"]),
        ],
        "bytes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 16])],
        [
            numpy_helper.from_array(np.array(scale, np.float32), "s"),
            numpy_helper.from_array(np.array(zero), "z"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("target", but_fast(["cambricon", "cambricon-x", "zu2"], ["cambricon-x"]))
@pytest.mark.parametrize(
    ("scale", "zero"), [(0.1, np.int8(-3)), (0.25, np.int8(0)), (1.5, np.uint8(20))]
)
def test_large_inputs_are_not_cut(target: str, scale: float, zero: np.int8 | np.uint8) -> None:
    x = np.random.default_rng(1).normal(0, 60 * scale, (4, 16)).astype(np.float32)
    executable = tilewright.compile(import_onnx(network(scale, zero)), target)
    outputs = executable.run({"x": x})
    ends = np.iinfo(zero.dtype)
    a = np.clip(np.rint(x / np.float32(scale)) + zero, ends.min, ends.max)
    want = np.maximum((a - zero) * scale, 0)
    assert want.max() > 8
    np.testing.assert_allclose(outputs["y"], want, atol=want.max() * 2**-12)
    assert executable.check({"x": x}, outputs).passed

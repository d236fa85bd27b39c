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


@pytest.mark.parametrize("target", but_fast(["cambricon", "cambricon-x", "zu2"], ["cambricon-x"]))
def test_what_is_only_quantised_has_the_range_of_its_integers(target: str) -> None:
    """A product has no range of its own, and its reader saturates it."""
    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["x", "one", "z"], ["a"]),
            helper.make_node("DequantizeLinear", ["a", "one", "z"], ["b"]),
            helper.make_node("Mul", ["b", "k"], ["c"]),
            helper.make_node("QuantizeLinear", ["c", "s", "z"], ["d"]),
            helper.make_node("DequantizeLinear", ["d", "s", "z"], ["y"]),
        ],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 16])],
        [
            numpy_helper.from_array(np.array(1, np.float32), "one"),
            numpy_helper.from_array(np.array(0.3, np.float32), "k"),
            numpy_helper.from_array(np.array(0.25, np.float32), "s"),
            numpy_helper.from_array(np.array(0, np.int8), "z"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    x = np.random.default_rng(2).normal(0, 100, (4, 16)).astype(np.float32)
    executable = tilewright.compile(import_onnx(model), target)
    outputs = executable.run({"x": x})
    product = np.clip(np.rint(x), -128, 127) * 0.3
    want = np.clip(np.rint(product * 4), -128, 127) / 4
    assert want.max() == 31.75 and want.min() == -32
    # A step where the product, in fixed point, lies on the other side of a half.
    np.testing.assert_allclose(outputs["y"], want, atol=0.25)
    assert (outputs["y"] == want).mean() > 0.9
    assert executable.check({"x": x}, outputs).passed

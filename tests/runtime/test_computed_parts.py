"""Parts whose start only a run knows: within the operand they are ONNX Runtime's, and a check
refuses those of which ONNX would give fewer elements."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import tilewright
from tests.frontends.onnx.onnx_models import model_of
from tilewright.frontends.onnx import import_onnx

NODES = [
    helper.make_node("Add", ["i", "two"], ["end"]),
    helper.make_node("Slice", ["x", "i", "end", "axis"], ["y"]),
]
MODEL = model_of(
    NODES, {"x": (3, 5)}, ["y"], {"two": np.array([2], np.int64), "axis": np.array([1], np.int64)}
)
MODEL.graph.input.append(helper.make_tensor_value_info("i", TensorProto.INT64, [1]))


@pytest.mark.parametrize("start", [0, 3, -3, 4, 9, -2, -9])
@pytest.mark.parametrize("target", ["cpu", "cambricon-x"])
def test_a_check_knows_how_many_elements_the_model_gives(target: str, start: int) -> None:
    feeds = {"x": np.arange(15, dtype=np.float32).reshape(3, 5) / 16, "i": np.array([start])}
    session = onnxruntime.InferenceSession(MODEL.SerializeToString())
    (want,) = session.run(None, feeds)
    executable = tilewright.compile(import_onnx(MODEL), target, calibration=[feeds])
    found = executable.run(feeds)
    check = executable.check(feeds, found)
    assert check.equal
    assert check.passed == (want.shape == (3, 2))
    if check.passed:
        np.testing.assert_allclose(found["y"], want, atol=1e-3)
    else:
        assert "does not lie within 5 elements" in str(check.model)

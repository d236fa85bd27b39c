"""A check of floats allows what rounding explains, and no more."""

import numpy as np
from onnx import TensorProto, helper

import tilewright
from tilewright.frontends.onnx import import_onnx


def test_at_poles() -> None:
    """Near tan's poles the last place of an operand moves the result by more than the tolerance."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["twice"]), helper.make_node("Tan", ["twice"], ["y"])],
        "poles",
        [info("x", TensorProto.FLOAT, [64])],
        [info("y", TensorProto.FLOAT, [64])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    executable = tilewright.compile(import_onnx(model))
    x = np.linspace(-0.5, 0.5, 64, dtype=np.float32)
    x[:4] = np.pi / 4 + np.pi / 2 * np.arange(4) + 1e-5
    inputs = {"x": x}
    assert executable.check(inputs, executable.run(inputs)).passed

    def of(operand: np.ndarray) -> dict[str, np.ndarray]:
        return {"y": np.tan(2 * operand.astype(np.float64)).astype(np.float32)}

    exact, next_place = of(x), of(np.nextafter(x, np.float32(np.inf)))
    largest = np.abs(exact["y"]).max()
    assert np.abs(exact["y"] - next_place["y"]).max() > 1e-3 * largest, "not near a pole"
    assert executable.check(inputs, next_place).passed
    wrong = x.copy()
    wrong[:4] *= np.float32(1.001)
    assert not executable.check(inputs, of(wrong)).passed

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
    assert executable.check(inputs, executable.run(inputs)).equal

    def of(operand: np.ndarray) -> dict[str, np.ndarray]:
        return {"y": np.tan(2 * operand.astype(np.float64)).astype(np.float32)}

    exact, next_place = of(x), of(np.nextafter(x, np.float32(np.inf)))
    largest = np.abs(exact["y"]).max()
    assert np.abs(exact["y"] - next_place["y"]).max() > 1e-3 * largest, "not near a pole"
    assert executable.check(inputs, next_place).equal
    wrong = x.copy()
    wrong[:4] *= np.float32(1.001)
    assert not executable.check(inputs, of(wrong)).equal


def test_one_infinity_does_not_hide_the_others() -> None:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("Exp", ["x"], ["y"]),
            helper.make_node("ArgMax", ["x"], ["place"], axis=0, keepdims=1),
            helper.make_node("Cast", ["y"], ["whole"], to=TensorProto.INT32),
        ],
        "infinity",
        [info("x", TensorProto.FLOAT, [20_000])],
        [
            info("y", TensorProto.FLOAT, [20_000]),
            info("place", TensorProto.INT64, [1]),
            info("whole", TensorProto.INT32, [20_000]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    executable = tilewright.compile(import_onnx(model))
    x = np.linspace(-2, 3.3, 20_000, dtype=np.float32)
    x[7], x[19_990] = 100, 200
    inputs = {"x": x}
    outputs = executable.run(inputs)
    assert np.isinf(outputs["y"][7]) and outputs["place"] == 19_990
    assert executable.check(inputs, outputs).equal
    for name, place, value in (("y", 3, 0.5), ("place", 0, 19_989), ("whole", 3, 40)):
        wrong = {key: array.copy() for key, array in outputs.items()}
        wrong[name][place] = value
        check = executable.check(inputs, wrong)
        assert (check.equal, check.mismatches) == (False, 1), name


def test_large_numbers_are_whole_and_rounded_all_the_same() -> None:
    """Sums of them that cancel hang on the order."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("ReduceSum", ["x"], ["y"], keepdims=1)],
        "large",
        [info("x", TensorProto.FLOAT, [64])],
        [info("y", TensorProto.FLOAT, [1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    executable = tilewright.compile(import_onnx(model))
    x = np.random.default_rng(3).normal(size=64).astype(np.float32) * np.float32(1e9)
    x[-1] = -np.sum(x[:-1].astype(np.float64))
    inputs = {"x": x}
    y = executable.run(inputs)["y"]
    for error, passed in ((0, True), (500, True), (1e6, False)):
        assert executable.check(inputs, {"y": y + np.float32(error)}).equal == passed

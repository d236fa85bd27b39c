"""What an accelerator does not compute runs on its host, with a reason, and gives the same."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright


def model(nodes, inputs, outputs, constants=()):
    values = [helper.make_tensor_value_info(n, k, s) for n, k, s in inputs]
    results = [helper.make_tensor_value_info(n, k, None) for n, k in outputs]
    stored = [numpy_helper.from_array(array, name) for name, array in constants]
    graph = helper.make_graph(nodes, "mixed", values, results, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("target", ["cpu", "cambricon-x"])
def test_parts_of_one_element_along_the_last_axis(target, tmp_path):
    path = tmp_path / "m.onnx"
    join = helper.make_node("Concat", ["x", "z"], ["c"], axis=2)
    nodes = [join, helper.make_node("Relu", ["c"], ["y"])]
    kinds = [("x", TensorProto.FLOAT, [2, 4, 3]), ("z", TensorProto.FLOAT, [2, 4, 1])]
    path.write_bytes(model(nodes, kinds, [("y", TensorProto.FLOAT)]).SerializeToString())
    executable = tilewright.compile(path, target)
    feeds = {"x": noise(2, 4, 3), "z": noise(2, 4, 1)}
    (y,) = executable.run(feeds).values()
    assert executable.check(feeds, {"y": y}).equal
    want = np.maximum(np.concatenate([feeds["x"], feeds["z"]], 2), 0)
    np.testing.assert_allclose(y, want, atol=1e-3)


def test_an_accelerator_leaves_what_it_lacks_to_its_host(tmp_path):
    path = tmp_path / "m.onnx"
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="convolution"),
        helper.make_node("ArgMax", ["c"], ["best"], name="largest", axis=1),
        helper.make_node("ReduceSum", ["c", "axes"], ["total"], name="sum"),
        helper.make_node("Greater", ["total", "edge"], ["above"], name="above"),
    ]
    constants = [
        ("w", noise(16, 3, 3, 3)),
        ("axes", np.array([2, 3])),
        ("edge", np.array(0, np.float32)),
    ]
    outputs = [("best", TensorProto.INT64), ("above", TensorProto.BOOL)]
    made = model(nodes, [("x", TensorProto.FLOAT, [1, 3, 8, 8])], outputs, constants)
    path.write_bytes(made.SerializeToString())
    executable = tilewright.compile(path, "cambricon-x")
    engines = {k.nodes[0]: (k.engine, k.reason) for k in executable.manifest.kernels if k.nodes}
    assert engines["convolution"][0] == "accelerator"
    for node, operation in (("largest", "arg_max"), ("sum", "reduce_sum"), ("above", "less")):
        engine, reason = engines[node]
        assert engine == "host" and operation in reason
    feeds = {"x": noise(1, 3, 8, 8)}
    results = executable.run(feeds)
    assert results["best"].dtype == np.int64 and results["above"].dtype == np.bool_
    assert executable.check(feeds, results).equal


@pytest.mark.parametrize("target", ["sunway", "zu2"])
def test_an_output_of_one_element_of_a_step(target, tmp_path):
    """Its stride is the step's, where one element has none to the next."""
    path = tmp_path / "m.onnx"
    bounds = {"begin": 3, "end": 4, "axis": 0, "step": 2}
    constants = [(name, np.array([value])) for name, value in bounds.items()]
    nodes = [helper.make_node("Slice", ["x", *bounds], ["y"])]
    kinds = [("x", TensorProto.FLOAT, [5])], [("y", TensorProto.FLOAT)]
    path.write_bytes(model(nodes, *kinds, constants).SerializeToString())
    x = noise(5)
    (y,) = tilewright.compile(path, target).run({"x": x}).values()
    np.testing.assert_allclose(y, x[3:4], rtol=1e-6)

"""Gradient of ONNX's training preview, against differences of ONNX Runtime's results."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.interpreter import interpret

SHAPES = {"x": [3, 4], "w": [4, 2], "b": [2], "c": [3, 1], "unused": [2]}

FORWARD = [
    helper.make_node("MatMul", ["x", "w"], ["p"]),
    helper.make_node("Add", ["p", "b"], ["q"]),
    helper.make_node("Tanh", ["q"], ["t"]),
    helper.make_node("Exp", ["c"], ["e"]),
    helper.make_node("Div", ["t", "e"], ["d"]),
    helper.make_node("Sigmoid", ["d"], ["s"]),
    helper.make_node("Log", ["s"], ["l"]),
    helper.make_node("Neg", ["l"], ["n"]),
    helper.make_node("Sub", ["n", "c"], ["m"]),
    helper.make_node("Relu", ["m"], ["r"]),
    helper.make_node("Mul", ["r", "q"], ["y"]),
]


def model(nodes: list[NodeProto], outputs: list[str]) -> ModelProto:
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape)
        for name, shape in SHAPES.items()
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in outputs]
    sets = [helper.make_opsetid("", 13), helper.make_opsetid("ai.onnx.preview.training", 1)]
    graph = helper.make_graph(nodes, "gradient", inputs, results)
    return helper.make_model(graph, opset_imports=sets, ir_version=8)


def back(xs: list[str], y: str, outputs: list[str]) -> NodeProto:
    domain = "ai.onnx.preview.training"
    return helper.make_node("Gradient", xs, outputs, domain=domain, xs=xs, y=y)


def test_gradients_are_those_of_small_differences() -> None:
    """The sum of all results, of which the gradient is taken, is differentiated in float64."""
    random = np.random.default_rng(1)
    feeds = {name: random.normal(0, 1, shape) for name, shape in SHAPES.items()}
    xs = list(SHAPES)
    names = [f"d{name}" for name in xs]
    # The node stands first: what it reads is sorted before it.
    imported = import_onnx(model([back(xs, "y", names), *FORWARD], names))
    found = interpret(imported.module, imported.weights, feeds)
    session = ort.InferenceSession(model(FORWARD, ["y"]).SerializeToString())
    for name in xs:
        wanted = np.zeros(SHAPES[name])
        for index in np.ndindex(wanted.shape):
            ends: list[float] = []
            for step in (1e-6, -1e-6):
                moved = {n: array.copy() for n, array in feeds.items()}
                moved[name][index] += step
                known = {n: moved[n] for n in moved if n != "unused"}
                ends.append(float(session.run(None, known | {"unused": moved["unused"]})[0].sum()))
            wanted[index] = (ends[0] - ends[1]) / 2e-6
        np.testing.assert_allclose(found[f"d{name}"], wanted, rtol=1e-5, atol=1e-8)


def test_operations_without_a_gradient_are_refused() -> None:
    nodes = [helper.make_node("Sin", ["x"], ["y"]), back(["x"], "y", ["dx"])]
    with pytest.raises(TilewrightError, match="the gradient of sin is not known"):
        _ = import_onnx(model(nodes, ["dx"]))

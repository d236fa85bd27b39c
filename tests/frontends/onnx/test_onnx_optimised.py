"""Models that ONNX Runtime's optimiser has rewritten import, and give the same results."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks import models
from tests.frontends.onnx.onnx_models import onnxruntime_of
from tests.frontends.onnx.quantised_models import operations_in, prepared
from tests.targets.cpu.test_integers import images
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.interpreter import interpret

WIDTH, HEADS, LENGTH, TOKENS = 16, 4, 6, 50


def optimised(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """The model as ONNX Runtime saves it, with its extended optimisations."""
    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(model.SerializeToString(), options)
    return onnx.load(options.optimized_model_filepath)


def bert() -> onnx.ModelProto:
    """One layer of an encoder, as PyTorch's exporter writes it for operator set 13."""
    random = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    stored: dict[str, np.ndarray] = {}

    def constant(name: str, array: Any, dtype: Any = np.float32) -> str:
        stored[name] = np.asarray(array, dtype)
        return name

    def weight(name: str, *shape: int) -> str:
        return constant(name, random.standard_normal(shape) / np.sqrt(shape[0]))

    def node(operator: str, *operands: str, **attributes: Any) -> str:
        result = f"{operator}_{len(nodes)}"
        nodes.append(helper.make_node(operator, operands, [result], result, **attributes))
        return result

    def linear(x: str, name: str, inner: int, outer: int) -> str:
        product = node("MatMul", x, weight(f"{name}.w", inner, outer))
        return node("Add", weight(f"{name}.b", outer), product)

    def normalised(x: str, name: str) -> str:
        mean = node("ReduceMean", x, axes=[-1])
        distance = node("Sub", x, mean)
        square = node("Pow", distance, constant(f"{name}.two", 2.0))
        variance = node("ReduceMean", square, axes=[-1])
        root = node("Sqrt", node("Add", variance, constant(f"{name}.epsilon", 1e-5)))
        scaled = node("Mul", node("Div", distance, root), weight(f"{name}.scale", WIDTH))
        return node("Add", scaled, weight(f"{name}.shift", WIDTH))

    def heads(x: str, name: str, order: list[int]) -> str:
        sizes = constant(f"{name}.sizes", [0, 0, HEADS, WIDTH // HEADS], np.int64)
        return node("Transpose", node("Reshape", x, sizes), perm=order)

    words = node("Gather", weight("words", TOKENS, WIDTH), "tokens")
    places = node("Gather", weight("places", 8, WIDTH), constant("steps", [range(LENGTH)], int))
    kinds = node("Gather", weight("kinds", 2, WIDTH), "segments")
    x = normalised(node("Add", node("Add", words, places), kinds), "embedding")
    mask = node("Cast", node("Unsqueeze", "mask", constant("axes", [1, 2], np.int64)), to=1)
    mask = node("Mul", node("Sub", constant("one", 1.0), mask), constant("hidden", -10000.0))
    q = heads(linear(x, "query", WIDTH, WIDTH), "query", [0, 2, 1, 3])
    k = heads(linear(x, "key", WIDTH, WIDTH), "key", [0, 2, 3, 1])
    v = heads(linear(x, "value", WIDTH, WIDTH), "value", [0, 2, 1, 3])
    scores = node("Div", node("MatMul", q, k), constant("root", np.sqrt(WIDTH / HEADS)))
    weights = node("Softmax", node("Add", scores, mask), axis=3)
    mixed = node("Transpose", node("MatMul", weights, v), perm=[0, 2, 1, 3])
    mixed = node("Reshape", mixed, constant("flat", [0, 0, WIDTH], np.int64))
    x = normalised(node("Add", linear(mixed, "mixed", WIDTH, WIDTH), x), "first")
    wide = linear(x, "wide", WIDTH, 4 * WIDTH)
    part = node("Erf", node("Div", wide, constant("sqrt2", np.sqrt(2))))
    part = node("Mul", wide, node("Add", part, constant("unit", 1.0)))
    wide = node("Mul", part, constant("half", 0.5))
    x = normalised(node("Add", linear(wide, "narrow", 4 * WIDTH, WIDTH), x), "second")
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, [2, LENGTH])
        for name in ("tokens", "segments", "mask")
    ]
    graph = helper.make_graph(
        nodes,
        "encoder",
        inputs,
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [2, LENGTH, WIDTH])],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    opsets = [helper.make_opsetid("", 13)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def test_an_encoder(tmp_path: Path) -> None:
    model = bert()
    rewritten = optimised(model, tmp_path)
    used = {node.op_type for node in rewritten.graph.node if node.domain == "com.microsoft"}
    assert {"SkipLayerNormalization", "FusedMatMul", "Gelu"} <= used
    random = np.random.default_rng(1)
    feeds = {
        "tokens": random.integers(0, TOKENS, (2, LENGTH)),
        "segments": random.integers(0, 2, (2, LENGTH)),
        "mask": np.array([[1, 1, 1, 1, 0, 0], [1] * LENGTH]),
    }
    imported = import_onnx(rewritten)
    (got,) = interpret(imported.module, imported.weights, feeds).values()
    (want,) = onnxruntime_of(model, feeds).values()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_a_quantised_network(tmp_path: Path) -> None:
    q, outputs = images(3, np.uint8)
    model, feeds = q.model(*outputs), q.feeds()
    rewritten = optimised(model, tmp_path)
    used = {node.op_type for node in rewritten.graph.node}
    assert {"QLinearConv", "QLinearGlobalAveragePool"} <= used
    module, context = prepared(import_onnx(rewritten))
    plain, other = prepared(import_onnx(model))
    assert operations_in(module).count("requantise_linear") == 6
    got = interpret(module, context.weights, feeds)
    mine = interpret(plain, other.weights, feeds)
    for name, array in onnxruntime_of(rewritten, feeds).items():
        # Five layers one after another, each with a unit of its own.
        for found in (got[name], mine[name]):
            assert np.abs(found.astype(int) - array.astype(int)).max() <= 5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_a_network_for_images(name: str, tmp_path: Path) -> None:
    _, model = models.build(name)
    feeds = models.feeds(model)
    rewritten = optimised(model, tmp_path)
    assert {"FusedConv"} <= {node.op_type for node in rewritten.graph.node}
    imported = import_onnx(rewritten)
    (got,) = interpret(imported.module, imported.weights, feeds).values()
    (want,) = onnxruntime_of(model, feeds).values()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())

"""ONNX models for the reports' tests, made by hand."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def save(path: Path, nodes: list[onnx.NodeProto], shape: tuple[int, ...], output: str,
         **weights: np.ndarray) -> Path:  # fmt: skip
    """A model with one input ``x`` and one output."""
    graph = helper.make_graph(
        nodes,
        "made",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def folded(path: Path, seed: int = 0) -> Path:
    """Normalisation, scale, identity, constants, padding, a dead node and a branch."""
    random = np.random.default_rng(seed)

    def drawn(*size: int) -> np.ndarray:
        return random.normal(0, 0.4, size).astype(np.float32)

    node = helper.make_node
    nodes = [
        node("Pad", ["x", "amounts"], ["padded"], "pad"),
        node("Conv", ["padded", "w1"], ["c1"], "conv1"),
        node("BatchNormalization", ["c1", "scale", "shift", "mean", "variance"], ["n1"], "norm"),
        node("Add", ["p", "q"], ["pq"], "constants"),
        node("Mul", ["n1", "pq"], ["m1"], "scaled"),
        node("Relu", ["m1"], ["r1"], "relu"),
        node("Identity", ["r1"], ["i1"], "same"),
        node("Sigmoid", ["r1"], ["unused"], "dead"),
        node("Conv", ["i1", "w2"], ["c2"], "conv2"),
        node("Add", ["c2", "r1"], ["s"], "sum"),
        node("Transpose", ["s"], ["t"], "turn", perm=[0, 2, 3, 1]),
        node("Div", ["t", "den"], ["d"], "ratio"),
        node("Pow", ["d", "two"], ["y"], "power"),
    ]
    return save(
        path, nodes, (1, 3, 8, 8), "y",
        amounts=np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64),
        w1=drawn(8, 3, 3, 3), w2=drawn(8, 8, 1, 1),
        scale=drawn(8), shift=drawn(8), mean=drawn(8), variance=np.abs(drawn(8)) + 0.5,
        p=drawn(1, 8, 1, 1), q=drawn(1, 8, 1, 1) + 2,
        den=np.abs(drawn(8)) + 1, two=np.array(3, np.float32),
    )  # fmt: skip


def wide_softmax(path: Path, width: int) -> Path:
    """A product and a softmax over ``width`` elements."""
    random = np.random.default_rng(width)
    weight = random.normal(0, 0.1, (32, width)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["logits"], "product"),
        helper.make_node("Softmax", ["logits"], ["y"], "probabilities"),
    ]
    return save(path, nodes, (2, 32), "y", w=weight)

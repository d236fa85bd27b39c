"""A network of what transformers and grouped networks are made of, in awkward sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHANNELS, HEADS, TOKENS = 36, 3, 35


class _Maker:
    def __init__(self) -> None:
        self.random = np.random.default_rng(12)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def constant(self, array: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(array, f"c{len(self.weights)}"))
        return self.weights[-1].name

    def weight(self, *shape: int) -> str:
        scale = np.sqrt(1.0 / np.prod(shape[1:] if len(shape) == 4 else shape[:1]))
        return self.constant((self.random.standard_normal(shape) * scale).astype(np.float32))

    def number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def node(self, kind: str, inputs: Sequence[str], **attributes: object) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def reshape(self, x: str, *shape: int) -> str:
        return self.node("Reshape", [x, self.constant(np.array(shape, np.int64))])


def grouped_attention() -> onnx.ModelProto:
    """Grouped convolutions with a shuffle between them, then one layer of a transformer."""
    m = _Maker()
    x = m.node("Conv", ["image", m.weight(CHANNELS, 2, 1, 1)], group=6)
    x = m.reshape(x, 1, 6, 6, 5, 7)
    x = m.reshape(m.node("Transpose", [x], perm=[0, 2, 1, 3, 4]), 1, CHANNELS, 5, 7)
    x = m.node("Conv", [x, m.weight(CHANNELS, 12, 3, 3)], group=3, pads=[1, 1, 1, 1])
    x = m.node("Transpose", [m.reshape(x, 1, CHANNELS, TOKENS)], perm=[0, 2, 1])
    y = m.node("LayerNormalization", [x, m.weight(CHANNELS), m.weight(CHANNELS)])
    heads: list[str] = []
    for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
        part = m.node("MatMul", [y, m.weight(CHANNELS, CHANNELS)])
        part = m.reshape(part, 1, TOKENS, HEADS, CHANNELS // HEADS)
        heads.append(m.node("Transpose", [part], perm=order))
    scores = m.node("Mul", [m.node("MatMul", heads[:2]), m.number(0.3)])
    scores = m.node("Add", [scores, m.weight(TOKENS, TOKENS)])
    y = m.node("MatMul", [m.node("Softmax", [scores], axis=-1), heads[2]])
    y = m.reshape(m.node("Transpose", [y], perm=[0, 2, 1, 3]), 1, TOKENS, CHANNELS)
    x = m.node("Add", [x, y])
    y = m.node("MatMul", [x, m.weight(CHANNELS, 100)])
    erf = m.node("Erf", [m.node("Div", [y, m.number(2**0.5)])])
    y = m.node("Mul", [m.node("Mul", [y, m.node("Add", [erf, m.number(1.0)])]), m.number(0.5)])
    y = m.node("MatMul", [y, m.weight(100, CHANNELS)])
    m.nodes.append(helper.make_node("Add", [x, y], ["result"], name="result"))
    graph = helper.make_graph(
        m.nodes,
        "grouped_attention",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 12, 5, 7])],
        [helper.make_tensor_value_info("result", TensorProto.FLOAT, [1, TOKENS, CHANNELS])],
        m.weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)

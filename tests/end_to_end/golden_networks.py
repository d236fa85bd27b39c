"""Networks of one kernel each, small enough that what is emitted for them can be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def network(
    name: str,
    shape: Sequence[int],
    result: Sequence[int],
    nodes: Sequence[tuple[str, Sequence[str], str, Mapping[str, Any]]],
    weights: Mapping[str, Sequence[int]] | None = None,
    inputs: Sequence[str] = ("x",),
) -> onnx.ModelProto:
    """A model; its weights are drawn from a seed."""
    generator = np.random.default_rng(0)
    constants = [
        numpy_helper.from_array(generator.normal(size=size).astype(np.float32), key)
        for key, size in (weights or {}).items()
    ]
    graph = helper.make_graph(
        [
            helper.make_node(kind, list(operands), [out], name=out, **attributes)
            for kind, operands, out, attributes in nodes
        ],
        name,
        [helper.make_tensor_value_info(key, TensorProto.FLOAT, shape) for key in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def convolution() -> onnx.ModelProto:
    """With padding, a bias and relu."""
    nodes = [
        ("Conv", ["x", "w", "b"], "c", {"kernel_shape": [3, 3], "pads": [1] * 4}),
        ("Relu", ["c"], "y", {}),
    ]
    weights = {"w": (16, 8, 3, 3), "b": (16,)}
    return network("convolution", (1, 8, 6, 6), (1, 16, 6, 6), nodes, weights)


def depthwise() -> onnx.ModelProto:
    """Every second pixel of every channel."""
    options = {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [2, 2], "group": 16}
    nodes = [("Conv", ["x", "w"], "y", options)]
    return network("depthwise", (1, 16, 8, 8), (1, 16, 4, 4), nodes, {"w": (16, 1, 3, 3)})


def pool() -> onnx.ModelProto:
    """The greatest of windows that overlap."""
    nodes = [("MaxPool", ["x"], "y", {"kernel_shape": [3, 3], "strides": [2, 2]})]
    return network("pool", (1, 16, 7, 7), (1, 16, 3, 3), nodes)


def product() -> onnx.ModelProto:
    """A linear layer."""
    nodes = [("Gemm", ["x", "w", "b"], "y", {"transB": 1})]
    return network("product", (4, 32), (4, 16), nodes, {"w": (16, 32), "b": (16,)})


def residual() -> onnx.ModelProto:
    """A 1x1 convolution, added to another tensor."""
    nodes = [
        ("Conv", ["x", "w"], "c", {"kernel_shape": [1, 1]}),
        ("Add", ["c", "r"], "s", {}),
        ("Relu", ["s"], "y", {}),
    ]
    weights = {"w": (8, 8, 1, 1)}
    return network("residual", (1, 8, 4, 4), (1, 8, 4, 4), nodes, weights, ("x", "r"))


NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    made.__name__: made for made in (convolution, depthwise, pool, product, residual)
}

"""A small model and a small space for sweeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

MACHINE = str(Path(__file__).parents[2] / "examples" / "machines" / "small-npu.toml")

VARY = {
    "memory.feature.bytes": "1K..16K:4x",
    "move.load-weight.bytes_per_cycle": [4, 8],
}
"""Six points."""


def small_model(folder: Path, name: str = "small.onnx", channels: int = 16) -> str:
    """The path of a model with a convolution, a pool and a product."""
    random = np.random.default_rng(5)
    kernel = random.standard_normal((channels, 4, 3, 3)).astype(np.float32)
    product = random.standard_normal((channels * 36, 10)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
            helper.make_node("Relu", ["c"], ["r"], name="relu"),
            helper.make_node(
                "MaxPool", ["r"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]
            ),
            helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
            helper.make_node("MatMul", ["f", "m"], ["y"], name="product"),
        ],
        "small",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 4, 14, 14])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(kernel, "w"), numpy_helper.from_array(product, "m")],
    )
    path = folder / name
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return str(path)

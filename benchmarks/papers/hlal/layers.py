"""Table 4.6's ten layers: HLAL programs in examples/hlal/layers, and the layers as ONNX models.

The programs' segments are those that take the fewest cycles of the ones that were tried by hand.
The LSTM layer (3 inputs, 400 hidden, 121 outputs) runs over 8 steps, for which the table has no
number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

FOLDER = Path(__file__).parents[3] / "examples" / "hlal"

STEPS, INPUTS, HIDDEN, OUTPUTS = 8, 3, 400, 121
"""Of the LSTM layer."""


@dataclass(frozen=True)
class Convolution:
    """Extent, channels in and out, and kernel; padded so that results have the image's extent."""

    extent: int
    inputs: int
    outputs: int
    kernel: int


CONVOLUTIONS = {
    "conv1": Convolution(7, 512, 2048, 1),
    "conv2": Convolution(14, 512, 512, 3),
    "conv3": Convolution(13, 256, 384, 3),
}
POOLS = {"pool1": (28, 512), "pool2": (56, 256)}
"""Extent and channels; 2x2 at steps of 2."""
DENSE = {"fc1": (9216, 4096), "fc2": (4096, 4096), "fc3": (4096, 1024)}
"""Inputs and outputs."""
LRN = (27, 256)
"""Extent and channels; over 5 channels."""

NAMES = (*CONVOLUTIONS, *POOLS, *DENSE, "lrn", "lstm")


def program(name: str, direction: str) -> str:
    """The HLAL text of a layer, forward or backward."""
    suffix = "_backward" if direction == "backward" else ""
    return (FOLDER / "layers" / f"{name}{suffix}.hlal").read_text()


def model(name: str) -> onnx.ModelProto:
    """A layer by its name in the table, as a model of one node (the LSTM layer: of three)."""
    if name in CONVOLUTIONS:
        of = CONVOLUTIONS[name]
        node = helper.make_node("Conv", ["x", "w", "b"], ["y"], name, pads=[of.kernel // 2] * 4)
        weights = {"w": (of.outputs, of.inputs, of.kernel, of.kernel), "b": (of.outputs,)}
        return _made([node], [1, of.inputs, of.extent, of.extent], weights)
    if name in POOLS:
        extent, channels = POOLS[name]
        node = helper.make_node("MaxPool", ["x"], ["y"], name, kernel_shape=[2, 2], strides=[2, 2])
        return _made([node], [1, channels, extent, extent], {})
    if name in DENSE:
        ins, outs = DENSE[name]
        node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], name, transB=1)
        return _made([node], [1, ins], {"w": (outs, ins), "b": (outs,)})
    if name == "lrn":
        extent, channels = LRN
        node = helper.make_node("LRN", ["x"], ["y"], "lrn", size=5)
        return _made([node], [1, channels, extent, extent], {})
    gates = 4 * HIDDEN
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r", "b"], ["h"], "lstm", hidden_size=HIDDEN),
        helper.make_node("Reshape", ["h", "rows"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "v", "a"], ["y"], "out", transB=1),
    ]
    weights = {
        "w": (1, gates, INPUTS),
        "r": (1, gates, HIDDEN),
        "b": (1, 2 * gates),
        "v": (OUTPUTS, HIDDEN),
        "a": (OUTPUTS,),
    }
    return _made(nodes, [STEPS, 1, INPUTS], weights, rows=(STEPS, HIDDEN))


def _made(
    nodes: Sequence[NodeProto],
    shape: list[int],
    weights: dict[str, tuple[int, ...]],
    **constants: tuple[int, ...],
) -> onnx.ModelProto:
    random = np.random.default_rng(0)
    initial = [
        numpy_helper.from_array(
            (random.standard_normal(size) / np.sqrt(np.prod(size[1:]) or 1)).astype(np.float32), key
        )
        for key, size in weights.items()
    ]
    initial += [numpy_helper.from_array(np.array(v, np.int64), k) for k, v in constants.items()]
    graph = helper.make_graph(
        nodes,
        nodes[0].op_type,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        initial,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

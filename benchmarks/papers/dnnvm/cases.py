"""The paper's two examples of fusion (section 4.3), as networks of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper


def _network(
    shape: tuple[int, ...], nodes: list[NodeProto], weights: list[TensorProto]
) -> ModelProto:
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    result = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "case", [image], [result], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def _convolution(
    name: str, channels: int, outputs: int, kernel: int, stride: int = 1
) -> tuple[NodeProto, TensorProto]:
    random = np.random.default_rng(1)
    spread = (2 / (channels * kernel * kernel)) ** 0.5
    values = random.normal(0, spread, (outputs, channels, kernel, kernel)).astype(np.float32)
    weight = numpy_helper.from_array(values, f"{name}.weight")
    pads = [kernel // 2] * 4
    strides = [stride] * 2
    node = helper.make_node("Conv", ["x", weight.name], [name], name, pads=pads, strides=strides)
    return node, weight


def _res2a() -> ModelProto:
    """The block of ResNet with two branches of one convolution each (Fig. 6)."""
    one, first = _convolution("branch1", 64, 256, 1)
    two, second = _convolution("branch2", 64, 256, 1)
    total = helper.make_node("Add", ["branch1", "branch2"], ["sum"], "sum")
    end = helper.make_node("Relu", ["sum"], ["y"], "relu")
    return _network((1, 64, 56, 56), [one, two, total, end], [first, second])


def convolution(
    channels: int, size: int, outputs: int, kernel: int, stride: int = 1, *, pool: bool
) -> ModelProto:
    """A convolution on images of ``size`` x ``size``, alone or with a pool behind (Fig. 5)."""
    conv, weight = _convolution("conv", channels, outputs, kernel, stride)
    nodes = [conv, helper.make_node("Relu", ["conv"], ["relu" if pool else "y"], "relu")]
    if pool:
        window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 0, 1, 1]}
        nodes.append(helper.make_node("MaxPool", ["relu"], ["y"], "pool", **window))
    return _network((1, channels, size, size), nodes, [weight])


PAIRS = {"conv-pool": (64, 56, 192, 3), "stem-pool": (3, 224, 64, 7, 2)}
"""The convolutions of GoogLeNet with a pool behind: channels, size, outputs, kernel, stride."""

CASES: Mapping[str, Callable[[], ModelProto]] = {
    "res2a": _res2a,
    **{name: partial(convolution, *sizes, pool=True) for name, sizes in PAIRS.items()},
}


def save(name: str, folder: Path) -> Path:
    """A case's file in a folder."""
    path = folder / f"{name}.onnx"
    onnx.save(CASES[name](), path)
    return path

"""Small ONNX models with the layers that the target has code for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Network:
    """A model, layer by layer; values are known by name."""

    def __init__(self, *shape: int) -> None:
        self.random = np.random.default_rng(sum(shape))
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.shape = shape

    def weight(self, *shape: int) -> str:
        """Random weights."""
        scale = (2 / max(int(np.prod(shape[1:])), 1)) ** 0.5 if len(shape) > 1 else 0.1
        return self.constant((self.random.normal(size=shape) * scale).astype(np.float32))

    def constant(self, value: Any) -> str:
        """A constant."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node; its result has its name."""
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def conv(
        self, x: str, inputs: int, outputs: int, kernel: int, stride: int = 1, group: int = 1
    ) -> str:
        """A convolution with a bias that keeps the size but for the stride."""
        weights = self.weight(outputs, inputs // group, kernel, kernel)
        return self.op(
            *("Conv", x, weights, self.weight(outputs)),
            pads=[kernel // 2] * 4,
            strides=[stride, stride],
            group=group,
        )

    def clip(self, x: str) -> str:
        """The value kept in [0, 6]."""
        bounds = (self.constant(np.float32(0)), self.constant(np.float32(6)))
        return self.op("Clip", x, *bounds)

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        """A fully connected layer."""
        return self.op("Gemm", x, self.weight(outputs, inputs), self.weight(outputs), transB=1)

    def save(self, path: Path, output: str) -> Path:
        """Write the model."""
        graph = helper.make_graph(
            *(self.nodes, path.stem),
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_empty_tensor_value_info(output)],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(onnx.shape_inference.infer_shapes(model), path)
        return path


def tiny(folder: Path) -> Path:
    """A convolution with a residual, a pool, a classifier."""
    net = Network(1, 5, 12, 11)
    x = net.op("Relu", net.conv("x", 5, 10, 3))
    x = net.op("Relu", net.op("Add", net.conv(x, 10, 10, 3), x))
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x = net.linear(net.op("Flatten", x), 360, 9)
    return net.save(folder / "tiny.onnx", net.op("Softmax", x, axis=1))


def mobile(folder: Path) -> Path:
    """Depthwise convolutions and residuals, a global mean."""
    net = Network(1, 3, 32, 32)
    x, channels = net.clip(net.conv("x", 3, 16, 3, 2)), 16
    for outputs, stride in ((24, 2), (24, 1), (40, 2)):
        wide = channels * 3
        y = net.clip(net.conv(x, channels, wide, 1))
        y = net.conv(net.clip(net.conv(y, wide, wide, 3, stride, wide)), wide, outputs, 1)
        x = net.op("Add", x, y) if stride == 1 and outputs == channels else y
        channels = outputs
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    return net.save(folder / "mobile.onnx", net.linear(x, channels, 10))


def alex(folder: Path) -> Path:
    """Large windows and strides, normalisation across channels, groups, wide classifiers."""
    net = Network(1, 3, 47, 47)
    x = net.op("Conv", "x", net.weight(24, 3, 11, 11), net.weight(24), strides=[4, 4])
    x = net.op("LRN", net.op("Relu", x), size=5, alpha=1e-2, beta=0.75, bias=1.0)
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2])
    x = net.op("LRN", net.op("Relu", net.conv(x, 24, 64, 5, group=2)), size=5)
    x = net.op("Relu", net.conv(x, 64, 96, 3))
    x = net.op("Relu", net.conv(x, 96, 64, 3, group=2))
    x = net.op("Flatten", net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]))
    x = net.linear(net.op("Relu", net.linear(x, 256, 300)), 300, 20)
    return net.save(folder / "alex.onnx", net.op("Softmax", x, axis=1))


def residual(folder: Path) -> Path:
    """Blocks with and without a convolution on the shortcut."""
    net = Network(1, 3, 40, 40)
    x = net.op("Relu", net.conv("x", 3, 16, 7, 2))
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for inputs, outputs, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2)):
        y = net.op("Relu", net.conv(x, inputs, outputs, 3, stride))
        y = net.conv(y, outputs, outputs, 3)
        if stride != 1:
            x = net.conv(x, inputs, outputs, 1, stride)
        x = net.op("Relu", net.op("Add", y, x))
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    return net.save(folder / "residual.onnx", net.linear(x, 64, 12))


def mixed(folder: Path) -> Path:
    """Maps, means with padding that counts, joined results, several images."""
    net = Network(3, 6, 13, 11)
    x = net.op("Mul", net.op("Sigmoid", "x"), net.weight(1, 6, 1, 1))
    x = net.op("PRelu", net.op("Sub", x, net.op("Tanh", "x")), net.weight(6, 1, 1))
    window: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    y = net.op("AveragePool", x, count_include_pad=1, **window)
    z = net.op("AveragePool", x, **window)
    x = net.op("Concat", y, z, net.op("MaxPool", x, **window), axis=1)
    x = net.op("Conv", x, net.weight(7, 18, 3, 3), dilations=[2, 2], pads=[2, 2, 2, 2])
    return net.save(folder / "mixed.onnx", net.op("Softmax", x, axis=1))


def products(folder: Path) -> Path:
    """Products of values that are computed, views, and what the MPE does: padding and means."""
    net = Network(1, 6, 13, 11)
    x = net.op("Pad", "x", net.constant(np.array([0, 0, 1, 2, 0, 0, 1, 0], np.int64)))
    x = net.op("Reshape", x, net.constant(np.array([6, 15, 13], np.int64)))
    scores = net.op("MatMul", x, net.op("Transpose", x, perm=[0, 2, 1]))
    x = net.op("MatMul", net.op("Softmax", scores, axis=-1), x)
    x = net.op("MatMul", x, net.weight(13, 20))
    return net.save(folder / "products.onnx", net.op("ReduceMean", x, axes=[1], keepdims=0))


def lenet(_: Path) -> Path:
    """The example."""
    return Path(__file__).parents[3] / "examples" / "lenet5" / "lenet5.onnx"


NETWORKS: Mapping[str, Callable[[Path], Path]] = {
    "tiny": tiny,
    "lenet": lenet,
    "mobile": mobile,
    "alex": alex,
    "residual": residual,
    "mixed": mixed,
    "products": products,
}

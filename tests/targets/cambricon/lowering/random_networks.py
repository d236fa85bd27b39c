"""Random networks of convolutions, sums and pools, whose kernels overlap on ACC-C."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.machine import Machine
from tilewright.runtime import Executable


class Builder:
    """Nodes of a network, and shapes of values by name."""

    def __init__(self, seed: int, channels: Sequence[int]) -> None:
        self.random = np.random.default_rng(seed)
        self.channels = channels
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.shapes: dict[str, tuple[int, int]] = {}
        """Channels and rows: images are squares."""

    def input(self, name: str, size: int) -> str:
        """An input."""
        self.shapes[name] = int(self.random.choice(self.channels)), size
        return name

    def _node(self, kind: str, inputs: list[str], shape: tuple[int, int], **attributes: object):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        self.shapes[name] = shape
        return name

    def _weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        scale = 1 / np.sqrt(np.prod(shape[1:]))
        values = self.random.normal(0, scale, shape).astype(np.float32)
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def conv(self, source: str) -> str:
        """A convolution with a bias, mostly with a ReLU, and maybe with a residual."""
        deep, size = self.shapes[source]
        kernel, stride = int(self.random.choice([1, 3, 3])), int(self.random.choice([1, 1, 1, 2]))
        out = int(self.random.choice(self.channels))
        rows = (size - 1) // stride + 1
        inputs = [source, self._weight(out, deep, kernel, kernel), self._weight(out)]
        pads, strides = [kernel // 2] * 4, [stride] * 2
        found = self._node("Conv", inputs, (out, rows), pads=pads, strides=strides)
        others = [n for n, shape in self.shapes.items() if shape == (out, rows) and n != found]
        if others and self.random.random() < 0.6:
            found = self._node("Add", [found, str(self.random.choice(others))], (out, rows))
        return found if self.random.random() < 0.3 else self._node("Relu", [found], (out, rows))

    def pool(self, source: str) -> str:
        """A maximum over windows."""
        deep, size = self.shapes[source]
        shape = deep, (size - 1) // 2 + 1
        window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
        return self._node("MaxPool", [source], shape, **window)

    def save(self, path: Path, inputs: Sequence[str], outputs: Sequence[str]) -> Path:
        """Write the network."""

        def info(name: str) -> onnx.ValueInfoProto:
            deep, size = self.shapes[name]
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, deep, size, size))

        graph = helper.make_graph(
            self.nodes, "net", [*map(info, inputs)], [*map(info, outputs)], self.weights
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        onnx.save(onnx.shape_inference.infer_shapes(model), path)
        return path


def random_network(path: Path, seed: int, channels: Sequence[int] = (64, 96, 128)) -> Path:
    """One or two inputs, four to eight layers, and one or two outputs."""
    build = Builder(seed, channels)
    random, size = build.random, int(build.random.integers(9, 22))
    inputs = [build.input(f"x{number}", size) for number in range(int(random.integers(1, 3)))]
    at = inputs[0]
    for number in range(int(random.integers(4, 9))):
        if number == 2 and len(inputs) > 1:
            at = inputs[1]
        pools = build.shapes[at][1] > 8 and random.random() < 0.12
        at = build.pool(at) if pools else build.conv(at)
    read = {name for node in build.nodes for name in node.input}
    return build.save(path, inputs, [name for name in build.shapes if name not in read])


def exact(path: Path, folder: Path, machine: Machine, planner: str = "model") -> Executable:
    """The compiled network, whose values are those of the interpreter, bit for bit."""
    made = tilewright.compile(path, "cambricon", machine=machine, directory=folder, planner=planner)
    random = np.random.default_rng(1)
    sample = {
        info.name: random.normal(0, 1, [int(size) for size in info.shape]).astype(np.float32)
        for info in made.inputs
    }
    check = made.check(sample, made.run(sample, check_races=True))
    assert check.equal and check.exact and check.mismatches == 0
    return made

"""Random small convolutional networks as ONNX models: odd shapes, every supported operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[np.float32]
Shape = tuple[int, int, int, int]
KINDS = (
    *("conv", "conv", "conv", "depthwise", "group", "pool", "pool", "lrn", "map"),
    *("concat", "norm", "scale", "slice"),
)
MAPS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSwish", "Exp")


class _Network:
    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        shape = (self.pick(1, 3), self.one_of([1, 2, 3, 5, 16, 20, 32]), self.pick(7, 20))
        self.shape: Shape = (*shape, self.pick(7, 33))
        self.value = "x"
        self.seen: list[tuple[str, Shape]] = [("x", self.shape)]

    def pick(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high))

    def one_of(self, choices: list[int]) -> int:
        return choices[self.pick(0, len(choices))]

    def add(self, operator: str, inputs: list[str], **attributes: Any) -> str:
        output = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def constant(self, array: NDArray[Any]) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def weights(self, *shape: int) -> str:
        scale = np.sqrt(np.prod(shape[1:])) if len(shape) > 1 else 1.0
        return self.constant((self.random.standard_normal(shape) / scale).astype(np.float32))

    def step(self) -> None:
        kind = KINDS[self.pick(0, len(KINDS))]
        method = "conv" if kind in ("depthwise", "group") else kind
        getattr(self, method)(kind)
        self.seen.append((self.value, self.shape))

    def window(self, most: int) -> tuple[list[int], list[int], list[int]]:
        kernel = [self.pick(1, min(extent, most) + 1) for extent in self.shape[2:]]
        pads = [self.pick(0, (k + 1) // 2 + (most > 4 and k > 1)) for k in (*kernel, *kernel)]
        return kernel, pads, [self.pick(1, 3), self.pick(1, 3)]

    def slide(self, channels: int, kernel: list[int], pads: list[int], strides: list[int]) -> None:
        h, w = (
            (self.shape[2 + i] + pads[i] + pads[2 + i] - kernel[i]) // strides[i] + 1
            for i in range(2)
        )
        self.shape = (self.shape[0], channels, h, w)

    def conv(self, kind: str) -> None:
        channels = self.shape[1]
        divisors = [d for d in range(1, channels + 1) if channels % d == 0]
        group = {"conv": 1, "depthwise": channels}.get(kind, self.one_of(divisors))
        out = channels if kind == "depthwise" else group * self.pick(1, max(2, 60 // group))
        kernel, pads, strides = self.window(5)
        wide = all(2 * k - 1 <= e for k, e in zip(kernel, self.shape[2:], strict=True))
        dilation = 2 if wide and self.pick(0, 4) == 0 else 1
        inputs = [self.value, self.weights(out, channels // group, *kernel)]
        inputs += [self.weights(out)] if self.pick(0, 3) else []
        self.value = self.add(
            "Conv",
            inputs,
            group=group,
            pads=pads,
            strides=strides,
            dilations=[dilation, dilation],
        )
        self.slide(out, [(k - 1) * dilation + 1 for k in kernel], pads, strides)

    def pool(self, kind: str) -> None:
        kernel, pads, strides = self.window(4)
        attributes: dict[str, Any] = {"kernel_shape": kernel, "pads": pads, "strides": strides}
        if self.pick(0, 2):
            self.value = self.add("MaxPool", [self.value], **attributes)
        else:
            counted = self.pick(0, 2)
            self.value = self.add(
                "AveragePool", [self.value], count_include_pad=counted, **attributes
            )
        self.slide(self.shape[1], kernel, pads, strides)

    def lrn(self, kind: str) -> None:
        beta = (0.75, 0.5, 0.6)[self.pick(0, 3)]
        size = self.one_of([3, 5])
        self.value = self.add("LRN", [self.value], size=size, alpha=0.3, beta=beta, bias=1.0)

    def map(self, kind: str) -> None:
        operator = MAPS[self.pick(0, len(MAPS))]
        bounded = self.add("Tanh", [self.value]) if operator == "Exp" else self.value
        self.value = self.add(operator, [bounded])

    def concat(self, kind: str) -> None:
        fit = [
            (name, shape)
            for name, shape in self.seen
            if shape[0] == self.shape[0] and shape[2:] == self.shape[2:]
        ]
        name, shape = fit[self.pick(0, len(fit))] if fit else (self.value, self.shape)
        parts = [self.value, name] if self.pick(0, 2) else [name, self.value]
        self.value = self.add("Concat", parts, axis=1)
        self.shape = (self.shape[0], self.shape[1] + shape[1], *self.shape[2:])

    def norm(self, kind: str) -> None:
        parts = [
            self.constant((self.random.random(self.shape[1]) + 0.5).astype(np.float32))
            for _ in range(4)
        ]
        self.value = self.add("BatchNormalization", [self.value, *parts])

    def scale(self, kind: str) -> None:
        pooled = self.add("GlobalAveragePool", [self.value])
        self.value = self.add("Mul", [self.value, self.add("Sigmoid", [pooled])])

    def slice(self, kind: str) -> None:
        channels = self.shape[1]
        low = self.pick(0, channels)
        high = self.pick(low + 1, channels + 1)
        bounds = [self.constant(np.array([i], np.int64)) for i in (low, high, 1)]
        self.value = self.add("Slice", [self.value, *bounds])
        self.shape = (self.shape[0], high - low, *self.shape[2:])

    def residual(self) -> None:
        fit = [name for name, shape in self.seen if shape == self.shape and name != self.value]
        if fit:
            self.value = self.add("Add", [self.value, fit[self.pick(0, len(fit))]])

    def head(self) -> list[str]:
        _, c, h, w = self.shape
        outputs = [self.add("Transpose", [self.value], perm=[0, 2, 3, 1])]
        flat = self.add("Flatten", [self.value])
        width = self.pick(1, 70)
        inputs = [flat, self.weights(width, c * h * w), self.weights(width)]
        logits = self.add("Gemm", inputs, transB=1)
        outputs.append(self.add("Softmax", [logits], axis=1) if self.pick(0, 2) else logits)
        return outputs


def random_network(seed: int) -> tuple[onnx.ModelProto, Array]:
    """A model with one input ``x``, and data for it."""
    network = _Network(seed)
    shape = network.shape
    for _ in range(network.pick(4, 9)):
        network.step()
        if network.pick(0, 3) == 0:
            network.residual()
    outputs = network.head()
    graph = helper.make_graph(
        network.nodes,
        "random",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        network.constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model, network.random.standard_normal(shape).astype(np.float32)

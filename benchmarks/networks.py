"""Networks built from their tables: ResNet-18, ResNet-34, MobileNet-v2 and YOLOv3-tiny.

Weights are left at zero with the right shapes; ``models.randomise`` fills them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

CLASSES = 1000


class Builder:
    """Appends layers to a graph; values are known by name and number of channels."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []

    def node(self, operator: str, inputs: Sequence[str], name: str, **attributes: object) -> str:
        """Append a node named ``name``; returns its result."""
        output = f"{name}/out"
        self.nodes.append(helper.make_node(operator, inputs, [output], name, **attributes))
        return output

    def weight(self, name: str, *shape: int) -> str:
        """Append a weight."""
        self.weights.append(numpy_helper.from_array(np.zeros(shape, np.float32), name))
        return name

    def convolution(
        self, x: str, name: str, channels: tuple[int, int], kernel: int, stride: int, group: int = 1
    ) -> str:
        """A convolution that keeps the size but for the stride, normalised by batch."""
        inputs, outputs = channels
        weights = self.weight(f"{name}.weight", outputs, inputs // group, kernel, kernel)
        pad = kernel // 2
        x = self.node(
            "Conv",
            [x, weights],
            name,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[pad] * 4,
            group=group,
        )
        names = ("scale", "shift", "mean", "variance")
        parameters = [self.weight(f"{name}.bn.{part}", outputs) for part in names]
        return self.node("BatchNormalization", [x, *parameters], f"{name}.bn", epsilon=1e-5)

    def relu(self, x: str, name: str) -> str:
        """max(x, 0)."""
        return self.node("Relu", [x], name)

    def relu6(self, x: str, name: str) -> str:
        """x kept in [0, 6]."""
        return self.node("Clip", [x, "zero", "six"], name)

    def finish(self, x: str, channels: int) -> ModelProto:
        """Average over the image, classify, and close the model."""
        x = self.node("GlobalAveragePool", [x], "pool")
        x = self.node("Flatten", [x], "flatten")
        weights = self.weight("classifier.weight", CLASSES, channels)
        bias = self.weight("classifier.bias", CLASSES)
        self.nodes.append(
            helper.make_node("Gemm", [x, weights, bias], ["logits"], "classifier", transB=1)
        )
        image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 224, 224])
        logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, CLASSES])
        graph = helper.make_graph(self.nodes, self.name, [image], [logits], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def resnet(name: str, blocks: Sequence[int]) -> ModelProto:
    """Residual networks of basic blocks (He et al., Deep Residual Learning, table 1)."""
    build = Builder(name)
    x = build.relu(build.convolution("image", "stem", (3, 64), 7, 2), "stem.relu")
    x = build.node("MaxPool", [x], "stem.pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for stage, count in enumerate(blocks):
        outputs = 64 << stage
        for block in range(count):
            where = f"stage{stage + 1}.block{block + 1}"
            stride = 2 if stage and not block else 1
            y = build.convolution(x, f"{where}.conv1", (channels, outputs), 3, stride)
            y = build.relu(y, f"{where}.relu1")
            y = build.convolution(y, f"{where}.conv2", (outputs, outputs), 3, 1)
            if stride != 1 or channels != outputs:
                x = build.convolution(x, f"{where}.shortcut", (channels, outputs), 1, stride)
            x = build.relu(build.node("Add", [y, x], f"{where}.add"), f"{where}.relu2")
            channels = outputs
    return build.finish(x, channels)


# Expansion, channels, blocks, stride of the first (Sandler et al., MobileNetV2, table 2).
MOBILENET_V2 = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2() -> ModelProto:
    """Inverted residuals with linear bottlenecks, at width 1."""
    build = Builder("mobilenet_v2")
    for name, value in (("zero", 0.0), ("six", 6.0)):
        build.weights.append(numpy_helper.from_array(np.array(value, np.float32), name))
    x = build.relu6(build.convolution("image", "stem", (3, 32), 3, 2), "stem.relu6")
    channels = 32
    for row, (expansion, outputs, count, first) in enumerate(MOBILENET_V2):
        for block in range(count):
            where = f"stage{row + 1}.block{block + 1}"
            stride = first if block == 0 else 1
            y, wide = x, channels * expansion
            if expansion != 1:
                y = build.convolution(y, f"{where}.expand", (channels, wide), 1, 1)
                y = build.relu6(y, f"{where}.expand.relu6")
            y = build.convolution(y, f"{where}.depthwise", (wide, wide), 3, stride, wide)
            y = build.relu6(y, f"{where}.depthwise.relu6")
            y = build.convolution(y, f"{where}.project", (wide, outputs), 1, 1)
            if stride == 1 and channels == outputs:
                y = build.node("Add", [x, y], f"{where}.add")
            x, channels = y, outputs
    x = build.relu6(build.convolution(x, "head", (channels, 1280), 1, 1), "head.relu6")
    return build.finish(x, 1280)


LEAKY = 26 / 256
"""Slope of the leaky ReLU: what the FPGA core has in place of Darknet's 0.1."""


def yolov3_tiny() -> ModelProto:
    """Darknet's yolov3-tiny at 416 x 416, up to the two tensors that boxes are read off."""
    build = Builder("yolov3_tiny")

    def layer(x: str, name: str, channels: tuple[int, int], kernel: int) -> str:
        x = build.convolution(x, name, channels, kernel, 1)
        return build.node("LeakyRelu", [x], f"{name}.leaky", alpha=LEAKY)

    def head(x: str, name: str, channels: int) -> str:
        weights = build.weight(f"{name}.weight", 255, channels, 1, 1)
        bias = build.weight(f"{name}.bias", 255)
        return build.node("Conv", [x, weights, bias], name, kernel_shape=[1, 1])

    x, channels, route = "image", 3, ""
    for number, outputs in enumerate((16, 32, 64, 128, 256, 512)):
        x, channels = layer(x, f"conv{number}", (channels, outputs), 3), outputs
        route = x if outputs == 256 else route
        stride = 1 if outputs == 512 else 2
        pads = [0, 0, 2 - stride, 2 - stride]
        x = build.node(
            "MaxPool", [x], f"pool{number}", kernel_shape=[2, 2], strides=[stride] * 2, pads=pads
        )
    x = layer(layer(x, "conv6", (512, 1024), 3), "conv7", (1024, 256), 1)
    coarse = head(layer(x, "conv8", (256, 512), 3), "head1", 512)
    x = layer(x, "conv9", (256, 128), 1)
    build.weights.append(numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales"))
    x = build.node(
        "Resize",
        [x, "", "scales"],
        "up",
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    x = layer(build.node("Concat", [x, route], "cat", axis=1), "conv10", (384, 256), 3)
    fine = head(x, "head2", 256)
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 416, 416])
    results = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 255, size, size])
        for name, size in ((coarse, 13), (fine, 26))
    ]
    graph = helper.make_graph(build.nodes, build.name, [image], results, build.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

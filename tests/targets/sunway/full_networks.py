"""The networks that swTVM and swATOP are measured on, at full width and at any size of image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from tests.targets.sunway.sunway_networks import Network, lenet


def _pool(net: Network, x: str, kernel: int, stride: int) -> str:
    return net.op("MaxPool", x, kernel_shape=[kernel, kernel], strides=[stride, stride])


def alexnet(folder: Path, size: int) -> Path:
    """Two groups, normalisation across channels, three fully connected layers."""
    net = Network(1, 3, size, size)
    x = net.op("Conv", "x", net.weight(96, 3, 11, 11), net.weight(96), strides=[4, 4])
    size = (size - 11) // 4 + 1
    x = net.op("LRN", net.op("Relu", x), size=5, alpha=1e-4, beta=0.75, bias=1.0)
    x, size = _pool(net, x, 3, 2), (size - 3) // 2 + 1
    x = net.op("Relu", net.conv(x, 96, 256, 5, group=2))
    x = net.op("LRN", x, size=5, alpha=1e-4, beta=0.75, bias=1.0)
    x, size = _pool(net, x, 3, 2), (size - 3) // 2 + 1
    x = net.op("Relu", net.conv(x, 256, 384, 3))
    x = net.op("Relu", net.conv(x, 384, 384, 3, group=2))
    x = net.op("Relu", net.conv(x, 384, 256, 3, group=2))
    x, size = _pool(net, x, 3, 2), (size - 3) // 2 + 1
    x = net.op("Flatten", x)
    x = net.op("Relu", net.linear(x, 256 * size * size, 4096))
    x = net.op("Relu", net.linear(x, 4096, 4096))
    return net.save(folder / "alexnet.onnx", net.op("Softmax", net.linear(x, 4096, 1000), axis=1))


def _vgg(folder: Path, size: int, name: str, convolutions: Sequence[int]) -> Path:
    net, x, channels = Network(1, 3, size, size), "x", 3
    for count, outputs in zip(convolutions, (64, 128, 256, 512, 512), strict=True):
        for _ in range(count):
            x, channels = net.op("Relu", net.conv(x, channels, outputs, 3)), outputs
        x, size = _pool(net, x, 2, 2), size // 2
    x = net.op("Flatten", x)
    x = net.op("Relu", net.linear(x, channels * size * size, 4096))
    x = net.op("Relu", net.linear(x, 4096, 4096))
    return net.save(folder / f"{name}.onnx", net.op("Softmax", net.linear(x, 4096, 1000), axis=1))


def vgg16(folder: Path, size: int) -> Path:
    """Thirteen convolutions."""
    return _vgg(folder, size, "vgg16", (2, 2, 3, 3, 3))


def vgg19(folder: Path, size: int) -> Path:
    """Sixteen convolutions."""
    return _vgg(folder, size, "vgg19", (2, 2, 4, 4, 4))


def resnet50(folder: Path, size: int) -> Path:
    """Bottlenecks, the stride in their first 1x1."""
    net = Network(1, 3, size, size)
    x = net.op("Relu", net.conv("x", 3, 64, 7, 2))
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for stage, count in enumerate((3, 4, 6, 3)):
        inner, outputs = 64 << stage, 256 << stage
        for block in range(count):
            stride = 2 if stage and not block else 1
            y = net.op("Relu", net.conv(x, channels, inner, 1, stride))
            y = net.op("Relu", net.conv(y, inner, inner, 3))
            y = net.conv(y, inner, outputs, 1)
            if channels != outputs:
                x = net.conv(x, channels, outputs, 1, stride)
            # The sum of what blocks add would grow from block to block.
            x = net.op("Relu", net.op("Mul", net.op("Add", y, x), net.constant(np.float32(0.5))))
            channels = outputs
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    return net.save(folder / "resnet50.onnx", net.linear(x, channels, 1000))


def yolov2(folder: Path, size: int) -> Path:
    """Darknet-19 without its classifier, the layer that is passed through, 425 channels."""
    net = Network(1, 3, size, size)

    def conv(x: str, inputs: int, outputs: int, kernel: int) -> str:
        return net.op("LeakyRelu", net.conv(x, inputs, outputs, kernel), alpha=0.1)

    x = conv("x", 3, 32, 3)
    x = conv(_pool(net, x, 2, 2), 32, 64, 3)
    x = _pool(net, x, 2, 2)
    for outputs, pairs in ((128, 1), (256, 1), (512, 2)):
        x = conv(x, outputs // 2, outputs, 3)
        for _ in range(pairs):
            x = conv(conv(x, outputs, outputs // 2, 1), outputs // 2, outputs, 3)
        passed = x
        x = _pool(net, x, 2, 2)
    x = conv(x, 512, 1024, 3)
    for _ in range(2):
        x = conv(conv(x, 1024, 512, 1), 512, 1024, 3)
    x = conv(conv(x, 1024, 1024, 3), 1024, 1024, 3)
    y = net.op("SpaceToDepth", conv(passed, 512, 64, 1), blocksize=2)
    x = conv(net.op("Concat", y, x, axis=1), 1280, 1024, 3)
    return net.save(folder / "yolov2.onnx", net.conv(x, 1024, 425, 1))


def mobilenet(folder: Path, size: int) -> Path:
    """Depthwise and pointwise convolutions in turn."""
    net = Network(1, 3, size, size)
    x, channels = net.op("Relu", net.conv("x", 3, 32, 3, 2)), 32
    rest = ((512, 1),) * 5
    for outputs, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *rest):
        x = net.op("Relu", net.conv(x, channels, channels, 3, stride, channels))
        x, channels = net.op("Relu", net.conv(x, channels, outputs, 1)), outputs
    for stride in (2, 1):
        x = net.op("Relu", net.conv(x, channels, channels, 3, stride, channels))
        x, channels = net.op("Relu", net.conv(x, channels, 1024, 1)), 1024
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    return net.save(folder / "mobilenet.onnx", net.linear(x, channels, 1000))


FULL: Mapping[str, tuple[Callable[[Path, int], Path], int, int]] = {
    "alexnet": (alexnet, 75, 227),
    "vgg16": (vgg16, 32, 224),
    "vgg19": (vgg19, 32, 224),
    "resnet50": (resnet50, 32, 224),
    "yolov2": (yolov2, 64, 416),
    "mobilenet": (mobilenet, 32, 224),
    "lenet": (lambda folder, _: lenet(folder), 28, 28),
}
"""What builds each, a small image, and that of the paper."""

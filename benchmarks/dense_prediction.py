"""Networks that predict at every place of an image: a detector and a segmentation.

An SSD (Liu et al., section 3) on the features of MobileNet, and an FCN (Long et al., the stream of
stride 8), of full size, with seeded random weights.
"""

from __future__ import annotations

from onnx import ModelProto

from benchmarks.exports import Network

CLASSES = 21
"""Of Pascal VOC, the background among them."""


def _relu(net: Network, x: str, ci: int, co: int, k: int, stride: int = 1) -> str:
    return net.node("Relu", [net.conv(x, ci, co, k, stride)])


def _halved(net: Network, x: str) -> str:
    return net.node("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])


def ssd() -> ModelProto:
    """MobileNet's features on an image of 300 x 300, and six maps with boxes and classes each."""
    net = Network("ssd", [1, 3, 300, 300], gain=2.0)
    x, channels = _relu(net, "x", 3, 32, 3, 2), 32
    maps: list[tuple[str, int]] = []
    for co, stride in (
        *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
        *((512, 1),) * 5,
        *((1024, 2), (1024, 1)),
    ):
        if (channels, stride) == (512, 2):
            maps.append((x, channels))
        x = net.node("Relu", [net.conv(x, channels, channels, 3, stride, group=channels)])
        x, channels = _relu(net, x, channels, co, 1), co
    maps.append((x, channels))
    for inner, co in ((256, 512), (128, 256), (128, 256), (64, 128)):
        x = _relu(net, _relu(net, x, channels, inner, 1), inner, co, 3, 2)
        channels = co
        maps.append((x, channels))
    boxes, scores = list[str](), list[str]()
    for number, (x, channels) in enumerate(maps):
        priors = 3 if number == 0 else 6
        for rows, width in ((boxes, 4), (scores, CLASSES)):
            y = net.conv(x, channels, priors * width, 1)
            y = net.node("Transpose", [y], perm=[0, 2, 3, 1])
            rows.append(net.node("Reshape", [y, net.constant([1, -1, width], int)]))
    return net.finish(*(net.node("Concat", rows, axis=1) for rows in (boxes, scores)))


def fcn() -> ModelProto:
    """Convolutions down to a 32nd of an image of 256 x 256, transposed ones back to its size."""
    net = Network("fcn", [1, 3, 256, 256], gain=2.0)
    x, channels, maps = "x", 3, list[tuple[str, int]]()
    for co, count in ((32, 1), (64, 1), (128, 2), (256, 2), (256, 2)):
        for _ in range(count):
            x, channels = _relu(net, x, channels, co, 3), co
        x = _halved(net, x)
        maps.append((x, channels))

    def enlarged(x: str, times: int) -> str:
        kernel = 2 * times
        weight = net.weight(CLASSES, CLASSES, kernel, kernel, fan=4 * CLASSES)
        pads = [times // 2] * 4
        strides = [times, times]
        return net.node("ConvTranspose", [x, weight], pads=pads, strides=strides)

    x = net.conv(x, channels, CLASSES, 1)
    for side, channels in reversed(maps[2:4]):
        x = net.node("Add", [enlarged(x, 2), net.conv(side, channels, CLASSES, 1)])
    return net.finish(enlarged(x, 8))

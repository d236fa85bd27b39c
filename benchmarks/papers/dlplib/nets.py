"""Table 3.5's benchmarks as prototxts, made of their rows.

What the table prints and a network cannot be is settled as the networks are known: AlexNet's image
has 227 pixels (its first layer gives 55), and a pool of 3x3 stands before its first fully connected
layer, which reads 9216 = 256*6*6 numbers; VGG-16's second layer is 3x3 at stride 1 like the others,
and its layers in 28x28 all read what the layer before gives. Convolutions are in one group, as in
the table. ReLU follows the first two fully connected layers as everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence


class Prototxt:
    """The text of a network, layer by layer; every layer reads the one before."""

    def __init__(self, name: str, channels: int, extent: int) -> None:
        self.lines = [
            f'name: "{name}"\ninput: "data"',
            f"input_shape {{ dim: 1 dim: {channels} dim: {extent} dim: {extent} }}",
        ]
        self._last, self._count = "data", 0

    def layer(self, type: str, settings: str = "", *, in_place: bool = False) -> None:
        """Append a layer."""
        self._count += 1
        name = f"{type.lower()}{self._count}"
        top = self._last if in_place else name
        blobs = f'bottom: "{self._last}" top: "{top}"'
        self.lines.append(f'layer {{ name: "{name}" type: "{type}" {blobs} {settings} }}')
        self._last = top

    def convolution(
        self, outputs: int, kernel: int, stride: int = 1, pad: int = 0, relu: bool = True
    ) -> None:
        """A convolution."""
        window = f"kernel_size: {kernel} stride: {stride} pad: {pad}"
        self.layer("Convolution", f"convolution_param {{ num_output: {outputs} {window} }}")
        if relu:
            self.layer("ReLU", in_place=True)

    def pool(self, kernel: int) -> None:
        """Maxima at steps of 2."""
        self.layer("Pooling", f"pooling_param {{ pool: MAX kernel_size: {kernel} stride: 2 }}")

    def lrn(self) -> None:
        """Across 5 channels."""
        self.layer("LRN", "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }")

    def fully_connected(self, outputs: int, relu: bool = False) -> None:
        """A fully connected layer."""
        self.layer("InnerProduct", f"inner_product_param {{ num_output: {outputs} }}")
        if relu:
            self.layer("ReLU", in_place=True)

    @property
    def text(self) -> str:
        """The whole prototxt."""
        return "\n".join(self.lines) + "\n"


def alexnet() -> Prototxt:
    """AlexNet, in one group."""
    net = Prototxt("alexnet", 3, 227)
    net.convolution(96, 11, stride=4)
    net.lrn()
    net.pool(3)
    net.convolution(256, 5, pad=2)
    net.lrn()
    net.pool(3)
    for outputs in (384, 384, 256):
        net.convolution(outputs, 3, pad=1)
    net.pool(3)
    _classify(net, (4096, 4096, 1000))
    return net


def vgg16() -> Prototxt:
    """VGG-16."""
    net = Prototxt("vgg16", 3, 224)
    for outputs, layers in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(layers):
            net.convolution(outputs, 3, pad=1)
        net.pool(2)
    _classify(net, (4096, 4096, 1000))
    return net


def _classify(net: Prototxt, outputs: Sequence[int]) -> None:
    for count in outputs:
        net.fully_connected(count, relu=count != outputs[-1])


def prototxt(name: str) -> str:
    """The prototxt of a benchmark; raises KeyError."""
    if name in ("alexnet", "vgg16"):
        return (alexnet if name == "alexnet" else vgg16)().text
    channels, extent = {
        "conv1": (96, 112),
        "conv2": (96, 112),
        "pool1": (96, 55),
        "pool2": (64, 224),
        "lrn": (96, 55),
        "fc1": (4096, 1),
        "fc2": (4096, 1),
    }[name]
    net = Prototxt(name, channels, extent)
    if name.startswith("conv"):
        net.convolution(384 if name == "conv1" else 256, 3, pad=1, relu=False)
    elif name.startswith("pool"):
        net.pool(3 if name == "pool1" else 2)
    elif name == "lrn":
        net.lrn()
    else:
        net.fully_connected(4096 if name == "fc1" else 1000)
    return net.text

"""LeNet-5 by hand: every layer of the trained network as a call of DLPlib.

python examples/dlplib/lenet5.py [TARGET [IMAGES]]

Weights and digits are those of examples/lenet5. Binary points were read off the largest numbers
that the network computes on digits.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright
from tilewright.integrations import dlplib
from tilewright.integrations.dlplib import FLOAT32, Handle, NumericType, Operand, fixed16

HERE = Path(__file__).parent.parent / "lenet5"

POINTS = {"image": 14, "conv1": 13, "conv2": 12, "fc1": 10, "fc2": 10, "fc3": 10, "softmax": 14}
"""Bits behind the point of every layer's results: they are below 4, 8 and 32 in magnitude."""

WEIGHTS = 12
"""Of all weights. Sums have as many bits behind the point as image and weights together, 26 at
most, so that those below 32 fit 32 bits."""


class LeNet5:
    """The network on a device: its parameters and the memory of every layer's results."""

    def __init__(self, target: str) -> None:
        self.handle = Handle(target)
        self.operands: list[Operand] = []
        self.parameters = parameters()

        self.image = self.empty("image", (1, 1, 32, 32))
        self.conv1 = self.empty("conv1", (1, 6, 28, 28))
        self.pool1 = self.empty("conv1", (1, 6, 14, 14))
        self.conv2 = self.empty("conv2", (1, 16, 10, 10))
        self.pool2 = self.empty("conv2", (1, 16, 5, 5))
        self.fc1 = self.empty("fc1", (1, 120))
        self.fc2 = self.empty("fc2", (1, 84))
        self.fc3 = self.empty("fc3", (1, 10))
        self.scores = self.empty("softmax", (1, 10))

        self.conv1_weights = self.bring("conv1", self.image, (6, 1, 5, 5))
        self.conv2_weights = self.bring("conv2", self.pool1, (16, 6, 5, 5))
        self.fc1_weights = self.bring("fc1", self.pool2, (120, 16, 5, 5))
        self.fc2_weights = self.bring("fc2", self.fc1, (84, 120, 1, 1))
        self.fc3_weights = self.bring("fc3", self.fc2, (10, 84, 1, 1))

        self.convolution = dlplib.ConvolutionDescriptor()
        self.convolution.set(activation="relu")
        self.pooling = dlplib.PoolingDescriptor()
        self.pooling.set("max", window=(2, 2), strides=(2, 2))

    def type(self, fraction: int) -> NumericType:
        """Fixed point on an accelerator, float32 on the cpu."""
        return fixed16(fraction) if self.handle.is_fixed else FLOAT32

    def empty(self, layer: str, dims: tuple[int, ...]) -> Operand:
        """Memory for a layer's results."""
        made = self.handle.empty(dims, self.type(POINTS[layer]), "NHWC")
        self.operands.append(made)
        return made

    def bring(self, layer: str, x: Operand, dims: tuple[int, ...]) -> tuple[Operand, Operand]:
        """A layer's weights and biases, on the device."""
        weights, biases = self.parameters[layer]
        w = self.handle.tensor(weights.reshape(dims), self.type(WEIGHTS), "NHWC", filter=True)
        kind = dlplib.bias_type(x.descriptor.get().type, self.type(WEIGHTS))
        b = self.handle.tensor(biases.reshape(1, -1), kind)
        self.operands += (w, b)
        return w, b

    def classify(self, image: np.ndarray) -> int:
        """The digit in an image of 32 x 32."""
        h = self.handle
        h.store(self.image, image)
        w, b = self.conv1_weights
        dlplib.convolution_forward(h, self.convolution, self.image, w, self.conv1, b)
        dlplib.pooling_forward(h, self.pooling, self.conv1, self.pool1)
        w, b = self.conv2_weights
        dlplib.convolution_forward(h, self.convolution, self.pool1, w, self.conv2, b)
        dlplib.pooling_forward(h, self.pooling, self.conv2, self.pool2)
        w, b = self.fc1_weights
        dlplib.fully_connected_forward(h, self.pool2, w, self.fc1, b, "relu")
        w, b = self.fc2_weights
        dlplib.fully_connected_forward(h, self.fc1, w, self.fc2, b, "relu")
        w, b = self.fc3_weights
        dlplib.fully_connected_forward(h, self.fc2, w, self.fc3, b)
        dlplib.softmax_forward(h, self.fc3, self.scores)
        return int(h.load(self.scores).argmax())

    def close(self) -> None:
        """Release everything."""
        self.handle.release(*self.operands)
        self.handle.destroy()


def parameters() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Weights and biases by layer, of the trained network."""
    import onnx

    arrays = {
        tensor.name: onnx.numpy_helper.to_array(tensor)
        for tensor in onnx.load(HERE / "lenet5.onnx").graph.initializer
    }
    layers = ("conv1", "conv2", "fc1", "fc2", "fc3")
    return {layer: (arrays[f"{layer}.weight"], arrays[f"{layer}.bias"]) for layer in layers}


def main(target: str = "cambricon-x", count: str = "40") -> None:
    with np.load(HERE / "held_out.npz") as held_out:
        images = held_out["images"][: int(count)].astype(np.float32) / 16
        labels = held_out["labels"][: int(count)]
    network = LeNet5(target)
    right = sum(
        network.classify(image) == label for image, label in zip(images, labels, strict=True)
    )
    cycles = network.handle.cycles // len(images)
    print(f"{right} of {len(images)} digits right, {cycles} cycles an image (tilewright "
          f"{tilewright.__version__})")  # fmt: skip
    network.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

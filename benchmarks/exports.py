"""Networks of four kinds as exporters write them, timed against ONNX Runtime on one thread.

    python -m benchmarks.exports [unet llama efficientnet convnext] [--rounds 15]

A U-Net (Ronneberger et al., figure 1, a quarter of its channels), a decoder in the manner of Llama
(Touvron et al., section 2.2: RMSNorm, rotary positions, SwiGLU), EfficientNet-B0 (Tan and Le, table
1) and ConvNeXt-T (Liu et al., table 9), with seeded random weights. Processor time is what counts,
of calls from Python in turns: it suffers least from whatever else the machine is doing.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

import tilewright

TOKENS, WIDTH, HEADS, INNER, LAYERS = 64, 512, 8, 1376, 4
"""Of the decoder."""

STAGES = (
    *((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3)),
    *((6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)),
)
"""EfficientNet-B0: expansion, channels, layers, stride, window."""


class Network:
    """Appends nodes to a graph; weights are random and keep the variance of signals.

    Of convolutions they multiply it by ``gain``, for what is lost between them.
    """

    def __init__(self, name: str, shape: Sequence[int], gain: float = 1.0) -> None:
        self.name, self.shape = name, list(shape)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[TensorProto] = []
        self.random = np.random.default_rng(7)
        self.gain = gain

    def node(self, operator: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Append a node; returns its result."""
        result = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [result], **attributes))
        return result

    def constant(self, array: object, kind: type = np.float32) -> str:
        """Append a constant."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, kind), name))
        return name

    def weight(self, *shape: int, fan: int = 0) -> str:
        """Append random weights of products over ``fan`` elements; of a scale near 1 without."""
        values = self.random.standard_normal(shape)
        return self.constant(values * fan**-0.5 if fan else 1.0 + 0.1 * values)

    def conv(self, x: str, ci: int, co: int, k: int, stride: int = 1, group: int = 1) -> str:
        """A convolution with a bias that keeps the size but for the stride."""
        fan = ci // group * k * k
        weight = self.weight(co, ci // group, k, k, fan=max(1, int(fan / self.gain)))
        inputs = [x, weight, self.weight(co, fan=100)]
        pads, strides = [k // 2 if k % 2 else 0] * 4, [stride] * 2
        return self.node(
            "Conv", inputs, kernel_shape=[k, k], pads=pads, strides=strides, group=group
        )

    def linear(self, x: str, inputs: int, outputs: int, bias: bool = True) -> str:
        """A product with weights, and a bias."""
        x = self.node("MatMul", [x, self.weight(inputs, outputs, fan=inputs)])
        return self.node("Add", [x, self.weight(outputs, fan=100)]) if bias else x

    def silu(self, x: str) -> str:
        """x * sigmoid(x)."""
        return self.node("Mul", [x, self.node("Sigmoid", [x])])

    def finish(self, *results: str) -> ModelProto:
        """The model."""
        info = helper.make_tensor_value_info
        inputs = [info("x", TensorProto.FLOAT, self.shape)]
        outputs = [info(result, TensorProto.FLOAT, None) for result in results]
        graph = helper.make_graph(self.nodes, self.name, inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def unet(size: int = 256, widths: Sequence[int] = (16, 32, 64, 128)) -> ModelProto:
    """Some levels down and up again, of so many channels; transposed convolutions go up."""
    net = Network("unet", [1, 3, size, size])

    def twice(x: str, ci: int, co: int) -> str:
        for inputs in (ci, co):
            x = net.node("Relu", [net.conv(x, inputs, co, 3)])
        return x

    x, skipped, channels = "x", list[str](), [3, *widths]
    for ci, co in pairwise(channels):
        skipped.append(twice(x, ci, co))
        x = net.node("MaxPool", [skipped[-1]], kernel_shape=[2, 2], strides=[2, 2])
    x = twice(x, widths[-1], 2 * widths[-1])
    for co in reversed(channels[1:]):
        weights = [net.weight(2 * co, co, 2, 2, fan=2 * co), net.weight(co, fan=100)]
        x = net.node("ConvTranspose", [x, *weights], kernel_shape=[2, 2], strides=[2, 2])
        x = twice(net.node("Concat", [skipped.pop(), x], axis=1), 2 * co, co)
    return net.finish(net.conv(x, widths[0], 2, 1))


def llama() -> ModelProto:
    """A few layers of a decoder on ``TOKENS`` embedded tokens."""
    net = Network("llama", [1, TOKENS, WIDTH])
    size = WIDTH // HEADS
    angles = np.outer(np.arange(TOKENS), 10000.0 ** (-np.arange(0, size, 2) / size))
    turned = [net.constant(np.tile(f(angles), (1, 2))) for f in (np.cos, np.sin)]
    mask = net.constant(np.triu(np.full((TOKENS, TOKENS), -1e9), 1))
    ints = {n: net.constant([n], np.int64) for n in (0, size // 2, size, 3)}

    def norm(x: str) -> str:
        square = net.node("Pow", [x, net.constant(2.0)])
        mean = net.node("ReduceMean", [square], axes=[-1], keepdims=1)
        root = net.node("Sqrt", [net.node("Add", [mean, net.constant(1e-5)])])
        return net.node("Mul", [net.weight(WIDTH), net.node("Div", [x, root])])

    def heads(x: str) -> str:
        shape = net.constant([1, TOKENS, HEADS, size], np.int64)
        return net.node("Transpose", [net.node("Reshape", [x, shape])], perm=[0, 2, 1, 3])

    def rotary(x: str) -> str:
        low = net.node("Slice", [x, ints[0], ints[size // 2], ints[3]])
        high = net.node("Slice", [x, ints[size // 2], ints[size], ints[3]])
        half = net.node("Concat", [net.node("Neg", [high]), low], axis=-1)
        parts = [net.node("Mul", pair) for pair in ([x, turned[0]], [half, turned[1]])]
        return net.node("Add", parts)

    x = "x"
    for _ in range(LAYERS):
        y = norm(x)
        q, k, v = (heads(net.linear(y, WIDTH, WIDTH, bias=False)) for _ in range(3))
        keys = net.node("Transpose", [rotary(k)], perm=[0, 1, 3, 2])
        scores = net.node("MatMul", [rotary(q), keys])
        scores = net.node("Div", [scores, net.constant(math.sqrt(size))])
        weights = net.node("Softmax", [net.node("Add", [scores, mask])], axis=-1)
        y = net.node("Transpose", [net.node("MatMul", [weights, v])], perm=[0, 2, 1, 3])
        y = net.node("Reshape", [y, net.constant([1, TOKENS, WIDTH], np.int64)])
        x = net.node("Add", [x, net.linear(y, WIDTH, WIDTH, bias=False)])
        y = norm(x)
        gate = net.silu(net.linear(y, WIDTH, INNER, bias=False))
        y = net.node("Mul", [gate, net.linear(y, WIDTH, INNER, bias=False)])
        x = net.node("Add", [x, net.linear(y, INNER, WIDTH, bias=False)])
    return net.finish(norm(x))


def efficientnet() -> ModelProto:
    """EfficientNet-B0 on an image of 224 x 224; batch normalisation has been folded."""
    net = Network("efficientnet", [1, 3, 224, 224], gain=2.3)  # SiLU and gates halve what is small.
    x, channels = net.silu(net.conv("x", 3, 32, 3, 2)), 32
    for expansion, outputs, layers, first, window in STAGES:
        for stride in (first, *[1] * (layers - 1)):
            inner, y = channels * expansion, x
            if expansion > 1:
                y = net.silu(net.conv(y, channels, inner, 1))
            y = net.silu(net.conv(y, inner, inner, window, stride, inner))
            squeezed = net.node("GlobalAveragePool", [y])
            squeezed = net.silu(net.conv(squeezed, inner, max(channels // 4, 1), 1))
            gate = net.node("Sigmoid", [net.conv(squeezed, max(channels // 4, 1), inner, 1)])
            y = net.conv(net.node("Mul", [gate, y]), inner, outputs, 1)
            x = net.node("Add", [y, x]) if stride == 1 and channels == outputs else y
            channels = outputs
    x = net.node("GlobalAveragePool", [net.silu(net.conv(x, 320, 1280, 1))])
    return net.finish(net.linear(net.node("Flatten", [x]), 1280, 1000))


def convnext() -> ModelProto:
    """ConvNeXt-T on an image of 224 x 224, its blocks with the channels last within."""
    net = Network("convnext", [1, 3, 224, 224])

    def norm(x: str, channels: int) -> str:
        parts = [net.weight(channels), net.weight(channels, fan=100)]
        return net.node("LayerNormalization", [x, *parts], axis=-1, epsilon=1e-6)

    def last(x: str) -> str:
        return net.node("Transpose", [x], perm=[0, 2, 3, 1])

    def first(x: str) -> str:
        return net.node("Transpose", [x], perm=[0, 3, 1, 2])

    x, before = "x", 3
    for number, (channels, blocks) in enumerate(((96, 3), (192, 3), (384, 9), (768, 3))):
        if number:
            x = first(norm(last(x), before))
        x = net.conv(x, before, channels, 2 if number else 4, 2 if number else 4)
        x = x if number else first(norm(last(x), channels))
        for _ in range(blocks):
            y = norm(last(net.conv(x, channels, channels, 7, 1, channels)), channels)
            y = net.linear(y, channels, 4 * channels)
            wide = net.node("Erf", [net.node("Div", [y, net.constant(math.sqrt(2))])])
            y = net.node("Mul", [y, net.node("Add", [wide, net.constant(1.0)])])
            y = net.linear(net.node("Mul", [y, net.constant(0.5)]), 4 * channels, channels)
            y = first(net.node("Mul", [y, net.weight(channels)]))
            x = net.node("Add", [x, y])
        before = channels
    x = net.node("Flatten", [net.node("GlobalAveragePool", [x])])
    return net.finish(net.linear(norm(x, before), before, 1000))


BUILDERS: dict[str, Callable[[], ModelProto]] = {
    builder.__name__: builder for builder in (unet, llama, efficientnet, convnext)
}


def compared(name: str, rounds: int) -> str:
    """A line: processor time of calls in turns, and their ratio; ends if results differ."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        onnx.save(BUILDERS[name](), path)
        ours = tilewright.compile(path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        theirs = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        shape = [int(size) for size in ours.inputs[0].shape]
        values = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        feeds = {"x": values}

        def run_ours() -> np.ndarray:
            return next(iter(ours.run(feeds).values()))

        def run_theirs() -> np.ndarray:
            return np.asarray(theirs.run(None, feeds)[0])

        found, wanted = run_ours(), run_theirs()
        error = float(np.abs(found - wanted).max() / np.abs(wanted).max())
        if not error < 1e-3:
            raise SystemExit(f"{name}: the results differ by {error}")
        taken: list[tuple[float, float]] = []
        for _ in range(rounds):
            begin = time.process_time()
            run_ours()
            middle = time.process_time()
            run_theirs()
            taken.append((middle - begin, time.process_time() - middle))
    ratio = median(other / own for own, other in taken)
    own, other = (1e3 * median(column) for column in zip(*taken, strict=True))
    return f"{name:<14}{own:>10.2f} ms{other:>10.2f} ms{ratio:>8.2f}{error:>12.1e}"


def main() -> None:
    """Print a line for each network that is named; all without names."""
    names, rounds = sys.argv[1:], 15
    if "--rounds" in names:
        place = names.index("--rounds")
        rounds = int(names[place + 1])
        del names[place : place + 2]
    print(f"{'network':<14}{'tilewright':>13}{'ONNX Runtime':>13}{'ratio':>8}{'error':>12}")
    for name in names or BUILDERS:
        print(compared(name, rounds), flush=True)


if __name__ == "__main__":
    main()

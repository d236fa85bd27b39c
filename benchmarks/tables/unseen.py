"""unseen: how far the cycles that packages predict are from those that they take, on networks that
no price was fitted to.

Networks are small, with seeded random weights: a U-Net, EfficientNet-lite's inverted residuals, a
ConvNeXt, a vision transformer, a GRU, and some that are drawn by seed. Each is compiled as a user
would, its package runs once, and the two figures of its manifest are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.report import Column, Table, percent, seconds, whole

if TYPE_CHECKING:
    from onnx import ModelProto

TITLE = "Predicted against simulated cycles of networks that nothing was fitted to"

MACHINES = Path(__file__).parents[2] / "examples" / "machines"

TARGETS = (
    *("cambricon", "cambricon-s", "cambricon-m", "cambricon-x", "shidiannao", "zu2"),
    *("systolic-int8", "small-npu", "five-buffers"),
)
"""Configurations; the last three are machine files."""

OPTIONS = ("targets",)


def unet() -> ModelProto:
    """Three levels down and up again, on an image of 32 x 32."""
    from benchmarks import exports

    return exports.unet(32, (12, 24, 48))


STAGES = ((24, 2, 2, 3), (40, 2, 2, 5), (80, 1, 1, 3))
"""Channels, layers, stride of the first, and window."""


def efficientnet_lite(stages: Sequence[tuple[int, int, int, int]] = STAGES) -> ModelProto:
    """Inverted residuals with windows of 3 and 5, ReLU6 and no gates, on an image of 48 x 48."""
    from benchmarks.exports import Network

    net = Network("efficientnet_lite", [1, 3, 48, 48], gain=2.0)
    limits = net.constant(0.0), net.constant(6.0)

    def relu6(x: str) -> str:
        return net.node("Clip", [x, *limits])

    x, channels = relu6(net.conv("x", 3, 16, 3, 2)), 16
    for outputs, layers, first, window in stages:
        for stride in (first, *[1] * (layers - 1)):
            inner = 6 * channels
            y = relu6(net.conv(x, channels, inner, 1))
            y = relu6(net.conv(y, inner, inner, window, stride, inner))
            y = net.conv(y, inner, outputs, 1)
            x = net.node("Add", [y, x]) if stride == 1 and channels == outputs else y
            channels = outputs
    x = net.node("GlobalAveragePool", [relu6(net.conv(x, channels, 320, 1))])
    return net.finish(net.linear(net.node("Flatten", [x]), 320, 50))


def convnext() -> ModelProto:
    """Two stages of two blocks: depthwise windows of 7, LayerNorm and GELU, on 32 x 32."""
    from benchmarks.exports import Network

    net = Network("convnext", [1, 3, 32, 32])

    def norm(x: str, channels: int) -> str:
        parts = [net.weight(channels), net.weight(channels, fan=100)]
        return net.node("LayerNormalization", [x, *parts], axis=-1, epsilon=1e-6)

    x, before = "x", 3
    for channels, step in ((32, 4), (64, 2)):
        x = net.conv(x, before, channels, step, step)
        for _ in range(2):
            y = net.conv(x, channels, channels, 7, 1, channels)
            y = norm(net.node("Transpose", [y], perm=[0, 2, 3, 1]), channels)
            y = net.linear(y, channels, 4 * channels)
            wide = net.node("Erf", [net.node("Div", [y, net.constant(2**0.5)])])
            y = net.node("Mul", [y, net.node("Add", [wide, net.constant(1.0)])])
            y = net.linear(net.node("Mul", [y, net.constant(0.5)]), 4 * channels, channels)
            x = net.node("Add", [x, net.node("Transpose", [y], perm=[0, 3, 1, 2])])
        before = channels
    x = net.node("Flatten", [net.node("GlobalAveragePool", [x])])
    return net.finish(net.linear(x, before, 50))


def vit(encoders: int = 2) -> ModelProto:
    """Encoders of four heads on 36 patches of 8 x 8 pixels."""
    from benchmarks.exports import Network

    width, patches, heads = 96, 36, 4
    net = Network("vit", [1, 3, 48, 48])

    def norm(x: str) -> str:
        parts = [net.weight(width), net.weight(width, fan=100)]
        return net.node("LayerNormalization", [x, *parts], axis=-1, epsilon=1e-6)

    def split(x: str, order: list[int]) -> str:
        shape = net.constant([1, patches, heads, width // heads], np.int64)
        return net.node("Transpose", [net.node("Reshape", [x, shape])], perm=order)

    x = net.conv("x", 3, width, 8, 8)
    x = net.node("Reshape", [x, net.constant([1, width, patches], np.int64)])
    x = net.node("Transpose", [x], perm=[0, 2, 1])
    for _ in range(encoders):
        y = norm(x)
        q, k, v = (net.linear(y, width, width) for _ in range(3))
        y = net.node("MatMul", [split(q, [0, 2, 1, 3]), split(k, [0, 2, 3, 1])])
        y = net.node("Softmax", [net.node("Mul", [y, net.constant((width / heads) ** -0.5)])])
        y = net.node("MatMul", [y, split(v, [0, 2, 1, 3])])
        y = net.node("Transpose", [y], perm=[0, 2, 1, 3])
        y = net.node("Reshape", [y, net.constant([1, patches, width], np.int64)])
        x = net.node("Add", [x, net.linear(y, width, width)])
        y = net.node("Relu", [net.linear(norm(x), width, 4 * width)])
        x = net.node("Add", [x, net.linear(y, 4 * width, width)])
    return net.finish(net.linear(net.node("ReduceMean", [x], axes=[1], keepdims=0), width, 50))


def gru(steps: int = 8) -> ModelProto:
    """A GRU of 96 units, and a layer on its last state."""
    from benchmarks.exports import Network

    inputs, units = 64, 96
    net = Network("gru", [steps, 1, inputs])
    weights = [net.weight(1, 3 * units, n, fan=n) for n in (inputs, units)]
    operands = ["x", *weights, net.weight(1, 6 * units, fan=100)]
    state = f"v{len(net.nodes)}"
    net.node("GRU", operands, hidden_size=units, linear_before_reset=1)
    net.nodes[-1].output[:] = ["", state]
    x = net.node("Reshape", [state, net.constant([1, units], np.int64)])
    return net.finish(net.linear(x, units, 40))


def drawn(seed: int, layers: int = 5) -> ModelProto:
    """Convolutions, depthwise ones, pools, sums and a layer, of sizes drawn by seed."""
    from benchmarks.exports import Network

    pick = np.random.default_rng(seed)
    size, channels = int(pick.integers(17, 40)), int(pick.integers(1, 5))
    net = Network(f"drawn{seed}", [1, channels, size, size], gain=2.0)
    x = "x"
    for number in range(layers):
        co, k = int(pick.integers(5, 90)), int(pick.choice((1, 3, 5)))
        x, channels = net.node("Relu", [net.conv(x, channels, co, k)]), co
        if pick.random() < 0.5:
            x = net.conv(x, co, co, 3, 1, co)
        if pick.random() < 0.5:
            x = net.node("Add", [x, net.node("Relu", [net.conv(x, co, co, 3)])])
        if number % 2:
            kind = str(pick.choice(("MaxPool", "AveragePool")))
            x = net.node(kind, [x], kernel_shape=[2, 2], strides=[2, 2])
    x = net.node("Flatten", [net.node("GlobalAveragePool", [x])])
    return net.finish(net.linear(x, channels, int(pick.integers(5, 90))))


BUILDERS: Mapping[str, Callable[[], ModelProto]] = {
    **{make.__name__: make for make in (unet, efficientnet_lite, convnext, vit, gru)},
    **{f"drawn{seed}": lambda seed=seed: drawn(seed) for seed in (11, 12, 13)},
}

NETWORKS = tuple(BUILDERS)


def run(network: str, target: str) -> dict[str, Any]:
    """Compile a network, run its package, and compare the two figures."""
    import onnx

    from tilewright.compiler.api import compile

    begin = time.perf_counter()
    file = MACHINES / f"{target}.toml"
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{network}.onnx"
        onnx.save(BUILDERS[network](), path)
        name = str(file) if file.exists() else target
        package = compile(path, name, directory=f"{folder}/package")
        pick = np.random.default_rng(20240)
        inputs = {
            info.name: pick.standard_normal([int(size) for size in info.shape]).astype(info.dtype)
            for info in package.inputs
        }
        package.run(inputs)
        summary = package.summary()
    kernels = [
        kernel["predicted_cycles"] / kernel["cycles"] - 1
        for kernel in summary["kernels"]
        if kernel["predicted_cycles"] and kernel.get("cycles")
    ]
    return {
        "machine": target,
        "network": network,
        "kernels": len(kernels),
        "predicted": summary["predicted_cycles"],
        "cycles": summary["cycles"],
        "error": summary["predicted_cycles"] / summary["cycles"] - 1,
        "mean": float(np.mean(np.abs(kernels))),
        "worst": max(kernels, key=abs),
        "seconds": time.perf_counter() - begin,
    }


COLUMNS = (
    Column("machine", "machine"),
    Column("network", "network"),
    Column("kernels", "kernels", whole),
    Column("predicted", "predicted", whole),
    Column("cycles", "simulated", whole),
    Column("error", "error", percent),
    Column("mean", "of its kernels, mean", percent),
    Column("worst", "worst", percent),
    Column("seconds", "seconds", seconds),
)

MACHINE_COLUMNS = (
    Column("machine", "machine"),
    Column("networks", "networks", whole),
    Column("mean", "error, mean", percent),
    Column("worst", "worst", percent),
)


def tables(networks: Sequence[str], targets: Sequence[str] = TARGETS) -> list[Table]:
    """Compile and run every network on every machine."""
    return tables_of([run(network, target) for target in targets for network in networks])


def tables_of(rows: Sequence[Mapping[str, Any]]) -> list[Table]:
    """The page of what was measured."""
    machines: list[dict[str, Any]] = []
    for target in (*dict.fromkeys(row["machine"] for row in rows), "all"):
        part = [row for row in rows if target in (row["machine"], "all")]
        errors = [abs(row["error"]) for row in part]
        machines.append(
            {
                "machine": target,
                "networks": len(part),
                "mean": float(np.mean(errors)),
                "worst": max(errors),
            }
        )
    remarks = (
        "The error is that of a whole network, a share of the simulated cycles. Where engines run "
        "on over the ends of kernels, the prediction of a row of kernels is the timing core's, for "
        "the emitted commands, so an error of 0 says that nothing is left out, not that the cost "
        "model is exact; what is left are kernels beside the host's. ACC-C's planner simulates its "
        "candidates, too. Errors of kernels are those of their shares.",
        "Networks that a machine has no row of were not measured.",
    )
    return [
        Table("Machines", MACHINE_COLUMNS, machines, remarks),
        Table("Networks", COLUMNS, rows, ()),
    ]

"""Table 4.6's ten layers as HLAL programs, forward and backward, and as ONNX models.

Segments are those that take the fewest cycles of the ones that were tried by hand. The LSTM layer
(3 inputs, 400 hidden, 121 outputs) runs over 8 steps, for which the table has no number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


@dataclass(frozen=True)
class Layer:
    """One row of the table."""

    name: str
    forward: str
    backward: str
    model: Callable[[], onnx.ModelProto] | None
    """Makes the layer's model; None where the compiler has another form of it."""


@dataclass(frozen=True)
class Convolution:
    """Extent, channels in and out, kernel, padding; segments for forward and the two gradients."""

    extent: int
    inputs: int
    outputs: int
    kernel: int
    pad: int
    forward: tuple[int, int]
    data: tuple[int, int]
    weight: tuple[int, int]


CONVOLUTIONS = {
    "conv1": Convolution(7, 512, 2048, 1, 0, (512, 384), (128, 256), (512, 128)),
    "conv2": Convolution(14, 512, 512, 3, 1, (512, 32), (64, 128), (256, 64)),
    "conv3": Convolution(13, 256, 384, 3, 1, (256, 64), (64, 128), (256, 64)),
}
POOLS = {"pool1": (28, 512, 256), "pool2": (56, 256, 128)}
"""Extent, channels, and segment of channels; 2x2 at steps of 2."""
DENSE = {
    "fc1": (9216, 4096, 1024, 128),
    "fc2": (4096, 4096, 1024, 128),
    "fc3": (4096, 1024, 1024, 128),
}
"""Inputs, outputs and their segments."""

NAMES = (*CONVOLUTIONS, *POOLS, *DENSE, "lrn", "lstm")


def layer(name: str) -> Layer:
    """A layer by its name in the table."""
    if name in CONVOLUTIONS:
        return _convolution(name, CONVOLUTIONS[name])
    if name in POOLS:
        return _pool(name, *POOLS[name])
    if name in DENSE:
        return _dense(name, *DENSE[name])
    return _lrn() if name == "lrn" else _lstm()


def _model(
    node: onnx.NodeProto, shape: list[int], weights: Mapping[str, tuple[int, ...]]
) -> Callable[[], onnx.ModelProto]:
    return lambda: _made(node, shape, weights)


def _made(
    node: onnx.NodeProto, shape: list[int], weights: Mapping[str, tuple[int, ...]]
) -> onnx.ModelProto:
    random = np.random.default_rng(0)
    initial = [
        numpy_helper.from_array(
            (random.standard_normal(size) / np.sqrt(np.prod(size[1:]) or 1)).astype(np.float32), key
        )
        for key, size in weights.items()
    ]
    graph = helper.make_graph(
        [node],
        node.op_type,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        initial,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _convolution(name: str, of: Convolution) -> Layer:
    e, k = of.extent, of.kernel

    def data(tensor: str, channels: int, segment: int) -> str:
        return f"@tensor {tensor}, 1, {e}, {e}, {channels}, 1, 1, {e}, {segment}\n"

    def weight(tensor: str, cs: int, os: int) -> str:
        return f"@filter {tensor}, {of.outputs}, {k}, {k}, {of.inputs}, {os}, 1, {k}, {cs}\n"

    cs, os = of.forward
    bias = f"{of.outputs}, {of.outputs}\n"
    forward = (
        f".code\n@block_fw_conv y, x, w, b, #1, #{of.pad}\n.static_ro\n{data('x', of.inputs, cs)}"
        f"{weight('w', cs, os)}@tensor b, {bias}.static_rw\n{data('y', of.outputs, os)}"
    )
    (dc, do), (wc, wo) = of.data, of.weight
    backward = (
        f".code\n@block_bw_conv_data dx, d, w, #1, #{of.pad}\n"
        f"@block_bw_conv_weight dw, db, d2, x, #1, #{of.pad}\n.static_ro\n"
        f"{data('d', of.outputs, do)}{weight('w', dc, do)}{data('d2', of.outputs, wo)}"
        f"{data('x', of.inputs, wc)}.static_rw\n{data('dx', of.inputs, dc)}"
        f"{weight('dw', wc, wo)}@tensor db, {bias}"
    )
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], name, pads=[of.pad] * 4)
    sizes = {"w": (of.outputs, of.inputs, k, k), "b": (of.outputs,)}
    return Layer(name, forward, backward, _model(node, [1, of.inputs, e, e], sizes))


def _pool(name: str, extent: int, channels: int, segment: int) -> Layer:
    def data(tensor: str, size: int) -> str:
        return f"@tensor {tensor}, 1, {size}, {size}, {channels}, 1, 1, {size}, {segment}\n"

    half = extent // 2
    forward = (
        f".code\n@block_fw_pool_max y, x, #2, #2, #0\n.static_ro\n{data('x', extent)}"
        f".static_rw\n{data('y', half)}"
    )
    backward = (
        f".code\n@block_bw_pool_max dx, d, x, y, #2, #2, #0\n.static_ro\n{data('d', half)}"
        f"{data('x', extent)}{data('y', half)}.static_rw\n{data('dx', extent)}"
    )
    node = helper.make_node("MaxPool", ["x"], ["y"], name, kernel_shape=[2, 2], strides=[2, 2])
    return Layer(name, forward, backward, _model(node, [1, channels, extent, extent], {}))


def _dense(name: str, inputs: int, outputs: int, cs: int, os: int) -> Layer:
    x, y = f"1, {inputs}, 1, {inputs}\n", f"1, {outputs}, 1, {outputs}\n"
    w, g = (f"{outputs}, {inputs}, {rows}, {cs}\n" for rows in (os, 64))
    forward = (
        f".code\n@block_fw_fc y, x, w, b\n.static_ro\n@tensor x, {x}@filter w, {w}@tensor b, {y}"
        f".static_rw\n@tensor y, {y}"
    )
    backward = (
        f".code\n@block_bw_fc_data dx, d, w\n@block_bw_fc_weight dw, db, d, x\n.static_ro\n"
        f"@tensor d, {y}@tensor x, {x}@filter w, {w}.static_rw\n@tensor dx, {x}@filter dw, {g}"
        f"@tensor db, {y}"
    )
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], name, transB=1)
    sizes = {"w": (outputs, inputs), "b": (outputs,)}
    return Layer(name, forward, backward, _model(node, [1, inputs], sizes))


def _lrn() -> Layer:
    data = "1, 27, 27, 256, 1, 1, 27, 256"
    forward = (
        f".code\n@block_fw_lrn y, x, #5, #0.0001, #0.75, #1.0\n.static_ro\n@tensor x, {data}\n"
        f".static_rw\n@tensor y, {data}\n"
    )
    backward = (
        f".code\n@block_bw_lrn dx, d, x, y, #5, #0.0001, #0.75, #1.0\n.static_ro\n"
        f"@tensor d, {data}\n@tensor x, {data}\n@tensor y, {data}\n.static_rw\n@tensor dx, {data}\n"
    )
    node = helper.make_node("LRN", ["x"], ["y"], "lrn", size=5)
    return Layer("lrn", forward, backward, _model(node, [1, 256, 27, 27], {}))


def _lstm() -> Layer:
    steps, ins, hidden, outs = 8, 3, 400, 121
    gates = 4 * hidden
    shared = (
        f"@tensor x, {steps}, {ins}, 1, {ins}\n@filter w, {gates}, {ins}, 200, {ins}\n"
        f"@filter u, {gates}, {hidden}, 200, {hidden}\n@tensor b, {gates}, {gates}\n"
        f"@filter v, {outs}, {hidden}, {outs}, {hidden}\n@tensor a, {outs}, {outs}\n"
    )
    state = (
        f"@tensor h, {steps + 1}, {hidden}, 1, {hidden}\n"
        f"@tensor c, {steps + 1}, {hidden}, 1, {hidden}\n"
        f"@tensor g, {steps}, {gates}, 1, {gates}, Q14\n"
    )
    rows = f"@tensor hidden, {steps}, {hidden}, 1, {hidden}\n"
    forward = (
        f".code\n@block_fw_lstm h, c, g, x, w, u, b\n@block_fw_fc y, hidden, v, a\n"
        f".static_ro\n{shared}{rows}.static_rw\n{state}@tensor y, {steps}, {outs}, 1, {outs}\n"
    )
    backward = (
        f".code\n@block_bw_fc_data dh, dy, v\n@block_bw_fc_weight dv, da, dy, hidden\n"
        f"@block_bw_lstm dg, dh, c, g, u\n@block_bw_lstm_weight dw, du, db, dg, x, h\n"
        f"@block_bw_fc_data dx, dg, w\n.static_ro\n{shared}{rows}"
        f"@tensor dy, {steps}, {outs}, 1, {outs}\n"
        f".static_rw\n{state}@tensor dh, {steps}, {hidden}, 1, {hidden}\n"
        f"@filter dv, {outs}, {hidden}, {outs}, {hidden}\n@tensor da, {outs}, {outs}\n"
        f"@tensor dg, {steps}, {gates}, 1, {gates}\n@filter dw, {gates}, {ins}, 200, {ins}\n"
        f"@filter du, {gates}, {hidden}, 200, {hidden}\n@tensor db, {gates}, {gates}\n"
        f"@tensor dx, {steps}, {ins}, 1, {ins}\n"
    )
    return Layer("lstm", forward, backward, None)

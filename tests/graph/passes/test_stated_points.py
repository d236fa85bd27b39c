"""Pairs that round to powers of two: on the core what ONNX Runtime gives, wherever they stand."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.ir.types import Array

SHAPE = (1, 8, 6, 6)


class Net:
    """A model with pairs of QuantizeLinear and DequantizeLinear of int8."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(5)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}

    def const(self, value: object, dtype: type = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=f"n_{name}", **attributes))
        return name

    def pair(self, x: str, point: int) -> str:
        scale, zero = self.const(2.0**-point), self.const(0, np.int8)
        integers = self.op("QuantizeLinear", x, scale, zero)
        return self.op("DequantizeLinear", integers, scale, zero)

    def conv(self, x: str, inputs: int = 8, kernel: int = 1, point: int = 9) -> str:
        values = self.random.integers(-128, 128, (8, inputs, kernel, kernel))
        scale, zero = self.const(2.0**-point), self.const(0, np.int8)
        weights = self.op("DequantizeLinear", self.const(values, np.int8), scale, zero)
        return self.op("Conv", x, weights, pads=[kernel // 2] * 4)

    def model(self, *results: str) -> onnx.ModelProto:
        outputs = [f"y{index}" for index in range(len(results))]
        ends = [
            helper.make_node("Identity", [result], [output])
            for result, output in zip(results, outputs, strict=True)
        ]
        values = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(
            [*self.nodes, *ends],
            "pairs",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            values,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def compared(
    model: onnx.ModelProto, folder: Path, target: str = "zu2", calibrated: bool = True
) -> tuple[tilewright.Executable, list[tuple[Array, Array]]]:
    """A compiled model, and its outputs beside ONNX Runtime's of the model as it is written."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    x = (np.random.default_rng(1).normal(size=SHAPE) * 6).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    executable = tilewright.compile(path, target, calibration=[{"x": x}] if calibrated else None)
    outputs = executable.run({"x": x})
    assert executable.check({"x": x}, outputs).passed
    wanted = session.run(None, {"x": x})
    return executable, [
        (outputs[output.name], want)
        for output, want in zip(session.get_outputs(), wanted, strict=True)
    ]


def nearly_equal(found: Array, want: Array, step: float, share: float = 0.98) -> None:
    """Equal but for halves, which the core rounds upwards and ONNX to even."""
    assert np.std(want) > 0
    assert np.abs(found - want).max() <= step
    assert (found == want).mean() >= share


FUNCTIONS = [
    *("Sin", "Sigmoid", "Tanh", "Relu", "Exp", "Abs", "Neg", "Erf", "HardSwish", "Softplus"),
    *("Elu", "LeakyRelu", "Floor", "HardSigmoid", "Identity"),
]


def several(names: Sequence[str]) -> list[object]:
    """The first three, and the others where slow tests run."""
    return [*names[:3], *(pytest.param(name, marks=pytest.mark.slow) for name in names[3:])]


@pytest.mark.few(2)
@pytest.mark.parametrize("function", several(FUNCTIONS))
def test_pairs_around_a_function_of_the_host_round_and_saturate(
    function: str, tmp_path: Path
) -> None:
    net = Net()
    model = net.model(net.pair(net.op(function, net.pair("x", 3)), 4))
    for calibrated in (True, False):
        _, ((found, want),) = compared(model, tmp_path, calibrated=calibrated)
        assert np.std(want) > 0 and np.array_equal(found, want)


@pytest.mark.few(2)
@pytest.mark.parametrize("function", several(FUNCTIONS))
def test_pairs_between_the_core_and_a_function_round_and_saturate(
    function: str, tmp_path: Path
) -> None:
    net = Net()
    y = net.op(function, net.pair(net.conv(net.pair("x", 3)), 4))
    _, ((found, want),) = compared(net.model(net.pair(y, 5)), tmp_path)
    # One step in front of the function, at most twice of it behind, but for Floor's jumps.
    nearly_equal(found, want, 1.0 if function == "Floor" else 2**-3)


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", several(["Mul", "Add", "Sub", "Max", "Min"]))
@pytest.mark.parametrize("other", ["constant", "tensor"])
def test_pairs_around_an_operation_of_two_operands(kind: str, other: str, tmp_path: Path) -> None:
    net = Net()
    left = net.pair(net.conv(net.pair("x", 3)), 4)
    right = net.const(0.3) if other == "constant" else net.pair("x", 3)
    _, ((found, want),) = compared(net.model(net.pair(net.op(kind, left, right), 3)), tmp_path)
    # Sums and products of two maps are the core's, which has two bits behind the coarser operand.
    nearly_equal(found, want, 2**-2, 0.7 if other == "tensor" else 0.98)


def test_what_saturates_stays_saturated(tmp_path: Path) -> None:
    """Between two convolutions the tensor is far beyond the pair's 127 steps."""
    net = Net()
    y = net.pair(net.conv(net.pair("x", 5), point=6), 5)
    executable, ((found, want),) = compared(net.model(net.pair(net.conv(y), 4)), tmp_path)
    nearly_equal(found, want, 2**-3)
    assert not on_host(executable)


def on_host(executable: tilewright.Executable) -> set[str]:
    """What the host's kernels compute, conversions to fixed point left out."""
    return {
        op.name.removeprefix("graph.")
        for kernel in network_of(executable.graph).block.ops
        if isinstance(kernel, KernelOp) and kernel.on_host
        for op in kernel.operations
    } - {"quantise", "dequantise"}


def alike(net: Net) -> str:
    """A pair of one point on both sides of an activation."""
    y = net.pair(net.conv(net.pair("x", 3)), 4)
    return net.pair(net.op("Clip", y, net.const(0), net.const(6)), 4)


def behind_a_view(net: Net) -> str:
    y = net.op("MaxPool", net.conv(net.pair("x", 3)), kernel_shape=[2, 2], strides=[2, 2])
    return net.pair(net.op("Transpose", y, perm=[0, 2, 3, 1]), 4)


def behind_padding(net: Net) -> str:
    pads = net.const([0, 0, 1, 1, 0, 0, 1, 1], np.int64)
    y = net.pair(net.op("Pad", net.pair(net.conv(net.pair("x", 3)), 3), pads), 3)
    return net.pair(net.conv(y, kernel=3, point=10), 4)


def joined(net: Net) -> str:
    left, right = (net.pair(net.conv(net.pair("x", 3)), 4) for _ in range(2))
    net.nodes.append(helper.make_node("Concat", [left, right], ["joined"], axis=1))
    return net.pair(net.conv(net.pair("joined", 4), 16), 4)


@pytest.mark.few(2)
@pytest.mark.parametrize("build", [alike, behind_a_view, behind_padding, joined])
def test_pairs_that_the_format_does_are_no_work(
    build: Callable[[Net], str], tmp_path: Path
) -> None:
    net = Net()
    executable, ((found, want),) = compared(net.model(build(net)), tmp_path)
    nearly_equal(found, want, 2**-3, 0.95)
    assert on_host(executable) <= {"convert_layout"}


def other_points(net: Net) -> str:
    """An activation between two points: rounding to the first one matters."""
    y = net.pair(net.conv(net.pair("x", 3)), 1)
    return net.pair(net.op("Clip", y, net.const(0), net.const(6)), 4)


def differently_joined(net: Net) -> str:
    left, right = (net.pair(net.conv(net.pair("x", 3)), point) for point in (5, 3))
    net.nodes.append(helper.make_node("Concat", [left, right], ["joined"], axis=1))
    return net.pair(net.conv(net.pair("joined", 3), 16), 4)


def twice(net: Net) -> str:
    return net.pair(net.pair(net.conv(net.pair("x", 3)), 2), 5)


def normalised(net: Net) -> str:
    """A sum by channel that would join the convolution's bias: of the core's own rounding."""
    y = net.pair(net.conv(net.pair("x", 3)), 2)
    return net.pair(net.op("Add", y, net.const(np.arange(8).reshape(8, 1, 1) / 4)), 4)


@pytest.mark.few(2)
@pytest.mark.parametrize("build", [other_points, differently_joined, twice, normalised])
def test_pairs_that_the_format_does_not_do_stay(
    build: Callable[[Net], str], tmp_path: Path
) -> None:
    net = Net()
    executable, ((found, want),) = compared(net.model(build(net)), tmp_path)
    nearly_equal(found, want, 2**-2)
    assert {"quantise_linear", "dequantise_linear"} <= on_host(executable)


def test_a_tensor_that_is_also_read_unrounded_is_both(tmp_path: Path) -> None:
    """It has the calibrated format then, with steps of its own range, and is rounded from there."""
    net = Net()
    y = net.conv(net.pair("x", 3), point=6)
    _, (rounded, plain) = compared(net.model(net.pair(y, 5), y), tmp_path)
    largest = float(np.abs(plain[1]).max())
    assert largest > 8  # far beyond the pair's 127 steps of 1/32
    for found, want in (rounded, plain):
        assert np.abs(found - want).max() <= largest / 64
    assert rounded[0].min() == -4 and rounded[0].max() == 4 - 2**-5


def test_two_scales_of_one_tensor_are_kept_apart(tmp_path: Path) -> None:
    net = Net()
    y = net.conv(net.pair("x", 3))
    _, pairs = compared(net.model(net.pair(y, 5), net.pair(y, 1)), tmp_path)
    for (found, want), step in zip(pairs, (2**-5, 2**-1), strict=True):
        assert np.abs(found - want).max() <= max(step, np.abs(pairs[1][1]).max() / 64)
        assert np.array_equal(found, np.clip(np.rint(found / step), -128, 127) * step)


@pytest.mark.few(1)
@pytest.mark.parametrize("target", ["cambricon", "shidiannao", "examples/machines/small-npu.toml"])
def test_pairs_of_other_widths_round_on_the_host(target: str, tmp_path: Path) -> None:
    net = Net()
    y = net.op("Sigmoid", net.pair(net.conv(net.pair("x", 3)), 4))
    _, ((found, want),) = compared(net.model(net.pair(y, 7)), tmp_path, target)
    nearly_equal(found, want, 2**-5, 0.9)


@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose", "QLinearConv"])
def test_integers_from_the_first_to_the_last(kind: str, tmp_path: Path) -> None:
    """A model may take integers and give them: they state points as pairs do, also of what is
    padded before the core reads it, and random samples reach as far."""
    net = Net()
    scales = [net.const(2.0**-point) for point in (4, 9, 1)]
    zero = net.const(0, np.int8)
    weights = net.const(net.random.integers(-128, 128, (8, 8, 3, 3)), np.int8)
    held = [part for scale in scales for part in (scale, zero)]
    if kind == "QLinearConv":
        y = net.op(kind, "x", *held[:2], weights, *held[2:], strides=[2, 2])
    else:
        image = net.op("DequantizeLinear", "x", *held[:2])
        kernel = net.op("DequantizeLinear", weights, *held[2:4])
        y = net.op("QuantizeLinear", net.op(kind, image, kernel, strides=[2, 2]), *held[4:])
    graph = net.model(y)
    for value in (*graph.graph.input, *graph.graph.output):
        value.type.tensor_type.elem_type = TensorProto.INT8
    path = tmp_path / "model.onnx"
    onnx.save(graph, path)
    x = net.random.integers(-128, 128, SHAPE).astype(np.int8)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    want = np.asarray(session.run(None, {"x": x})[0], np.int8)
    executable = tilewright.compile(path, "zu2")
    outputs = executable.run({"x": x})
    assert executable.check({"x": x}, outputs).passed
    nearly_equal(outputs["y0"].astype(int), want.astype(int), 1, 0.95)

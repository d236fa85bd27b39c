"""Networks that come with their numbers: the pipeline keeps them, and computes what they mean."""

import numpy as np
import pytest

import tilewright
from tilewright.errors import TilewrightError
from tilewright.frontends import Imported
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.graph.interpreter import interpret
from tilewright.integrations.dlplib import Shape, fixed16, fixed32
from tilewright.integrations.dlplib.network import OperatorNetwork


def network() -> Imported:
    """A convolution with computed weights and bias, a residual, an activation, 16 bits."""
    shapes = {
        "x": Shape((1, 6, 9, 9), "NHWC", fixed16(12)),
        "w": Shape((16, 6, 3, 3), "NHWC", fixed16(13)),
        "b": Shape((1, 16, 1, 1), "NCHW", fixed32(25)),
        "r": Shape((1, 16, 7, 7), "NHWC", fixed16(10)),
    }
    net = OperatorNetwork("layer", shapes, fixed=True)
    bias = net.reshape(net.values["b"], (16,))
    made = net.emit("conv", net.values["x"], net.values["w"], bias)
    made = net.emit("relu", net.emit("add", made, net.values["r"]))
    return net.finish({"y": (made, Shape((1, 16, 7, 7), "NHWC", fixed16(11)))})


def test_numbers_are_kept_and_one_kernel_computes_the_layer() -> None:
    package = tilewright.compile(network(), "cambricon-x")
    assert [info.dtype for info in package.inputs] == ["int16", "int16", "int32", "int16"]
    kernels = [op for op in network_of(package.graph).block.ops if isinstance(op, KernelOp)]
    computing = [op for op in kernels if not op.on_host]
    assert [[inner.name for inner in op.operations] for op in computing] == [
        ["graph.conv", "graph.add", "graph.relu", "graph.requantise"]
    ]
    assert not any("binary points" in note for note in package.manifest.notes)
    random = np.random.default_rng(0)
    for scale in (500, 32767):  # Sums of the second are far beyond 32 bits, and wrap.
        inputs = {
            info.name: random.integers(-scale, scale, info.shape).astype(info.dtype)
            for info in package.inputs
        }
        outputs = package.run(inputs, check_races=True)
        found = package.check(inputs, outputs)
        assert found.exact and found.equal
        assert len(np.unique(outputs["y"])) > 100
    assert package.runner.timed().cycles == package.profile.cycles


def test_constants_stay_what_they_are() -> None:
    """A product with constants of fixed point: no rule takes them for real numbers."""
    net = OperatorNetwork("row", {"x": Shape((2, 12, 1, 1), "NHWC", fixed16(12))}, fixed=True)
    random = np.random.default_rng(1)
    x = net.reshape(net.values["x"], (2, 12))
    made = net.emit("matmul", x, net.constant(random.normal(0, 1, (12, 5)), fixed16(11)))
    made = net.emit(
        "mul", net.to(made, fixed16(9)), net.constant(np.full((1, 5), 0.75), fixed16(13))
    )
    made = net.emit("add", net.to(made, fixed16(9)), net.constant(np.ones((1, 5)), fixed16(9)))
    model = net.finish(
        {"y": (net.reshape(made, (2, 5, 1, 1)), Shape((2, 5, 1, 1), "NHWC", fixed16(9)))}
    )
    package = tilewright.compile(model, "cambricon-x")
    inputs = {"x": random.integers(-4000, 4000, (2, 1, 1, 12)).astype(np.int16)}
    expected = interpret(model.module, model.weights, inputs)
    outputs = package.run(inputs)
    assert np.array_equal(outputs["y"], expected["y"]) and package.check(inputs, outputs).equal


def test_times_of_native_packages_need_a_run() -> None:
    package = tilewright.compile("examples/lenet5/lenet5.onnx")
    with pytest.raises(TilewrightError, match="profile-missing"):
        package.runner.timed()

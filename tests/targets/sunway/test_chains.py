"""Kernels that CPEs compute tile by tile as one: several computes in a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.slow import but_fast
from tests.targets.sunway.one_layer import Package
from tests.targets.sunway.sunway_networks import Network

import tilewright
from tilewright.frontends.onnx import import_onnx
from tilewright.targets.sunway.runner import SunwayRunner
from tilewright.tile.dialect import ComputeOp


def conv_pool(folder: Path) -> Path:
    """A pool of a convolution."""
    net = Network(1, 16, 32, 32)
    x = net.op("Relu", net.conv("x", 16, 32, 3))
    pooled = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    return net.save(folder / "conv_pool.onnx", pooled)


def conv_conv(folder: Path) -> Path:
    """A convolution of a convolution: tiles read rows around them, and padding."""
    net = Network(1, 32, 32, 32)
    x = net.op("Relu", net.conv("x", 32, 32, 1))
    return net.save(folder / "conv_conv.onnx", net.op("Relu", net.conv(x, 32, 32, 3)))


def depthwise_conv(folder: Path) -> Path:
    """A pointwise convolution of a depthwise one."""
    net = Network(64, 64, 6, 6)
    x = net.op("Relu", net.conv("x", 64, 64, 3, 1, 64))
    return net.save(folder / "depthwise_conv.onnx", net.op("Relu", net.conv(x, 64, 32, 1)))


def attention(folder: Path) -> Path:
    """Scaled products with keys, their softmax, and its products with values."""
    net = Network(64, 48, 32)
    scores = net.op("Mul", net.op("MatMul", "x", net.weight(32, 48)), net.constant(np.float32(0.2)))
    weights = net.op("Softmax", scores, axis=-1)
    return net.save(folder / "attention.onnx", net.op("MatMul", weights, net.weight(48, 32)))


CHAINS: Mapping[str, Callable[[Path], Path]] = {
    own.__name__: own for own in (conv_pool, conv_conv, depthwise_conv, attention)
}


@pytest.mark.slow_cases(1)
@pytest.mark.parametrize("name", but_fast(CHAINS, []))
def test_a_chain_is_one_kernel_that_moves_less(name: str, tmp_path: Path) -> None:
    model = CHAINS[name](tmp_path)
    bytes_moved: list[int] = []
    for number, values in enumerate(({}, {"fusion": "off"})):
        (folder := tmp_path / str(number)).mkdir()
        package = Package.of(model, folder, values)
        executable, runner = package.executable, package.executable.runner
        assert isinstance(runner, SunwayRunner)
        (info,) = executable.inputs
        x = np.random.default_rng(5).normal(size=[int(n) for n in info.shape]).astype(np.float32)
        results = executable.run({info.name: x}, profile=True)
        assert executable.check({info.name: x}, results).equal
        bytes_moved.append(sum(kernel.dram_bytes or 0 for kernel in executable.profile.kernels))
        runner.order = "7"
        again = executable.run({info.name: x})
        assert all(np.array_equal(results[key], again[key]) for key in results)
        computes = [
            sum(isinstance(op, ComputeOp) for op in program.walk())
            for program in package.programs.values()
        ]
        kernels = 3 if name == "attention" else 2
        assert computes == ([1] * kernels if values else [kernels])
        if not values:
            (symbol,) = package.programs
            text = (package.program / f"layers/{symbol}_slave.c").read_text()
            (run := folder / "run").mkdir()
            ran = package.run(run)
            assert (ran.status, ran.said) == (0, "")
            assert package.differences(symbol, ran, text) == []
    chained, apart = bytes_moved
    assert chained < apart


@pytest.mark.slow
def test_keys_and_values_of_each_head_are_its_parts() -> None:
    """Attention of 64 heads, whose keys and values are computed: a head is a CPE's."""
    names = {"q": (64, 24, 16), "k": (64, 16, 24), "v": (64, 24, 16)}
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["q", "k"], ["scores"]),
            helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
            helper.make_node("MatMul", ["weights", "v"], ["y"]),
        ],
        "attention",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in names.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (64, 24, 16))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    executable = tilewright.compile(import_onnx(model), "sunway")
    random = np.random.default_rng(3)
    x = {name: random.normal(size=shape).astype(np.float32) for name, shape in names.items()}
    results = executable.run(x, profile=True)
    assert executable.check(x, results).equal
    scores = np.exp(x["q"].astype(np.float64) @ x["k"])
    want = scores / scores.sum(-1, keepdims=True) @ x["v"]
    np.testing.assert_allclose(results["y"], want, rtol=1e-4, atol=1e-5)
    moved = [k.dram_bytes for k in executable.profile.kernels if k.dram_bytes is not None]
    # Apart, scores and weights would be written and read.
    operands = sum(int(np.prod(shape)) for shape in (*names.values(), (64, 24, 16)))
    assert len(moved) == 1 and moved[0] < 4 * (operands + 4 * 64 * 24 * 24)

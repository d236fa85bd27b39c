"""Kernels that CPEs compute tile by tile as one: several computes in a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.sunway.one_layer import Package
from tests.targets.sunway.sunway_networks import Network

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


CHAINS: Mapping[str, Callable[[Path], Path]] = {
    own.__name__: own for own in (conv_pool, conv_conv, depthwise_conv)
}


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
        assert computes == ([1, 1] if values else [2])
        if not values:
            (symbol,) = package.programs
            text = (package.program / f"layers/{symbol}_slave.c").read_text()
            (run := folder / "run").mkdir()
            ran = package.run(run)
            assert (ran.status, ran.said) == (0, "")
            assert package.differences(symbol, ran, text) == []
    chained, apart = bytes_moved
    assert chained < apart

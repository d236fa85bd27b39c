"""Predictions of kernels that overlap their neighbours, against the simulated network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from benchmarks.exports import Network
from benchmarks.tables.unseen import MACHINES

from tilewright.compiler.api import compile


def layers(folder: Path) -> Path:
    """Short layers one after the other: the ends of kernels are much of their time."""
    import onnx

    net = Network("layers", [1, 40])
    x = "x"
    for _ in range(4):
        x = net.node("Tanh", [net.linear(x, 40, 40)])
    path = folder / "layers.onnx"
    onnx.save(net.finish(x), path)
    return path


def convolutions(folder: Path) -> Path:
    """A few convolutions and a sum, then one layer."""
    import onnx

    net = Network("convolutions", [1, 3, 12, 12])
    x = net.node("Relu", [net.conv("x", 3, 10, 3)])
    x = net.node("Add", [x, net.node("Relu", [net.conv(x, 10, 10, 3)])])
    x = net.node("Flatten", [net.node("GlobalAveragePool", [x])])
    path = folder / "convolutions.onnx"
    onnx.save(net.finish(net.linear(x, 10, 7)), path)
    return path


@pytest.mark.parametrize("make", [layers, pytest.param(convolutions, marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", ["cambricon-x", str(MACHINES / "five-buffers.toml")])
def test_the_sum_of_predictions_is_what_the_network_takes(
    make: Callable[[Path], Path], target: str, tmp_path: Path
) -> None:
    package = compile(make(tmp_path), target, directory=tmp_path / "package")
    random = np.random.default_rng(3)
    package.run({x.name: random.standard_normal(x.shape).astype(x.dtype) for x in package.inputs})  # type: ignore[arg-type]
    summary = package.summary()
    predicted = sum(kernel["predicted_cycles"] or 0 for kernel in summary["kernels"])
    assert predicted == pytest.approx(summary["predicted_cycles"])
    assert predicted == pytest.approx(summary["cycles"], rel=0.005)

"""Whole networks from ONNX models, against ONNX Runtime."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from tests.targets.cpu.random_networks import Array, random_network

import tilewright
from benchmarks import models
from tilewright.runtime.executable import Executable
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.processors import this_processor
from tilewright.targets.cpu.runner import CpuRunner

TOLERANCE = 2e-5
"""Of the largest element of an output."""

IN_PIECES = 2e-4
"""The same where kernels are in pieces of bfloat16: numbers are rounded to 17 bits there, and
networks add that up (the greatest measured is 1.7e-4, of GoogLeNet)."""


def check(model: onnx.ModelProto, name: str, image: Array, folder: Path) -> None:
    """As compiled by default and, where that has kernels in pieces, without these as well."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    expected = [np.asarray(found) for found in session.run(None, {name: image})]
    package = tilewright.compile(path, target="cpu", directory=folder / "package")
    pieces = any("_pieces" in kernel.schedule for kernel in package.manifest.kernels)
    compare(package, name, image, expected, IN_PIECES if pieces else TOLERANCE)
    if pieces:
        vectors = machine(replace(this_processor(), block_cycles=0.0))
        package = tilewright.compile(path, machine=vectors, directory=folder / "vectors")
        compare(package, name, image, expected, TOLERANCE)


def compare(
    package: Executable, name: str, image: Array, expected: list[Array], tolerance: float
) -> None:
    """Two runs against ONNX Runtime's outputs."""
    runner = package.runner
    assert isinstance(runner, CpuRunner)
    runner.workspace[:] = 255  # NaN: what nobody wrote must not be read
    for _ in range(2):
        outputs = runner.run({name: image}).outputs
        for info, array in zip(runner.outputs, expected, strict=True):
            found = outputs[info.name]
            assert found.shape == array.shape
            scale = float(np.abs(array).max()) + 1e-9
            np.testing.assert_allclose(found / scale, array / scale, atol=tolerance)


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(s, marks=pytest.mark.slow) for s in range(3, 6))]
)
def test_random_networks(seed: int, tmp_path: Path) -> None:
    model, image = random_network(seed)
    check(model, "x", image, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet", "mobilenet_v2", "resnet50"])
def test_known_networks(name: str, tmp_path: Path) -> None:
    model = models.build(name)[1]
    check(model, model.graph.input[0].name, models.images(model), tmp_path)

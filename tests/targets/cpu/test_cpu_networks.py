"""Whole networks from ONNX models, against ONNX Runtime."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from tests.targets.cpu.random_networks import Array, random_network

import tilewright
from benchmarks import models
from tilewright.targets.cpu.runner import CpuRunner

TOLERANCE = 2e-5
"""Of the largest element of an output."""


def check(model: onnx.ModelProto, name: str, image: Array, folder: Path) -> None:
    path = folder / "model.onnx"
    onnx.save(model, path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    expected = session.run(None, {name: image})
    runner = tilewright.compile(path, target="cpu", directory=folder / "package").runner
    assert isinstance(runner, CpuRunner)
    runner.workspace[:] = 255  # NaN: what nobody wrote must not be read
    for _ in range(2):
        outputs = runner.run({name: image}).outputs
        for info, array in zip(runner.outputs, expected, strict=True):
            found = outputs[info.name]
            assert found.shape == array.shape
            scale = float(np.abs(array).max()) + 1e-9
            np.testing.assert_allclose(found / scale, array / scale, atol=TOLERANCE)


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

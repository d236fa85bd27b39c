"""Calibration: the fit finds known coefficients; files are checked; the planner uses them."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.targets.cpu.built_networks import expected, image, model

import tilewright
from tilewright.errors import TilewrightError
from tilewright.targets.cpu import TARGET
from tilewright.targets.cpu.calibrate import Calibration, _fit, _identity, calibrate
from tilewright.targets.cpu.processors import this_processor


def made(**changes: object) -> Calibration:
    values: dict[str, object] = {
        "processor": _identity(this_processor()),
        "clock_hz": 3e9,
        "vectors_per_cycle": 1.0,
        "bandwidths": (64.0, 32.0, 16.0, 8.0),
        "tile": (1.0, 0.5, 1.0, 30.0),
        "tile_error": 0.02,
    }
    return Calibration.model_validate(values | changes)


def test_the_fit_finds_what_made_the_cycles() -> None:
    random = np.random.default_rng(1)
    steps, points = random.integers(64, 512, 60), random.integers(1, 28, 60)
    vectors = random.integers(1, 5, 60)
    rows = np.stack([steps, steps * vectors, steps * vectors * points, np.ones(60)], 1) * 1.0
    known = np.array([1.5, 0.25, 0.98, 40.0])
    np.testing.assert_allclose(_fit(rows, rows @ known), known, rtol=1e-6)
    # What would be negative is left out, and nothing else turns negative for it.
    found = _fit(rows, rows @ np.array([-1.5, 2.0, 1.0, 40.0]))
    assert (found >= 0).all()
    assert found[0] == 0


def test_a_calibration_describes_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "processor.json"
    path.write_text(made().model_dump_json())
    machine = TARGET.variant(str(path))
    assert machine.clock_hz == 3e9
    assert machine.memory("dram").bytes_per_cycle == 8.0
    assert machine.primitive("conv").fit == (1.0, 0.5, 1.0, 30.0)
    assert machine.name == "cpu"
    network = tmp_path / "pictures.onnx"
    onnx.save(model(), network)
    executable = tilewright.compile(network, cpu=str(path))
    outputs = executable.run({"image": image()})
    np.testing.assert_allclose(outputs["probabilities"], expected(), rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"processor": 1}', "\x00" * 100, made(processor="a Z80").model_dump_json()],
)
def test_what_is_no_calibration_of_this_processor_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "processor.json"
    path.write_text(text)
    with pytest.raises(TilewrightError) as caught:
        TARGET.variant(str(path))
    assert caught.value.problems[0].code == "cpu-calibration"
    with pytest.raises(TilewrightError):
        TARGET.variant(str(tmp_path / "missing.json"))


@pytest.mark.slow
def test_this_processor_is_calibrated() -> None:
    found = calibrate()
    assert 1e8 < found.clock_hz < 1e10
    assert found.bandwidths[0] > 0
    assert found.tile[2] > 0
    assert found.applied().clock_hz == found.clock_hz

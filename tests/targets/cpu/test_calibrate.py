"""Calibration: the fit finds known coefficients; files are checked; the planner uses them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.targets.cpu.built_networks import expected, image, model

import tilewright
from tilewright.errors import TilewrightError
from tilewright.targets.cpu import TARGET
from tilewright.targets.cpu import calibrate as calibrating
from tilewright.targets.cpu.calibrate import (
    Calibration,
    _fit,
    _identity,
    _straight,
    calibrate,
    depths_of,
)
from tilewright.targets.cpu.planning.capabilities import own_of
from tilewright.targets.cpu.planning.registers import Registers, TileCycles
from tilewright.targets.cpu.processors import this_processor


def made(**changes: object) -> Calibration:
    values: dict[str, object] = {
        "processor": _identity(this_processor()),
        "clock_hz": 3e9,
        "vectors_per_cycle": 1.0,
        "bandwidths": (64.0, 32.0, 16.0, 8.0),
        "tiles": TILES,
    }
    return Calibration.model_validate(values | changes)


TILES = ((1.0, 4.0, 5.0, 10.0), (1.0, 8.0, 6.0, 12.0), (2.0, 4.0, 5.0, 20.0))
"""Vectors, points, cycles of a step, cycles of a call."""


def test_the_fit_is_the_line_through_what_was_measured() -> None:
    assert _fit((32, 96), (32 * 12.5 + 40, 96 * 12.5 + 40), 1.0) == (12.5, 40.0)
    # A call takes no less than nothing, and no step less than at the processor's peak.
    assert _fit((32, 96), (320.0, 1056.0), 1.0) == (11.0, 0.0)
    assert _fit((32, 96), (900.0, 800.0), 2.0) == (2.0, 800.0 - 2.0 * 96)
    assert _fit((32, 96), (90.0, 80.0), 2.0) == (2.0, 0.0)


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("vectors", [1, 3, 8])
def test_weights_of_what_is_measured_stay_in_the_first_cache(vectors: int, lanes: int) -> None:
    short, long = depths_of(vectors, lanes)
    assert 16 << 10 <= 4 * lanes * vectors * long <= 24 << 10
    assert 2 * short < long


def test_no_disturbed_tile_is_below_the_peak() -> None:
    noise = [(1.0, float(points), 0.5 * points, 4.0) for points in (6, 8, 10, 12)]
    straight = _straight([(1.0, 14.0, 1e6, 4.0), *noise], 2.0)
    assert len(straight) == 5
    assert all(step >= points / 2.0 for _, points, step, _ in straight)


def test_tiles_between_those_measured_take_what_lies_between() -> None:
    tiles = tuple(TileCycles(int(v), int(p), step, call) for v, p, step, call in TILES)
    registers = Registers(16, 32, 1.0, measured=tiles)
    assert registers.step_cycles(4, 1) == 5.0
    assert registers.step_cycles(6, 1) == 5.5
    assert registers.step_cycles(2, 1) == 5.0
    assert registers.step_cycles(16, 1) == 12.0
    assert registers.call_cycles(7, 1) == 12.0
    # Of three vectors nothing was measured.
    assert registers.step_cycles(8, 3) == registers.nominal_step_cycles(8, 3)


def test_a_tile_of_one_vector_waits_for_its_operands() -> None:
    """As many products take longer than in a tile of two vectors, which load half as many."""
    wide, narrow = Registers(16, 32, 2.0), Registers(8, 16, 2.0)
    assert wide.nominal_step_cycles(28, 1) > 1.1 * wide.nominal_step_cycles(14, 2)
    assert wide.nominal_step_cycles(28, 1) == pytest.approx(28 / 1.75)
    assert narrow.nominal_step_cycles(12, 1) == 6, "their broadcasts are apart"
    assert Registers(16, 32, 1.0).nominal_step_cycles(28, 1) == 28


@pytest.mark.slow
def test_a_calibration_describes_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "processor.json"
    path.write_text(made().model_dump_json())
    machine = TARGET.variant(str(path))
    assert machine.clock_hz == 3e9
    assert machine.memory("dram").bytes_per_cycle == 8.0
    assert own_of(machine.primitive("conv")).fit == TILES
    assert own_of(machine.primitive("winograd_4")).fit == TILES
    assert not own_of(machine.primitive("pool")).fit
    path.write_text(made(parts=TILES[:1]).model_dump_json())
    assert own_of(TARGET.variant(str(path)).primitive("winograd_4")).fit == TILES[:1]
    assert own_of(TARGET.variant(str(path)).primitive("conv")).fit == TILES
    path.write_text(made().model_dump_json())
    assert machine.name == "cpu"
    network = tmp_path / "pictures.onnx"
    onnx.save(model(), network)
    executable = tilewright.compile(network, cpu=str(path))
    outputs = executable.run({"image": image()})
    np.testing.assert_allclose(outputs["probabilities"], expected(), rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("nominal", "measured", "applied"),
    [(48.0, 53.5, 53.5), (48.0, None, 48.0), (0.0, 53.5, 0.0), (0.0, None, 0.0)],
)
def test_what_tiles_take_is_measured_where_there_are_tiles(
    nominal: float, measured: float | None, applied: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older files have no such field."""
    here = replace(this_processor(), block_cycles=nominal)
    calibration = made(block_cycles=measured) if measured else made()
    monkeypatch.setattr(calibrating, "this_processor", lambda: here)
    assert calibration.applied().block_cycles == applied


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
@pytest.mark.usefixtures("calibrated_in_full")
def test_this_processor_is_calibrated() -> None:
    found = calibrate()
    assert 1e8 < found.clock_hz < 1e10
    assert found.bandwidths[0] > 0
    assert all(step > 0 and call >= 0 for _, _, step, call in found.tiles)
    assert {vectors for vectors, _, _, _ in found.tiles} >= {1, 2, 3}
    assert found.applied().clock_hz == found.clock_hz
    # Sixteen rows of a tile take a cycle each at least, and there are three products.
    assert (found.block_cycles is not None) == bool(this_processor().block_cycles)
    assert found.block_cycles is None or 40 < found.block_cycles < 200

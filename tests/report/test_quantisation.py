"""What each layer adds: worst first, alone and together, on floats and on fixed point."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tilewright.cli.main import app
from tilewright.compiler.pipeline import resolve
from tilewright.numerics.formats import numbers_of
from tilewright.report.quantisation import QuantisationReport, quantisation_report

LENET = Path(__file__).parents[2] / "examples" / "lenet5"
LAYERS = {"conv1", "conv2", "fc1", "fc2", "fc3"}


def calibration() -> dict[str, Any]:
    with np.load(LENET / "held_out.npz", allow_pickle=False) as file:
        return {"image": file["calibration"][:8].astype(np.float32) / 16}


def report(target: str, numbers: str, *keep: str, **options: Any) -> QuantisationReport:
    found, machine = resolve(target)
    return quantisation_report(
        LENET / "lenet5.onnx",
        found,
        machine,
        numbers_of(numbers, keep_float=keep),
        calibration=calibration(),
        **options,
    )


@pytest.mark.parametrize(
    ("target", "numbers"),
    [
        ("cpu", "int8"),
        pytest.param("cpu", "fixed16", marks=pytest.mark.slow),
        ("cambricon-x", "fixed16"),
    ],
)
def test_every_layer_worst_first(target: str, numbers: str) -> None:
    told = report(target, numbers)
    assert {row.node for row in told.layers} >= LAYERS
    errors = [row.network.relative for row in told.layers]
    assert errors == sorted(errors, reverse=True)
    low, high = (1e-5, 0.1) if numbers == "int8" else (1e-7, 1e-3)
    for row in told.layers:
        if row.node in LAYERS:
            assert low < row.layer.relative < high, row
    assert told.together.relative < 10 * high
    assert told.samples == 4


def test_keeping_all_layers_leaves_nothing_to_tell() -> None:
    told = report("cpu", "int8", *LAYERS)
    assert told.layers == () and told.together.exact


@pytest.mark.slow
def test_keeping_the_worst_layer_pays() -> None:
    whole = report("cpu", "int8-power-of-two", samples=8)
    by_layer = max(whole.layers, key=lambda row: row.network.relative)
    better = report("cpu", "int8-power-of-two", by_layer.node, samples=8)
    assert by_layer.node not in {row.node for row in better.layers}
    alone = {row.node: row.network.relative for row in whole.layers}
    assert all(row.network.relative == alone[row.node] for row in better.layers)


def test_short_floats() -> None:
    told = report("cpu", "bfloat16")
    assert {row.node for row in told.layers} >= LAYERS | {"relu1", "softmax"}
    assert 1e-4 < told.together.relative < 0.05


def test_command(tmp_path: Path) -> None:
    np.savez(tmp_path / "samples.npz", **calibration())
    words = ["quantise", str(LENET / "lenet5.onnx"), "--calibration", str(tmp_path / "samples.npz")]
    words += ["--numbers", "int8", "--observer", "percentile", "--keep-float", "fc2", "--quiet"]
    result = CliRunner().invoke(app, [*words, "--json"])
    found = json.loads(result.stdout)
    assert found["numbers"] == "int8" and found["observer"] == "percentile"
    assert {row["node"] for row in found["layers"]} == LAYERS - {"fc2"}
    assert all(row["layer"]["snr_db"] > 20 for row in found["layers"])
    text = CliRunner().invoke(app, words).stdout
    assert "worst at the outputs first" in text and "1 kept in float32" in text
    without = CliRunner().invoke(app, [*words[:2], "--quiet", "--json"])
    assert without.exit_code == 2
    assert json.loads(without.stdout)["errors"][0]["code"] == "option-numbers"


@pytest.mark.parametrize(
    "command",
    [
        "compile",
        "diff",
        "plan",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("run", "bench", "explain", "memory")),
    ],
)
def test_every_command_takes_numbers(command: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "samples.npz", **calibration())
    words = [command, str(LENET / "lenet5.onnx"), "--target", "cpu", "--numbers", "int8"]
    words += ["--calibration", str(tmp_path / "samples.npz"), "--quiet", "--json"]
    if command == "compile":
        words += ["-o", str(tmp_path / "package")]
    if command == "run":
        words += ["--random", "1"]
    if command == "diff":  # Which compares with the model, too: an image that ranges are for.
        images = calibration()
        np.savez(tmp_path / "image.npz", **{name: array[:1] for name, array in images.items()})
        words += ["--input", str(tmp_path / "image.npz")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    json.loads(result.stdout)

"""Layers of random shapes on the shim against ONNX Runtime, in tiles of several sizes."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tests.targets.sunway.random_layers import RandomLayers
from tests.targets.sunway.sunway_networks import Network

import tilewright
from tilewright.targets.sunway.emit.package import SHIM_FLAGS

ROOMS: tuple[Mapping[str, float], ...] = (
    {},
    {"memory.ldm.bytes": 16384},
    {"memory.ldm.bytes": 24576},
)
"""Of LDM, with what tiles have."""

PLANNERS = ("model", "exact", "ldm", "swatop")

STRICT = (*SHIM_FLAGS, "-fsyntax-only", "-Wall", "-Wextra", "-Wshadow", "-Werror")


def check(
    layers: RandomLayers,
    folder: Path,
    target: str = "sunway",
    planner: str = "model",
    values: Mapping[str, float] | None = None,
) -> None:
    model = layers.save(folder / "layers.onnx")
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [str(output.name) for output in session.get_outputs()]
    values_of = [np.asarray(each) for each in session.run(None, dict(layers.inputs))]
    executable = tilewright.compile(
        model, target, planner=planner, values=values or {}, directory=folder / "p"
    )
    found = executable.run(layers.inputs)
    for name, value in zip(names, values_of, strict=True):
        said = next(text for text in layers.shapes if text.startswith(f"{name} "))
        scale = float(np.abs(value).max(initial=1e-3))
        np.testing.assert_allclose(
            found[name], value, rtol=1e-4, atol=1e-4 * scale, err_msg=f"{said} {planner} {values}"
        )
    check_names(folder / "p" / "program")


def check_names(program: Path) -> None:
    """No name of a file hides another, and all are read."""
    for path in program.glob("layers/*_slave.c"):
        command = ["cc", *STRICT, str(path.relative_to(program))]
        subprocess.run(command, cwd=program, check=True)


def test_some_layers(tmp_path: Path) -> None:
    check(RandomLayers(1, 4), tmp_path)


def test_no_step_is_declared_along_an_axis_of_which_one_index_is_read(tmp_path: Path) -> None:
    """Of two rows of images a pool reads the first; tiles' columns are cut at the border."""
    net = Network(2, 3, 2, 6)
    window = {"kernel_shape": [1, 4], "strides": [2, 3], "pads": [0, 3, 0, 1]}
    model = net.save(tmp_path / "pool.onnx", net.op("AveragePool", "x", **window))
    executable = tilewright.compile(model, "sunway", directory=tmp_path / "p")
    (source,) = (tmp_path / "p" / "program" / "layers").glob("*_slave.c")
    text = source.read_text()
    assert "input_step1 =" in text and "input_step2" not in text
    check_names(tmp_path / "p" / "program")
    x = np.random.default_rng(1).normal(size=(2, 3, 2, 6)).astype(np.float32)
    assert executable.check({"x": x}, executable.run({"x": x})).equal


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 14))
def test_layers(tmp_path: Path, seed: int) -> None:
    check(RandomLayers(seed, 8), tmp_path, "sunway", PLANNERS[seed % 4], ROOMS[seed % 3])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 24))
def test_layers_on_four_core_groups(tmp_path: Path, seed: int) -> None:
    check(RandomLayers(seed, 8), tmp_path, "sunway-chip")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30, 34))
def test_windows_of_few_taps_and_odd_channels(tmp_path: Path, seed: int) -> None:
    check(RandomLayers(seed, 6, ("conv",)), tmp_path, values=ROOMS[seed % 3])

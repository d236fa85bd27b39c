"""Layers of random shapes on the shim against ONNX Runtime, in tiles of several sizes."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tests.targets.sunway.random_layers import RandomLayers

import tilewright
from tilewright.targets.sunway.emit.makefile import SHIM_FLAGS

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
    # No name of a file hides another.
    program = folder / "p" / "program"
    for path in program.glob("layers/*_slave.c"):
        command = ["cc", *STRICT, str(path.relative_to(program))]
        subprocess.run(command, cwd=program, check=True)


def test_some_layers(tmp_path: Path) -> None:
    check(RandomLayers(1, 4), tmp_path)


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

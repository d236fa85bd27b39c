"""Every layer of the papers' networks on the shim, against the interpreter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.targets.sunway.full_networks import FULL
from tests.targets.sunway.test_packages import Seen

import tilewright

TOLERANCE = 1e-4
"""Of a layer's largest value."""


def worst_error(name: str, folder: Path, size: int, planner: str) -> tuple[float, int]:
    """The largest error of any layer, and how many layers the CPEs run."""
    build = FULL[name][0]
    package = tilewright.compile(build(folder, size), "sunway", planner=planner)
    inputs = {
        info.name: np.random.default_rng(7).normal(size=[int(n) for n in info.shape])
        for info in package.inputs
    }
    floats = {key: value.astype(np.float32) for key, value in inputs.items()}
    seen, wanted = Seen(), Seen()
    package.run(floats, observe=seen.see)
    package.reference(floats, wanted.see)
    worst = 0.0
    for value, array in seen.values.items():
        largest = float(np.abs(wanted.values[value]).max(initial=1e-30))
        error = float(np.abs(array - wanted.values[value]).max(initial=0.0)) / largest
        assert error <= TOLERANCE, f"{value}: {error}"
        worst = max(worst, error)
    return worst, len(seen.values)


LAYERS = {
    "alexnet": 14,
    "vgg16": 22,
    "vgg19": 25,
    "resnet50": 54,
    "yolov2": 27,
    "mobilenet": 28,
    "lenet": 8,
}
"""Kernels at least, the host's included; a chain is one."""

WHOLE = ("alexnet", "resnet50", "mobilenet")
"""On images of full size."""


@pytest.mark.slow_cases(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "planner"),
    [
        *((name, "model") for name in FULL if name not in WHOLE),
        *((name, "ldm") for name in ("alexnet", "mobilenet")),
        *((name, "ldm{share=mesh}") for name in ("alexnet", "lenet", "mobilenet")),
    ],
)
def test_small_images(name: str, planner: str, tmp_path: Path) -> None:
    worst, layers = worst_error(name, tmp_path, FULL[name][1], planner)
    assert worst > 0 and layers >= LAYERS[name]


@pytest.mark.slow
@pytest.mark.usefixtures("built_in_full")
@pytest.mark.parametrize("name", WHOLE)
def test_whole_images(name: str, tmp_path: Path) -> None:
    worst, layers = worst_error(name, tmp_path, FULL[name][2], "model")
    assert worst > 0 and layers >= LAYERS[name]

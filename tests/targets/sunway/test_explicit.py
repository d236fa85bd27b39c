"""The explicit method on the CPEs: windows side by side, and their product, against the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.sunway.one_layer import Package
from tests.targets.sunway.sunway_networks import Network
from tests.targets.sunway.test_packages import SANITIZED, STRICT

import tilewright
from tilewright.report.explain import explain
from tilewright.targets.sunway import capabilities
from tilewright.targets.sunway.machine import MACHINE
from tilewright.targets.sunway.passes.choose_methods import ChooseMethods
from tilewright.targets.sunway.runner import SunwayRunner, build
from tilewright.targets.sunway.target import SunwayTarget

Case = tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], str]

CASES: list[Case] = [
    # Images; output channels and window; attributes; planner.
    ((2, 5, 13, 11), (24, 3, 2), {"pads": [1, 0, 2, 1], "strides": [2, 1]}, "model"),
    ((1, 3, 21, 20), (16, 7, 7), {"pads": [3, 3, 3, 3], "strides": [2, 2]}, "swatop{top=4}"),
    ((2, 12, 17, 9), (20, 3, 3), {"pads": [2, 2, 2, 2], "dilations": [2, 2]}, "ldm"),
    ((3, 6, 9, 14), (9, 3, 3), {"pads": [0, 1, 1, 0]}, "ldm{share=broadcast}"),
    ((1, 2, 3, 40), (8, 1, 9), {"pads": [0, 20, 0, 3], "dilations": [1, 5]}, "exact"),
]


def one_layer(
    folder: Path, image: tuple[int, ...], weights: tuple[int, ...], attributes: dict[str, Any]
) -> Path:
    """A convolution with bias and relu."""
    net = Network(*image)
    outputs, *taps = weights
    x = net.op("Conv", "x", net.weight(outputs, image[1], *taps), net.weight(outputs), **attributes)
    return net.save(folder / "layer.onnx", net.op("Relu", x))


def forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        capabilities, "ChooseMethods", lambda: ChooseMethods(method=("conv_explicit",))
    )


def kinds(package: Any) -> list[str]:
    return [kernel.schedule.partition(" ")[0] for kernel in package.manifest.kernels]


@pytest.mark.slow
@pytest.mark.parametrize("case", but_fast(CASES, CASES[:1]), ids=str)
def test_values_are_those_of_the_oracle(
    case: Case, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    image, weights, attributes, planner = case
    model = one_layer(tmp_path, image, weights, attributes)
    forced(monkeypatch)
    package = tilewright.compile(model, "sunway", planner=planner, directory=tmp_path / "p")
    assert kinds(package) == ["im2col", "conv"]
    if planner == "model":
        told, _ = explain(model, SunwayTarget(), MACHINE).nodes
        assert told.how == f"explicit method, windows of {weights[1]}x{weights[2]}"
    runner = package.runner
    assert isinstance(runner, SunwayRunner)
    flags = SANITIZED if "broadcast" in planner else STRICT
    runner.program = build(runner.directory, runner.manifest, flags)
    for seed in (1, 2):
        x = {"x": np.random.default_rng(seed).normal(size=image).astype(np.float32)}
        result = package.run(x)
        assert package.check(x, result).equal
        runner.order = str(seed)
        assert all(np.array_equal(array, result[n]) for n, array in package.run(x).items())
        runner.order = ""


@pytest.mark.slow
def test_four_core_groups_compute_what_one_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = one_layer(tmp_path, (4, 16, 9, 10), (24, 3, 3), {"pads": [1, 1, 1, 1]})
    forced(monkeypatch)
    x = {"x": np.random.default_rng(5).normal(size=(4, 16, 9, 10)).astype(np.float32)}
    alone, divided = (
        tilewright.compile(model, name, planner="exact") for name in ("sunway", "sunway-chip")
    )
    assert kinds(divided) == ["im2col", "conv"]
    wanted = alone.run(x)
    assert all(np.array_equal(array, wanted[name]) for name, array in divided.run(x).items())


@pytest.mark.slow
def test_transfers_are_those_of_the_tile_programs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Tiles that are cut along every dim, at the image's border."""
    attributes = {"pads": [1, 2, 1, 2], "strides": [1, 2]}
    model = one_layer(tmp_path, (1, 4, 14, 19), (5, 3, 3), attributes)
    forced(monkeypatch)
    package = Package.of(model, tmp_path, {"memory.ldm.bytes": 9216, "cores": 3})
    ran = package.run(tmp_path)
    assert (ran.status, ran.said) == (0, "")
    assert len(package.programs) == 2
    for symbol in package.programs:
        text = (package.program / f"layers/{symbol}_slave.c").read_text()
        assert package.differences(symbol, ran, text) == []


@pytest.mark.slow
def test_patches_of_images_are_written_side_by_side_unasked(tmp_path: Path) -> None:
    """Windows that do not overlap, as ViT-B begins: nothing is forced, and what was taken is
    counted to be faster."""
    image, weights, attributes = (1, 3, 224, 224), (768, 16, 16), {"strides": [16, 16]}
    model = one_layer(tmp_path, image, weights, attributes)
    x = {"x": np.random.default_rng(1).normal(size=image).astype(np.float32)}
    cycles: list[float] = []
    for growth, expected in ((8, ["im2col", "conv"]), (1, ["conv"])):
        package = tilewright.compile(model, "sunway", values={"memory_growth": growth})
        assert kinds(package) == expected
        assert package.check(x, package.run(x, profile=True)).equal
        assert package.profile.cycles is not None
        cycles.append(package.profile.cycles)
    assert cycles[0] < 0.9 * cycles[1]

"""Winograd's method on the CPEs: how far from float64 it is, against what error analysis allows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper
from tests.slow import but_fast
from tests.targets.cpu.test_winograd import RELATIVE, allowed, exact
from tests.targets.sunway.one_layer import Package
from tests.targets.sunway.sunway_networks import Network
from tests.targets.sunway.test_packages import SANITIZED, STRICT

import tilewright
from tilewright.targets.sunway import capabilities
from tilewright.targets.sunway.passes.choose_methods import ChooseMethods
from tilewright.targets.sunway.runner import SunwayRunner, build

Case = tuple[str, tuple[int, int], tuple[int, ...], int, tuple[int, ...], int, str]

CASES: list[Case] = [
    # Method, tile and taps; batch, input channels, rows, columns; output channels, pads, groups.
    ("winograd_4", (4, 3), (2, 5, 7, 6), 8, (1, 1, 1, 1), 1, "model"),
    ("winograd_2", (2, 3), (1, 16, 13, 11), 24, (0, 0, 0, 0), 1, "model"),
    ("winograd_6", (6, 3), (2, 12, 17, 9), 20, (1, 1, 1, 1), 2, "swatop{top=4}"),
    ("winograd_4", (4, 3), (3, 7, 9, 14), 9, (0, 1, 1, 0), 1, "ldm{share=broadcast}"),
    ("winograd_4", (4, 3), (2, 32, 20, 19), 32, (1, 1, 1, 1), 1, "swatop{top=4}"),
    ("winograd_2", (2, 3), (2, 40, 10, 11), 24, (1, 1, 1, 1), 1, "ldm{share=mesh}"),
    ("winograd_2_5x5", (2, 5), (1, 8, 11, 14), 10, (2, 2, 2, 2), 2, "model"),
]


def one_layer(
    folder: Path, image: tuple[int, ...], outputs: int, pads: tuple[int, ...], taps: int, group: int
) -> tuple[Path, dict[str, Any]]:
    """A convolution with bias, a residual and relu, and its constants."""
    net = Network(*image)
    weights = net.weight(outputs, image[1] // group, taps, taps)
    x = net.op("Conv", "x", weights, net.weight(outputs), pads=list(pads), group=group)
    sides = [image[2 + i] + pads[i] + pads[2 + i] - taps + 1 for i in range(2)]
    residual = net.weight(image[0], outputs, *sides)
    x = net.op("Relu", net.op("Add", x, residual))
    w, b, r = (numpy_helper.to_array(tensor) for tensor in net.weights)
    return net.save(folder / "layer.onnx", x), {"w": w, "b": b, "r": r}


def forced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capabilities, "ChooseMethods", lambda: ChooseMethods(method=(name,)))


@pytest.mark.slow
@pytest.mark.parametrize("case", but_fast(CASES, CASES[:1]), ids=str)
def test_errors_stay_within_what_analysis_allows(
    case: Case, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name, sizes, image, outputs, pads, group, planner = case
    model, data = one_layer(tmp_path, image, outputs, pads, sizes[1], group)
    forced(name, monkeypatch)
    package = tilewright.compile(model, "sunway", planner=planner, directory=tmp_path / "p")
    kinds = [kernel.schedule.partition(" ")[0] for kernel in package.manifest.kernels]
    assert kinds == ["winograd_input", "conv", "winograd_output"]
    runner = package.runner
    assert isinstance(runner, SunwayRunner)
    flags = SANITIZED if "broadcast" in planner else STRICT
    runner.program = build(runner.directory, runner.manifest, flags)
    for seed in (1, 2):
        x = np.random.default_rng(seed).normal(size=image).astype(np.float32)
        result = package.run({"x": x})
        assert package.check({"x": x}, result).equal
        (found,) = result.values()
        for number in range(image[0]):
            own = {**data, "x": x[number : number + 1], "r": data["r"][number : number + 1]}
            expected = exact(own, pads)
            error = np.abs(found[number : number + 1].astype(np.float64) - expected)
            assert (error <= allowed(own, pads, sizes[0], plain=False)).all()
            assert float(error.max()) / float(expected.max()) < RELATIVE[sizes]
        runner.order = str(seed)
        assert all(np.array_equal(array, result[n]) for n, array in package.run({"x": x}).items())
        runner.order = ""


@pytest.mark.slow
def test_four_core_groups_compute_what_one_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model, _ = one_layer(tmp_path, (4, 16, 9, 10), 24, (1, 1, 1, 1), 3, 1)
    forced("winograd_4", monkeypatch)
    x = {"x": np.random.default_rng(5).normal(size=(4, 16, 9, 10)).astype(np.float32)}
    alone, divided = (
        tilewright.compile(model, name, planner="exact") for name in ("sunway", "sunway-chip")
    )
    assert len(divided.manifest.kernels) == 3
    wanted = alone.run(x)
    assert all(np.array_equal(array, wanted[name]) for name, array in divided.run(x).items())


@pytest.mark.slow
def test_transfers_are_those_of_the_tile_programs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Tiles that are cut along every dim, at the image's border and at the result's."""
    model, _ = one_layer(tmp_path, (1, 4, 14, 19), 5, (1, 1, 1, 1), 3, 1)
    forced("winograd_4", monkeypatch)
    package = Package.of(model, tmp_path, {"memory.ldm.bytes": 9216, "cores": 3})
    ran = package.run(tmp_path)
    assert (ran.status, ran.said) == (0, "")
    assert len(package.programs) == 3
    for symbol in package.programs:
        text = (package.program / f"layers/{symbol}_slave.c").read_text()
        assert package.differences(symbol, ran, text) == []


@pytest.mark.slow
def test_one_temporary_space_has_the_largest_need(tmp_path: Path) -> None:
    """What Winograd's method keeps between its kernels; a network without it has no such space."""
    net = Network(1, 32, 22, 22)
    x = net.op("Relu", net.conv("x", 32, 64, 3))
    model = net.save(tmp_path / "layers.onnx", net.op("Relu", net.conv(x, 64, 96, 3)))
    mains: list[str] = []
    for exactly in (False, True):
        folder = tmp_path / f"p{exactly:d}"
        package = tilewright.compile(
            model, "sunway", planner="ldm", directory=folder, exact_convolution=exactly
        )
        x_ = np.random.default_rng(2).normal(size=(1, 32, 22, 22)).astype(np.float32)
        assert package.check({"x": x_}, package.run({"x": x_})).equal
        mains.append((folder / "program" / "main.c").read_text())
        assert isinstance(package.runner, SunwayRunner)
        if not exactly:
            needs: dict[str, int] = {}
            for row in package.runner.layers:
                if str(row["symbol"]).endswith(("_input", "_product")):
                    node = str(row["nodes"][0])
                    needs[node] = needs.get(node, 0) + -(-int(row["bytes"]) // 64) * 64
            assert len(needs) == 2
            (space,) = re.findall(r"temporary = memory\((\d+)\);", mains[0])
            assert int(space) == max(needs.values())
            places = re.findall(r"^    (k\w+)\((\w+) ", mains[0], re.MULTILINE)
            assert len(places) == 6
            for name, memory in places:
                apart = name.endswith("_product") or f"{name}_product" in mains[0]
                assert memory == ("temporary" if apart else "activations"), name
    assert "temporary" not in mains[1]


@pytest.mark.slow
def test_what_the_shim_counts_is_what_chose_the_method(tmp_path: Path) -> None:
    """Nothing is forced: it is taken, and counted to be faster."""
    net = Network(1, 192, 28, 28)
    model = net.save(tmp_path / "layer.onnx", net.op("Relu", net.conv("x", 192, 192, 3)))
    x = {"x": np.random.default_rng(1).normal(size=(1, 192, 28, 28)).astype(np.float32)}
    cycles: list[float] = []
    for exactly in (False, True):
        package = tilewright.compile(
            model, "sunway", planner="swatop{top=4}", exact_convolution=exactly
        )
        assert len(package.manifest.kernels) == (1 if exactly else 3)
        assert package.check(x, package.run(x, profile=True)).equal
        assert package.profile.cycles is not None
        cycles.append(package.profile.cycles)
        for kernel, planned in zip(package.profile.kernels, package.manifest.kernels, strict=True):
            assert kernel.cycles is not None and planned.predicted_cycles is not None
            # Where parts do not come in 64s, the plan has the bandwidth of idle CPEs lost.
            assert 0.75 < kernel.cycles / planned.predicted_cycles < 1.1
    assert cycles[0] < 0.9 * cycles[1]

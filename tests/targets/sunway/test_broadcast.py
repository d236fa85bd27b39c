"""Tiles that CPE 0 fetches for all, and where all meet for that."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from tests.targets.sunway.one_layer import Package, Ran
from tests.targets.sunway.sunway_networks import Network
from tests.targets.sunway.test_packages import STRICT

from tilewright.targets.sunway.runner import SunwayRunner, build

PLANNER = "ldm{share=broadcast}"

VALUES = {"move.get.bytes_per_cycle": 0.5, "own.sunway.spawn_cycles": 0}
"""Memory so slow that every layer gains by loading less."""


def four(folder: Path) -> Path:
    """Layers of 64, 128 and 192 channels, and one of 6, which are not the same for all CPEs."""
    net = Network(1, 5, 30, 21)
    x = net.op("Relu", net.conv("x", 5, 64, 3))
    x = net.op("Relu", net.conv(x, 64, 128, 3, 2))
    x = net.op("Relu", net.conv(x, 128, 6, 3))
    return net.save(folder / "four.onnx", net.linear(net.op("Flatten", x), 6 * 15 * 11, 192))


@pytest.fixture(scope="module", params=[12288, pytest.param(57344, marks=pytest.mark.slow)])
def package(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Package:
    folder = tmp_path_factory.mktemp("broadcast")
    values = {**VALUES, "memory.ldm.bytes": request.param}
    return Package.of(four(folder), folder, values, PLANNER)


@pytest.fixture(scope="module")
def ran(package: Package, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return package.run(tmp_path_factory.mktemp("run"))


def text_of(package: Package, layer: str) -> str:
    return (package.program / f"layers/{layer}_slave.c").read_text()


@pytest.mark.slow
def test_results_are_the_interpreters(package: Package) -> None:
    executable = package.executable
    (info,) = executable.inputs
    runner = executable.runner
    assert isinstance(runner, SunwayRunner)
    runner.program = build(runner.directory, runner.manifest, STRICT)
    for seed in (1, 2):
        random = np.random.default_rng(seed)
        x = random.normal(size=[int(n) for n in info.shape]).astype(np.float32)
        assert executable.check({info.name: x}, executable.run({info.name: x})).equal


@pytest.mark.slow
def test_one_cpe_loads_for_all(package: Package, ran: Ran) -> None:
    assert (ran.status, ran.said) == (0, "")
    sharing = [name for name, program in package.programs.items() if program.get("exchanged", ())]
    assert len(sharing) == 3
    for layer in package.programs:
        assert package.differences(layer, ran, text_of(package, layer)) == []
        assert ("BCAST_MODE" in text_of(package, layer)) == (layer in sharing)


@pytest.mark.slow
def test_every_missing_meeting_is_found(package: Package, tmp_path: Path) -> None:
    number = 0
    for layer in package.programs:
        text = text_of(package, layer)
        for found in re.finditer(r"^ *athread_syn\(.*\);$", text, re.MULTILINE):
            folder = tmp_path / str(number)
            folder.mkdir()
            number += 1
            changed = text[: found.start()] + ";" + text[found.end() :]
            said = package.run(folder, f"layers/{layer}_slave.c", changed).said
            assert re.search(r"layers/\w+\.c:\d+", said) and "CPE" in said, (layer, found.start())
    assert number >= 3


@pytest.mark.slow
def test_tiles_are_fetched_ahead_for_all(tmp_path: Path) -> None:
    net = Network(1, 64, 20, 20)
    model = net.save(tmp_path / "one.onnx", net.conv("x", 64, 64, 3))
    values = {**VALUES, "memory.ldm.bytes": 24576}
    package = Package.of(model, tmp_path, values, "ldm{share=broadcast buffers=2}")
    ((layer, _),) = package.programs.items()
    text = text_of(package, layer)
    assert "BCAST_MODE" in text and "if (next_" in text
    folder = tmp_path / "run"
    folder.mkdir()
    ran = package.run(folder)
    assert (ran.status, ran.said) == (0, "")
    assert package.differences(layer, ran, text) == []
    (meeting,) = re.finditer(r"^ *athread_syn\(.*\);$", text, re.MULTILINE)
    changed = text[: meeting.start()] + ";" + text[meeting.end() :]
    (tmp_path / "changed").mkdir()
    said = package.run(tmp_path / "changed", f"layers/{layer}_slave.c", changed).said
    assert re.search(r"layers/\w+\.c:\d+", said) and "athread_syn" in said

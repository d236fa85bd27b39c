"""CPEs of a row or column that share what they load, and exchange it by registers."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from tests.targets.sunway.expected_transfers import Walk
from tests.targets.sunway.one_layer import Package, Ran
from tests.targets.sunway.sunway_networks import NETWORKS, Network
from tests.targets.sunway.test_packages import STRICT

import tilewright
from tilewright.compiler.pipeline import resolve, run_pipeline
from tilewright.targets.sunway.runner import SunwayRunner, build
from tilewright.tile.dialect import programs_of

SLOW_MEMORY = {"move.get.bytes_per_cycle": 0.5, "own.sunway.spawn_cycles": 0}
"""So slow that every layer gains by loading less."""

PLANNER = "ldm{share=mesh}"


def pair(folder: Path) -> Path:
    """Two convolutions whose parts and tiles are cut short at edges of several dims."""
    net = Network(1, 5, 30, 21)
    x = net.op("Relu", net.conv("x", 5, 22, 3))
    return net.save(folder / "pair.onnx", net.conv(x, 22, 30, 3))


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    folder = tmp_path_factory.mktemp("mesh")
    values = {**SLOW_MEMORY, "memory.ldm.bytes": 16384}
    return Package.of(pair(folder), folder, values, PLANNER)


@pytest.fixture(scope="module")
def ran(package: Package, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return package.run(tmp_path_factory.mktemp("run"))


def exchanging(package: Package) -> list[str]:
    """The layers that exchange something."""
    return [name for name, program in package.programs.items() if program.get("exchanged", ())]


def text_of(package: Package, layer: str) -> str:
    return (package.program / f"layers/{layer}_slave.c").read_text()


@pytest.mark.slow
def test_results_are_the_interpreters(package: Package) -> None:
    executable = package.executable
    assert len(exchanging(package)) == 2
    (info,) = executable.inputs
    runner = executable.runner
    assert isinstance(runner, SunwayRunner)
    runner.program = build(runner.directory, runner.manifest, STRICT)
    for seed in (1, 2):
        random = np.random.default_rng(seed)
        x = random.normal(size=[int(n) for n in info.shape]).astype(np.float32)
        assert executable.check({info.name: x}, executable.run({info.name: x})).equal


@pytest.mark.slow
def test_each_cpe_loads_its_share_alone(package: Package, ran: Ran) -> None:
    assert (ran.status, ran.said) == (0, "")
    for layer in package.programs:
        assert package.differences(layer, ran, text_of(package, layer)) == []


def loaded(ran: Ran) -> int:
    """Bytes that all DMA commands of a run read, but for parameters."""
    fields = [line.split() for line in ran.trace]
    return sum(int(field[5]) for field in fields if field[2] == "get" and int(field[3]) >= 0)


@pytest.mark.slow
def test_traffic_falls_as_the_plan_says(package: Package, ran: Ran, tmp_path: Path) -> None:
    values = {**SLOW_MEMORY, "memory.ldm.bytes": 16384}
    alone = Package.of(pair(tmp_path), tmp_path, values, "ldm")
    (tmp_path / "run").mkdir()
    assert loaded(alone.run(tmp_path / "run")) > 3 * loaded(ran)


@pytest.mark.parametrize("fifo", [1, 64])
def test_the_depth_of_the_buses_changes_nothing(
    package: Package, ran: Ran, fifo: int, tmp_path: Path
) -> None:
    again = package.run(tmp_path, fifo=fifo)
    # The order of commands of different CPEs may change, each CPE's own may not.
    assert again.status == 0
    assert sorted(again.trace) == sorted(ran.trace)


@pytest.mark.parametrize(
    ("statement", "other"),
    [
        ("simd_putr(v, 8);", ";"),
        ("simd_putc(v, 8);", ";"),
        ("simd_putr(v, 8);", "simd_putc(v, 8);"),
        ("v = simd_getr(v);", "v = simd_getc(v);"),
    ],
)
def test_registers_that_nobody_sends_or_takes_are_found(
    package: Package, statement: str, other: str, tmp_path: Path
) -> None:
    header = (package.program / "slave" / "mesh.h").read_text()
    assert statement in header
    layer = exchanging(package)[0]
    include = '#include "../slave/mesh.h"'
    changed = header.replace('#include "cpe.h"', "").replace(statement, other)
    text = text_of(package, layer).replace(include, changed)
    said = package.run(tmp_path, f"layers/{layer}_slave.c", text).said
    assert re.search(r"layers/\w+\.c:\d+", said) and "CPE" in said


@pytest.mark.slow
@pytest.mark.parametrize("values", [{}, {"memory.ldm.bytes": 12288}])
@pytest.mark.parametrize("name", ["residual", "alex", "mobile", "mixed"])
def test_networks(name: str, values: dict[str, float], tmp_path: Path) -> None:
    package = tilewright.compile(
        NETWORKS[name](tmp_path), "sunway", planner=PLANNER, values={**SLOW_MEMORY, **values}
    )
    runner = package.runner
    assert isinstance(runner, SunwayRunner)
    inputs = {
        info.name: np.random.default_rng(3).normal(size=[int(n) for n in info.shape])
        for info in package.inputs
    }
    floats = {key: value.astype(np.float32) for key, value in inputs.items()}
    first = package.run(floats)
    assert package.check(floats, first).equal
    runner.order = "5"
    again = package.run(floats)
    assert all(np.array_equal(first[key], again[key]) for key in first)


@pytest.mark.few(1)
@pytest.mark.parametrize("channels", [3, 9, 20])
def test_plans_say_what_is_moved_where_tiles_do_not_come_in_eighths(
    channels: int, tmp_path: Path
) -> None:
    net = Network(1, channels, 34, 34)
    path = net.save(tmp_path / "m.onnx", net.op("Conv", "x", net.weight(64, channels, 3, 3)))
    target, machine = resolve("sunway")
    with target.planner(PLANNER, machine) as asked:
        (kernel,) = (work := run_pipeline(path, target, machine, ask=asked)).kernels
    plan = work.plans[kernel.kernel.symbol]
    assert kernel.program is not None and len(plan.schedule.exchanged) == 2
    program = programs_of(kernel.program)[0]
    walks = [Walk(program, cpe, machine.cores).run() for cpe in range(machine.cores)]
    assert plan.moved_bytes == sum(n for walk in walks for runs in walk.values() for _, n in runs)

"""Products that the CPEs of the mesh multiply together, their tiles sent in turns by registers."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.sunway.one_layer import Package, Ran
from tests.targets.sunway.sunway_networks import Network
from tests.targets.sunway.test_packages import STRICT

from tilewright.compiler.pipeline import resolve, run_pipeline
from tilewright.errors import TilewrightError
from tilewright.targets.base import find_target
from tilewright.targets.sunway.machine import MACHINE
from tilewright.targets.sunway.runner import SunwayRunner, build

PLANNER = "blackbox"
VALUES = {
    "memory.ldm.bytes": 20480,
    "own.sunway.spawn_cycles": 0,
    "move.get.bytes_per_cycle": 4,
}
"""So little memory, and so slow, that what others send had better not be kept."""


def classifier(folder: Path, rows: int = 32, outputs: int = 256) -> Path:
    """A layer for many rows, whose tiles along the reduction do not come in eights."""
    net = Network(rows, 1256)
    return net.save(folder / "classifier.onnx", net.op("Relu", net.linear("x", 1256, outputs)))


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    folder = tmp_path_factory.mktemp("turns")
    return Package.of(classifier(folder), folder, VALUES, PLANNER)


@pytest.fixture(scope="module")
def ran(package: Package, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return package.run(tmp_path_factory.mktemp("run"))


def in_turns(package: Package) -> list[str]:
    """The layers that are multiplied in turns."""
    return [
        name
        for name, program in package.programs.items()
        if any(axis.endswith("in turns") for _, axis in program.get("exchanged", ()))
    ]


def text_of(package: Package, layer: str) -> str:
    return (package.program / f"layers/{layer}_slave.c").read_text()


@pytest.mark.slow
def test_results_are_the_interpreters(package: Package) -> None:
    executable = package.executable
    assert in_turns(package)
    runner = executable.runner
    assert isinstance(runner, SunwayRunner)
    runner.program = build(runner.directory, runner.manifest, STRICT)
    (info,) = executable.inputs
    for seed in (1, 2):
        x = np.random.default_rng(seed).normal(size=[int(n) for n in info.shape])
        inputs = {info.name: x.astype(np.float32)}
        assert executable.check(inputs, executable.run(inputs)).equal


@pytest.mark.slow
def test_each_cpe_loads_every_eighth_tile(package: Package, ran: Ran) -> None:
    assert (ran.status, ran.said) == (0, "")
    for layer in package.programs:
        assert package.differences(layer, ran, text_of(package, layer)) == []


@pytest.mark.slow
@pytest.mark.parametrize("fifo", but_fast([1, 64], [64]))
def test_the_depth_of_the_buses_changes_nothing(
    package: Package, ran: Ran, fifo: int, tmp_path: Path
) -> None:
    again = package.run(tmp_path, fifo=fifo)
    assert again.status == 0
    assert sorted(again.trace) == sorted(ran.trace)


def test_the_order_of_cpes_changes_no_bit(package: Package) -> None:
    executable = package.executable
    runner = executable.runner
    assert isinstance(runner, SunwayRunner)
    (info,) = executable.inputs
    x = np.random.default_rng(5).normal(size=[int(n) for n in info.shape]).astype(np.float32)
    first = executable.run({info.name: x})
    runner.order = "9"
    again = executable.run({info.name: x})
    runner.order = ""
    assert all(np.array_equal(first[key], again[key]) for key in first)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("statement", "other"),
    [
        (r"turn == lane_in\(ROW_OF_MESH\) &&", "turn == lane_in(COLUMN_OF_MESH) &&"),
        (r"turn = \(turn \+ 1\) % SIDE;", ";"),
        (r"skip_(\w+)\(&next, SIDE\)", r"skip_\1(&next, SIDE - 1)"),
        (r"dma_wait\(&replies\[weight_word \+ weight_slot\], .*\);", ";"),
        (r"if \(turn == lane_in\(COLUMN_OF_MESH\)\)\n +weight_slot", "weight_slot"),
    ],
)
def test_turns_that_are_mistaken_are_found(
    package: Package, statement: str, other: str, tmp_path: Path
) -> None:
    layer = in_turns(package)[0]
    text, count = re.subn(statement, other, text_of(package, layer), count=1)
    assert count == 1
    again = package.run(tmp_path, f"layers/{layer}_slave.c", text)
    said = again.said if again.status else "\n".join(package.differences(layer, again, text))
    assert re.search(r"layers/\w+\.c:\d+", said) and "CPE" in said


@pytest.mark.slow
def test_counted_cycles_are_the_plans(tmp_path: Path) -> None:
    """Of a layer whose tiles take longer to multiply than to load."""
    model = classifier(tmp_path, 128, 512)
    package = Package.of(model, tmp_path, VALUES, PLANNER)
    assert in_turns(package)
    executable = package.executable
    (info,) = executable.inputs
    x = np.zeros([int(n) for n in info.shape], np.float32)
    executable.run({info.name: x}, profile=True)
    target, machine = resolve("sunway", values=VALUES)
    with target.planner(PLANNER, machine) as asked:
        work = run_pipeline(model, target, machine, ask=asked)
    for kernel in executable.profile.kernels:
        planned = work.plans[kernel.symbol].predicted_cycles
        # A round of turns evens out what the plan takes for each of them.
        assert 0.95 * planned < kernel.cycles < 1.02 * planned


SPACE = """
space gemm0
  primitive matmul_in_turns
  cores mesh n, co
  split co by 16 32
  split ci by 8 64 128
  reorder co ci
  double input weight
"""


def test_a_space_may_name_the_primitive(tmp_path: Path) -> None:
    file = tmp_path / "turns.space"
    file.write_text(SPACE)
    package = Package.of(classifier(tmp_path), tmp_path, {}, f"space{{file={file}}}")
    assert in_turns(package)
    (info,) = package.executable.inputs
    x = np.random.default_rng(3).normal(size=[int(n) for n in info.shape]).astype(np.float32)
    assert package.executable.check({info.name: x}, package.executable.run({info.name: x})).equal


@pytest.mark.parametrize(
    ("line", "other", "reason"),
    [
        ("split ci by 8 64 128", "", "takes turns along ci"),
        ("split ci by 8 64 128", "split ci by 10", "ci in multiples of"),
        ("double input weight", "double input", "sends w"),
        ("cores mesh n, co", "cores co by 32", "whole mesh"),
    ],
)
def test_spaces_in_which_nobody_can_take_turns_are_refused(
    line: str, other: str, reason: str, tmp_path: Path
) -> None:
    file = tmp_path / "turns.space"
    file.write_text(SPACE.replace(line, other).replace("co ci", "co ci" if other else "co"))
    target, machine = resolve("sunway")
    with (
        pytest.raises(TilewrightError, match=f"space-empty.*(\n.*)*{reason}"),
        target.planner(f"space{{file={file}}}", machine) as asked,
    ):
        run_pipeline(classifier(tmp_path), target, machine, ask=asked, until="plan")


@pytest.mark.slow
def test_without_a_mesh_nobody_takes_turns(tmp_path: Path) -> None:
    alone = Package.of(classifier(tmp_path), tmp_path, VALUES, "blackbox{share=none}")
    assert not in_turns(alone)


def test_others_refuse_such_primitives() -> None:
    with pytest.raises(TilewrightError, match="matmul_in_turns"):
        find_target("cambricon-x").check_machine(MACHINE)

"""Results whose channels do not come in eight parts: CPEs that have none of their own exchange
what others need, and write nothing."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from tests.targets.sunway.one_layer import Package
from tests.targets.sunway.sunway_networks import Network

from tilewright.compiler.pipeline import resolve, run_pipeline
from tilewright.planning.space.mesh import divisions, places
from tilewright.targets.sunway.runner import SunwayRunner


def layer(folder: Path, channels: int, side: int = 14, kernel: int = 3) -> Path:
    net = Network(1, 17, side, side)
    return net.save(folder / f"c{channels}.onnx", net.conv("x", 17, channels, kernel))


def predicted(folder: Path, channels: int) -> float:
    target, machine = resolve("sunway")
    with target.planner("model", machine) as asked:
        work = run_pipeline(layer(folder, channels), target, machine, ask=asked)
    (plan,) = work.plans.values()
    return plan.predicted_cycles


def test_a_dim_of_fewer_parts_is_cut_where_none_has_eight() -> None:
    cuts = divisions(("co", "oh", "ow"), {"co": 33, "oh": 14, "ow": 14}, {}, 8)
    assert {cut.rows for cut in cuts} >= {(("co", 5),), (("oh", 2),), (("oh", 7), ("ow", 4))}
    # Of 36 channels there are eight parts: nothing is left over.
    cuts = divisions(("co", "oh", "ow"), {"co": 36, "oh": 14, "ow": 14}, {}, 8)
    assert {cut.rows for cut in cuts} == {(("co", 5),), (("oh", 7), ("ow", 4)), *_turned()}
    assert places((7, 2, 4), 8) == (8, 2, 4)
    assert places((5, 7), 8) == (8, 8)


def _turned() -> set[tuple[tuple[str, int], ...]]:
    """The other cut of the rows and columns of an image."""
    return {(("oh", 4), ("ow", 7))}


@pytest.mark.slow
def test_neighbours_take_about_as_long(tmp_path: Path) -> None:
    """By their multiply-adds, from 32 channels to 36."""
    first = predicted(tmp_path, 32) / 32
    for channels in (33, 34, 36):
        assert predicted(tmp_path, channels) / channels < 1.3 * first, channels


@pytest.mark.slow
@pytest.mark.parametrize(
    ("channels", "side", "kernel"), [(33, 14, 3), (41, 14, 3), (49, 14, 5), (21, 14, 1)]
)
def test_spare_cores_take_part(channels: int, side: int, kernel: int, tmp_path: Path) -> None:
    values = {"move.get.bytes_per_cycle": 2.0, "own.sunway.spawn_cycles": 0}
    package = Package.of(layer(tmp_path, channels, side, kernel), tmp_path, values)
    (program,) = package.programs
    text = (package.program / f"layers/{program}_slave.c").read_text()
    assert "spare |=" in text
    (tmp_path / "run").mkdir()
    ran = package.run(tmp_path / "run")
    assert (ran.status, ran.said) == (0, "")
    assert package.differences(program, ran, text) == []
    executable = package.executable
    runner = executable.runner
    assert isinstance(runner, SunwayRunner)
    (info,) = executable.inputs
    x = np.random.default_rng(3).normal(size=[int(n) for n in info.shape]).astype(np.float32)
    for order in ("", "7"):
        runner.order = order
        assert executable.check({info.name: x}, executable.run({info.name: x})).passed


@pytest.mark.slow
def test_spare_cores_read_nothing_that_another_writes_over(tmp_path: Path) -> None:
    """The sum of a residual block lies where an operand did, whose tiles CPEs fetch alone."""
    net = Network(1, 17, 14, 14)
    shortcut = net.conv("x", 17, 33, 1)
    y = net.op("Add", net.conv("x", 17, 33, 3), shortcut)
    model = net.save(tmp_path / "block.onnx", y)
    values = {"move.get.bytes_per_cycle": 2.0, "own.sunway.spawn_cycles": 0}
    package = Package.of(model, tmp_path, values)
    (tmp_path / "run").mkdir()
    ran = package.run(tmp_path / "run")
    assert (ran.status, ran.said) == (0, "")
    *_, program = package.programs
    text = (package.program / f"layers/{program}_slave.c").read_text()
    assert "spare |=" in text
    main = (package.program / "main.c").read_text()
    (call,) = re.findall(rf"\b{program}\((.*?)\);", main, re.DOTALL)
    addresses = [word.strip() for word in call.split(",")]
    assert len(set(addresses)) == len(addresses) - 1
    assert package.differences(program, ran, text) == []
    x = np.random.default_rng(3).normal(size=(1, 17, 14, 14)).astype(np.float32)
    executable = package.executable
    assert executable.check({"x": x}, executable.run({"x": x})).equal

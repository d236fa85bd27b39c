"""Tuning: measurements are kept, found again, and used; interruptions lose nothing."""

import json
import sqlite3
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import tilewright
from tests.targets.cpu.built_networks import expected, image, model
from tests.targets.cpu.planning.test_sharing import map_of, product
from tilewright.cli.main import app
from tilewright.compiler.tune import tune
from tilewright.errors import TilewrightError
from tilewright.machine import Machine
from tilewright.planning.domain import Kernel
from tilewright.planning.planners import measured
from tilewright.planning.planners.measured import best_known, candidates, plan_measured
from tilewright.planning.planners.measurements import Measurements
from tilewright.planning.schedule import Schedule
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.measure import measure

MACHINE = machine()


class Fake:
    """Says that the schedule at one place of the search is the fastest; counts what it is asked."""

    def __init__(self, best: int) -> None:
        self.best = best
        self.asked: list[Schedule] = []

    def __call__(
        self, kernel: Kernel, machine: Machine, schedules: Sequence[Schedule]
    ) -> list[float]:
        order = candidates(kernel, machine)
        self.asked += schedules
        return [1.0 + abs(order.index(schedule) - self.best) for schedule in schedules]


def kernel() -> Kernel:
    return product(64, 96, 128)


needs_wide = pytest.mark.skipif(
    MACHINE.memory("registers").granule != 64, reason="the kernel's layout is for 16 lanes"
)


@needs_wide
def test_the_fastest_measured_schedule_is_taken_and_not_measured_again(tmp_path: Path) -> None:
    made, fake = kernel(), Fake(5)
    order = candidates(made, MACHINE)
    with Measurements(tmp_path / "db.sqlite") as known:
        found = plan_measured(made, MACHINE, fake, known, most=20)
        assert replace(found.schedule, shared="") == order[5]
        assert found.timed_cycles == pytest.approx(MACHINE.clock_hz)
        assert len(fake.asked) == len(set(fake.asked)) == 20
        plan_measured(made, MACHINE, fake, known, most=20)
        assert len(fake.asked) == 20
    with Measurements(tmp_path / "db.sqlite") as known:  # another process, later
        again = best_known(made, MACHINE, known)
        assert again is not None
        assert replace(again.schedule, shared="") == order[5]
    with Measurements(tmp_path / "db.sqlite", built="another compiler") as known:
        assert best_known(made, MACHINE, known) is None
    with Measurements(tmp_path / "db.sqlite") as known:
        assert best_known(made, MACHINE.with_values({"clock_hz": 1e9}), known) is None


@needs_wide
def test_measured_schedules_compute_and_take_time() -> None:
    made = kernel()
    schedules = candidates(made, MACHINE, 6)
    seconds = measure(made, MACHINE, schedules, turns=2, turn_seconds=1e-4)
    floor = made.anchor.iterations / 1e12  # no core does a tera of multiply-adds in a second
    assert all(floor < took < 1.0 for took in seconds)


def test_what_cannot_be_built_is_infinite() -> None:
    made = map_of((2, 3, 4))
    wrong = Schedule("no such primitive", ())
    assert measure(made, MACHINE, [wrong]) == [float("inf")]


def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("remember the milk" * 100)
    with pytest.raises(TilewrightError) as caught:
        Measurements(path)
    assert caught.value.problems[0].code == "tuning-database"
    assert path.read_text().startswith("remember")


@needs_wide
def test_damaged_rows_are_measured_again(tmp_path: Path) -> None:
    made, fake, path = kernel(), Fake(1), tmp_path / "db.sqlite"
    with Measurements(path) as known:
        plan_measured(made, MACHINE, fake, known, most=4)
    with sqlite3.connect(path) as database:
        database.execute("update measurements set schedule = schedule || '}'")
    with Measurements(path) as known:
        assert known.of(made, MACHINE) == {}
        assert plan_measured(made, MACHINE, fake, known, most=4).timed == 4


@pytest.mark.slow
def test_a_model_is_tuned_and_compiled_with_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "BATCH", 3)
    path, database = tmp_path / "pictures.onnx", tmp_path / "db.sqlite"
    onnx.save(model(), path)
    runner = CliRunner()
    options = ["--database", str(database), "--quiet"]
    result = runner.invoke(app, ["tune", str(path), "--seconds", "4", "--json", *options])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert any(row["measured"] > 1 for row in found["kernels"])
    for row in found["kernels"]:
        if row["model_seconds"] is not None and row["best_seconds"] is not None:
            assert row["best_seconds"] <= row["model_seconds"]
    package = tmp_path / "package"
    result = runner.invoke(app, ["compile", str(path), "-o", str(package), *options])
    assert result.exit_code == 0, result.output
    outputs = tilewright.Executable.load(package).run({"image": image()})
    np.testing.assert_allclose(outputs["probabilities"], expected(), rtol=2e-4, atol=1e-6)
    for row in found["kernels"]:
        if row["schedule"] is not None:
            texts = (package / "program/src").glob("*.c")
            assert any(row["schedule"].split(";")[0][:60] in text.read_text() for text in texts)


class Broken(Executor):
    """Does one batch and is then interrupted."""

    def __init__(self) -> None:
        self.count = 0

    def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
        self.count += 1
        future: Future[list[float]] = Future()
        if self.count > 2:
            future.set_exception(KeyboardInterrupt())
        else:
            future.set_result([float(n + 1) for n, _ in enumerate(args[2])])
        return future


def test_an_interruption_keeps_what_was_measured(tmp_path: Path) -> None:
    path, database = tmp_path / "pictures.onnx", tmp_path / "db.sqlite"
    onnx.save(model(), path)
    with pytest.raises(KeyboardInterrupt):
        tune(path, database=database, seconds=60, executor=Broken(), jobs=1)
    with sqlite3.connect(database) as connection:
        assert connection.execute("select count(*) from measurements").fetchone()[0] > 1


def test_simulated_targets_have_nothing_to_measure(tmp_path: Path) -> None:
    path = tmp_path / "pictures.onnx"
    onnx.save(model(), path)
    with pytest.raises(TilewrightError) as caught:
        tune(path, "cambricon-x", database=tmp_path / "db.sqlite", seconds=1)
    assert caught.value.problems[0].code == "target-measure"
    with pytest.raises(TilewrightError) as caught:
        tilewright.compile(path, "cambricon-x", planner="measured")
    assert caught.value.problems[0].code == "target-measure"
    with pytest.raises(TilewrightError) as caught:
        tilewright.compile(path, planner="guess")
    assert caught.value.problems[0].code == "option-planner"

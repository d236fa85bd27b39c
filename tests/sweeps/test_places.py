"""Rows and their order do not depend on where points are planned; workers that die are replaced."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from multiprocessing import active_children
from pathlib import Path

import pytest

from tests.sweeps.models import MACHINE, VARY, small_model
from tilewright.errors import TilewrightError
from tilewright.sweeps import sweep
from tilewright.sweeps.evaluate import Study, evaluate
from tilewright.sweeps.places import place_of, row_of
from tilewright.sweeps.space import Point


@pytest.mark.slow
def test_processes_give_the_same_bytes_though_a_worker_is_killed(tmp_path: Path) -> None:
    model = small_model(tmp_path)
    here, there = tmp_path / "here.csv", tmp_path / "there.csv"
    sweep(model, MACHINE, VARY, output=here)
    killed: list[int] = []

    def kill_one(activity: str, done: int, total: int) -> None:
        if done == 1 and not killed:
            worker = next(child.pid for child in active_children() if child.pid)
            killed.append(worker)
            os.kill(worker, signal.SIGKILL)

    sweep(model, MACHINE, VARY, output=there, jobs=2, progress=kill_one)
    assert killed
    assert there.read_bytes() == here.read_bytes()


def test_a_worker_with_another_model_ends_the_sweep(tmp_path: Path) -> None:
    model = small_model(tmp_path)
    study = Study("generic", {}, {model: "0" * 64})
    from tilewright.compiler.pipeline import resolve

    _, machine = resolve(MACHINE)
    study = Study("generic", machine.to_json(), {model: "0" * 64, "gone": "0" * 64})
    for name in (model, str(tmp_path / "gone.onnx")):
        with pytest.raises(TilewrightError) as caught:
            row_of(evaluate(study, Point(name, "model", ())))
        assert caught.value.problems[0].code == "sweep-worker"


@pytest.mark.parametrize("on", ["dusk", "dask://", "ssh://host"])
def test_places_that_do_not_exist_are_refused(on: str) -> None:
    with pytest.raises(TilewrightError) as caught, place_of(on, 1):
        pass
    assert caught.value.problems[0].code in ("sweep-cluster", "sweep-extra")


def test_workers_that_die_again_and_again_are_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from concurrent.futures.process import BrokenProcessPool

    from tilewright.sweeps import places

    def broken(*_: object) -> Iterator[places.Finished]:
        raise BrokenProcessPool
        yield

    monkeypatch.setattr(places, "windowed", broken)
    with pytest.raises(TilewrightError) as caught:
        sweep(small_model(tmp_path), MACHINE, VARY, jobs=2)
    assert caught.value.problems[0].code == "sweep-worker"

"""Sweeps on a real Dask cluster of this computer: right rows, a killed worker, a lost scheduler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.sweeps.models import MACHINE, VARY, small_model
from tilewright.errors import TilewrightError
from tilewright.sweeps import sweep

pytestmark = pytest.mark.slow
distributed: Any = pytest.importorskip("distributed")

MANY = {"memory.feature.bytes": "1K..16K:+1K"}


@dataclass
class Cluster:
    """A scheduler and its workers, each a process of its own as a user starts them."""

    address: str
    scheduler: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]]


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Generator[Cluster]:
    with ExitStack() as stack, (folder / "cluster.log").open("wb") as log:

        def begin(*arguments: str) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-m", "dask", *arguments]
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
            stack.callback(_end, process)
            return process

        file = folder / "scheduler.json"
        scheduler = begin(
            *("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"),
            *("--scheduler-file", str(file)),
        )
        started = [
            begin(
                *("worker", "--scheduler-file", str(file), "--nthreads", "1", "--no-nanny"),
                *("--no-dashboard", "--host", "127.0.0.1"),
            )
            for _ in range(workers)
        ]
        end = time.monotonic() + 60
        while not file.exists() or not file.read_text().strip().endswith("}"):
            assert time.monotonic() < end, (folder / "cluster.log").read_text()
            time.sleep(0.1)
        with distributed.Client(scheduler_file=str(file), timeout=30) as client:
            client.wait_for_workers(workers, timeout=60)
            address = client.scheduler.address
        yield Cluster(address.removeprefix("tcp://"), scheduler, started)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def test_a_cluster_gives_the_same_bytes_though_a_worker_is_killed(tmp_path: Path) -> None:
    model = small_model(tmp_path)
    here, there = tmp_path / "here.csv", tmp_path / "there.csv"
    sweep(model, MACHINE, MANY, output=here)
    killed: list[int] = []
    with cluster(tmp_path) as running:

        def kill_one(activity: str, done: int, total: int) -> None:
            if done >= 3 and not killed:
                killed.append(done)
                os.kill(running.workers[0].pid, signal.SIGKILL)

        on = f"dask://{running.address}"
        sweep(model, MACHINE, MANY, output=there, on=on, progress=kill_one)
        assert running.workers[1].poll() is None
    assert killed[0] < 16
    assert there.read_bytes() == here.read_bytes()


def test_a_lost_scheduler_is_one_error_and_the_sweep_goes_on_elsewhere(tmp_path: Path) -> None:
    model = small_model(tmp_path)
    here, there = tmp_path / "here.csv", tmp_path / "there.csv"
    sweep(model, MACHINE, MANY, output=here)
    with cluster(tmp_path, workers=1) as running:

        def lose(activity: str, done: int, total: int) -> None:
            if done == 3:
                os.kill(running.scheduler.pid, signal.SIGKILL)

        on = f"dask://{running.address}"
        with pytest.raises(TilewrightError) as caught:
            sweep(model, MACHINE, MANY, output=there, on=on, progress=lose)
        (problem,) = caught.value.problems
        assert (problem.code, "lost" in problem.reason) == ("sweep-cluster", True)
    kept = (tmp_path / "there.csv.journal").read_text().splitlines()[1:]
    assert 3 <= len(kept) < 16
    assert not there.exists()
    begun: list[int] = []
    sweep(model, MACHINE, MANY, output=there, progress=lambda _, done, all: begun.append(done))
    assert begun[0] == len(kept)
    assert there.read_bytes() == here.read_bytes()


def test_a_command_whose_scheduler_is_lost_says_one_line(tmp_path: Path) -> None:
    model, output = small_model(tmp_path), tmp_path / "rows.csv"
    journal = tmp_path / "rows.csv.journal"
    with cluster(tmp_path, workers=1) as running:
        command = [
            *(sys.executable, "-m", "tilewright", "sweep", model, "-t", MACHINE, "-o", str(output)),
            *("--vary", "memory.feature.bytes=1K..16K:+128", "--quiet"),
            *("--on", f"dask://{running.address}"),
        ]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            end = time.monotonic() + 300
            while not (journal.exists() and len(journal.read_text().splitlines()) > 3):
                assert time.monotonic() < end and process.poll() is None
                time.sleep(0.05)
            os.kill(running.scheduler.pid, signal.SIGKILL)
            _, told = process.communicate(timeout=300)
    assert process.returncode == 2
    (line,) = told.splitlines()
    assert line.startswith("error [sweep-cluster]") and "lost" in line


def test_a_local_cluster_is_begun_and_ended(tmp_path: Path) -> None:
    model = small_model(tmp_path)
    assert sweep(model, MACHINE, VARY, on="dask", jobs=2) == sweep(model, MACHINE, VARY)


def test_no_scheduler_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(TilewrightError) as caught:
        sweep(small_model(tmp_path), MACHINE, VARY, on="dask://127.0.0.1:9")
    assert caught.value.problems[0].code == "sweep-cluster"

"""Fair measurements: processes of their own, on as many cores as asked for, and a stopwatch."""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks import models

MODELS = Path("build/models")
"""Where models are kept once they are made."""

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def model_path(name: str) -> Path:
    """The network's file, made when first asked for."""
    return models.save(name, MODELS)


def calibrated(folder: Path) -> Path:
    """The processor's calibration, ``folder/processor.json``; measured when first asked for."""
    path = folder / "processor.json"
    if not path.exists():
        from tilewright.targets.cpu.calibrate import calibrate

        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(calibrate().model_dump_json(indent=1) + "\n")
        partial.rename(path)
    return path


class Stopwatch:
    """Seconds by stage, and the processor's alone; give it to ``compile`` as ``progress``."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}
        self._stage = ""
        self._start = time.perf_counter()
        self._cpu_start = time.process_time()

    def __call__(self, what: str, done: int, total: int) -> None:
        """A stage begins when its total is not known yet."""
        if total == 0:
            self.lap(what)

    def lap(self, what: str) -> None:
        """End the stage that runs, and begin another."""
        now, cpu = time.perf_counter(), time.process_time()
        for spent, since in (
            (self.seconds, now - self._start),
            (self.cpu_seconds, cpu - self._cpu_start),
        ):
            if self._stage:
                spent[self._stage] = spent.get(self._stage, 0.0) + since
        self._stage, self._start, self._cpu_start = what, now, cpu

    def stop(self) -> None:
        """End the stage that runs."""
        self.lap("")


def peak_bytes() -> int:
    """Most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def alone(cores: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a module's function, called in a fresh process on the first ``cores`` cores."""
    with (
        environment(cores),
        ProcessPoolExecutor(1, get_context("spawn"), pin, (cores,)) as pool,
    ):
        return pool.submit(function, *arguments).result()


@contextmanager
def environment(cores: int):
    """``THREADS`` say so many cores, to processes that are started meanwhile."""
    old = {name: os.environ.get(name) for name in THREADS}
    os.environ.update({name: str(cores) for name in THREADS})
    try:
        yield
    finally:
        for name, value in old.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def cores() -> int:
    """How many this process may use."""
    has = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has else os.cpu_count() or 1


def pin(cores: int) -> None:
    """This process runs on the first ``cores`` cores from now on."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))


def kept(
    path: Path,
    resume: bool,
    measure: Callable[..., dict[str, Any]],
    *arguments: Any,
    code: str = "",
) -> dict[str, Any]:
    """A row: what an earlier run kept at ``path``, if that is to be taken, or a new one.

    With ``code``, a digest of what decides the row, one of other code is not taken.
    """
    if resume and path.exists():
        row = json.loads(path.read_text())
        if not code or row.get("code") == code:
            return row
    row = measure(*arguments)
    if code:
        row["code"] = code
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(row))
    partial.rename(path)
    return row

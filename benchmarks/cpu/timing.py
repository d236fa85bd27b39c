"""Ours and the peers in turns: one process, one number of threads, the same inputs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks import models
from benchmarks.cpu.peers import available
from tilewright.compiling import compile as compile_model
from tilewright.runtime.executable import Executable
from tilewright.targets.cpu.runner import CpuRunner

MOST_ROUNDS = 1000
"""Rounds of a network whose run takes next to nothing."""

REST = 0.005
"""Seconds between turns on several threads: until then some pools of threads spin."""


@dataclass(frozen=True)
class Times:
    """One network on so many threads: milliseconds per run, medians and least."""

    threads: int
    ours: float
    ours_best: float
    theirs: dict[str, float]
    """Medians by the peer's name and version."""
    error: float
    """Largest difference to ONNX Runtime over all outputs, relative to the largest element."""
    rounds: int
    remarks: list[str] = field(default_factory=list[str])

    @property
    def ratio(self) -> float:
        """Our time over that of the fastest peer."""
        return self.ours / min(self.theirs.values())


def build(path: Path, folder: Path, **options: Any) -> tuple[float, float]:
    """Compile a model to ``folder/package``; seconds in all, and those of the C compiler."""
    begin = time.perf_counter()
    package = compile_model(path, target="cpu", directory=folder / "package", **options)
    middle = time.perf_counter()
    assert isinstance(package.runner, CpuRunner)  # Loads, and so builds, the library.
    end = time.perf_counter()
    return end - begin, end - middle


def compare(
    path: Path,
    folder: Path,
    threads: int,
    rounds: int,
    seconds: float = 0.0,
    watch: Callable[[Executable, dict[str, Any]], None] | None = None,
) -> Times:
    """Time a package of ``build`` and the peers on its model, in turns.

    There are ``rounds`` at least, and more until ``seconds`` are over. On several threads every
    turn begins with a rest and a run that does not count: what others left spinning has ended
    then. ``watch`` gets the package and the inputs when the times are taken.
    """
    feeds = models.feeds(onnx.load(path))
    executable = Executable.load(folder / "package")
    runner = executable.runner
    assert isinstance(runner, CpuRunner)
    runner.threads = threads
    peers, remarks = available(path, feeds, threads)
    found = {info.name: np.empty(info.shape, info.dtype) for info in runner.outputs}

    def ours() -> None:
        runner.call("run", feeds, found)

    reference = peers[0].run()
    ours()
    error = max(
        float(np.abs(found[key] - array).max()) / float(np.abs(array).max())
        for key, array in reference.items()
    )
    runs: list[Callable[[], object]] = [ours, *(peer.run for peer in peers)]
    for run in runs:
        run()
    # On one thread the processor's time: a machine that others use hands it out in slices.
    clock = time.process_time if threads == 1 else time.perf_counter
    times: list[list[float]] = [[] for _ in runs]
    end = time.perf_counter() + seconds
    number = 0
    while number < rounds or (number < MOST_ROUNDS and time.perf_counter() < end):
        order = range(len(runs))
        for which in order if number % 2 else reversed(order):
            if threads > 1:
                time.sleep(REST)
                runs[which]()
            start = clock()
            runs[which]()
            times[which].append((clock() - start) * 1e3)
        number += 1
    if watch is not None:
        watch(executable, feeds)
    medians = [statistics.median(each) for each in times]
    theirs = {
        f"{peer.name} {peer.version}": median
        for peer, median in zip(peers, medians[1:], strict=True)
    }
    return Times(threads, medians[0], min(times[0]), theirs, error, number, remarks)

"""Ours and the peers in turns: each in a process of its own, the others at rest meanwhile."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks import models
from benchmarks.cpu.peers import OURS, PEERS, Arrays, Peer, installed, tilewright
from benchmarks.workers import Worker
from tilewright.compiler.api import compile as compile_model
from tilewright.targets.cpu.runner import CpuRunner

TURN = 0.01
"""Seconds of a turn, or one run if that is longer: far longer than reading the clock."""


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


class Contestant:
    """What a worker's process holds: one runtime, and the clock."""

    def __init__(
        self,
        load: Callable[[Path, Arrays, int], Peer],
        path: Path,
        feeds: Arrays,
        threads: int,
    ) -> None:
        self._peer = load(path, feeds, threads)
        # On one thread the processor's time: a machine that others use hands it out in slices.
        self._clock = time.process_time if threads == 1 else time.perf_counter

    def name(self) -> str:
        """With the version."""
        return self._peer.name

    def outputs(self) -> Arrays:
        """Of one run."""
        return self._peer.run()

    def turn(self, seconds: float) -> list[float]:
        """Milliseconds of each run: of one, or as many as begin within ``seconds``.

        A run in front does not count: it finds caches as others left them, and threads asleep.
        """
        run, clock = self._peer.run, self._clock
        run()
        times: list[float] = []
        end = time.perf_counter() + seconds
        while not times or time.perf_counter() < end:
            start = clock()
            run()
            times.append((clock() - start) * 1e3)
        return times


def compare(path: Path, folder: Path, threads: int, rounds: int, seconds: float = 0.0) -> Times:
    """Time a package of ``build`` and the peers on its model, in turns.

    There are ``rounds`` at least, and more until ``seconds`` are over. A round's time of a runtime
    is the median of its turn, and its time the median over the rounds.
    """
    feeds = models.feeds(onnx.load(path))
    found = [peer for peer in PEERS if installed(peer)]
    remarks = [f"{peer} is left out: it is not installed" for peer in PEERS if peer not in found]
    with ExitStack() as stack:
        workers = [
            stack.enter_context(Worker(name, threads, Contestant, load, where, feeds, threads))
            for name, load, where in (
                (OURS, tilewright, folder / "package"),
                *((peer, PEERS[peer], path) for peer in found),
            )
        ]
        ours, reference = (worker.call("outputs") for worker in workers[:2])
        error = max(
            float(np.abs(ours[key] - array).max()) / float(np.abs(array).max())
            for key, array in reference.items()
        )
        times: list[list[float]] = [[] for _ in workers]
        best: list[float] = []
        end = time.perf_counter() + seconds
        while len(times[0]) < rounds or time.perf_counter() < end:
            order = list(enumerate(workers))
            for which, worker in order if len(times[0]) % 2 else reversed(order):
                runs = worker.call("turn", TURN)
                times[which].append(statistics.median(runs))
                if which == 0:
                    best.append(min(runs))
        names = [worker.call("name") for worker in workers]
    medians = [statistics.median(each) for each in times]
    theirs = dict(zip(names[1:], medians[1:], strict=True))
    return Times(threads, medians[0], min(best), theirs, error, len(times[0]), remarks)

"""Objects in processes of their own: answers, errors, ends, and threads that do not rest."""

from __future__ import annotations

import os
import signal
import time

import pytest
from benchmarks.workers import Worker, WorkerError, settle

from benchmarks import workers


class Pool:
    """Its threads seem to work for some time after each call, by the clock that is asked.

    Real threads would do so only when the scheduler lets them, which on a busy machine it may not.
    """

    def __init__(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("no time runs backwards")
        self._seconds = seconds

    def cores(self) -> int:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1

    def call(self) -> tuple[int, float]:
        """The process, and when its threads come to rest."""
        end = time.monotonic() + self._seconds
        time.process_time = lambda: min(time.monotonic(), end)
        return os.getpid(), end

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def _gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def test_an_answer_waits_for_rest_and_nothing_is_left_behind() -> None:
    with Worker("pool", 1, Pool, 0.1) as worker:
        process, end = worker.call("call")
        assert time.monotonic() >= end, "the answer came before the threads were at rest"
        assert worker.call("cores") == 1
        with pytest.raises(WorkerError, match=r"(?s)pool, nothing: .*has no attribute 'nothing'"):
            worker.call("nothing")
        assert worker.call("call")[0] == process != os.getpid()
    assert _gone(process)


def test_a_dead_process_is_told() -> None:
    with (
        Worker("pool", 1, Pool, 0.0) as worker,
        pytest.raises(WorkerError, match=r"pool, die: its process ended with SIGKILL.*memory"),
    ):
        worker.call("die")
    with pytest.raises(WorkerError, match=r"(?s)pool, loading: .*no time runs backwards"):
        Worker("pool", 1, Pool, -1.0)


def test_threads_that_never_rest_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "PATIENCE", 0.02)
    monkeypatch.setattr(time, "process_time", time.monotonic)
    with pytest.raises(TimeoutError, match="still run"):
        settle()

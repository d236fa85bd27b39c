"""Objects in processes of their own, of which one works while all others are at rest.

A pool of threads may look for work long after a call has ended, and then takes a core from who is
measured next. So an answer is given only when the process's threads have come to rest.
"""

from __future__ import annotations

import signal
import time
import traceback
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.measuring import environment, pin

LOOK = 0.005
"""Seconds of one look at what a process does."""

QUIET = 0.1
"""Of a core: below that a process is at rest."""

PATIENCE = 5.0
"""Seconds until threads that never come to rest are an error."""

FAREWELL = 5.0
"""Seconds that a process has to end."""


class WorkerError(RuntimeError):
    """A call has failed in a worker, or its process has ended."""


class Worker:
    """``make(*arguments)`` in a fresh process on the first ``cores`` cores; to be used by ``with``.

    ``make`` is a module's function or class. The process ends with the block, and also when this
    one is killed: it sees its pipe closed.
    """

    def __init__(self, name: str, cores: int, make: Callable[..., Any], *arguments: Any) -> None:
        """Start it, and wait until ``make`` has returned; WorkerError if that fails."""
        self.name = name
        context = get_context("spawn")
        self._pipe, far = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(far, cores, make, arguments), daemon=True
        )
        with environment(cores):
            self._process.start()
        far.close()
        try:
            self._answer("loading")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, method: str, *arguments: Any) -> Any:
        """The result of a method, once the process is at rest; WorkerError if it fails."""
        try:
            self._pipe.send((method, arguments))
        except BrokenPipeError:
            raise self._died(method) from None
        return self._answer(method)

    def close(self) -> None:
        """End the process, at once if it does not by itself."""
        self._pipe.close()
        self._process.join(FAREWELL)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _answer(self, doing: str) -> Any:
        try:
            result, failure = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            raise self._died(doing) from None
        if failure:
            raise WorkerError(f"{self.name}, {doing}: {failure}")
        return result

    def _died(self, doing: str) -> WorkerError:
        self._process.join(FAREWELL)
        code = self._process.exitcode
        how = f"status {code}"
        if code is not None and code < 0:
            how = signal.Signals(-code).name
            if -code == signal.SIGKILL:
                how += ", which systems send where memory is short"
        return WorkerError(f"{self.name}, {doing}: its process ended with {how}")


def settle() -> None:
    """Return when the threads of this process have come to rest; TimeoutError if they do not."""
    end = time.perf_counter() + PATIENCE
    quiet = 0
    while quiet < 2:
        before = time.process_time()
        time.sleep(LOOK)
        quiet = quiet + 1 if time.process_time() - before < QUIET * LOOK else 0
        if time.perf_counter() > end:
            raise TimeoutError(f"threads still run {PATIENCE} s after the last call")


def _serve(
    pipe: Connection, cores: int, make: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    """What the process does: answers calls until the pipe is closed."""
    # Ctrl-C reaches all processes of a terminal: the first of them ends, and closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pin(cores)
    made: list[Any] = []
    try:
        _reply(pipe, lambda: made.append(make(*arguments)))
        while True:
            method, given = pipe.recv()
            _reply(pipe, partial(_call, made[0], method, given))
    except (EOFError, BrokenPipeError):
        return


def _call(made: Any, method: str, arguments: tuple[Any, ...]) -> Any:
    return getattr(made, method)(*arguments)


def _reply(pipe: Connection, function: Callable[[], Any]) -> None:
    try:
        result = function()
        settle()
    except Exception:  # Whatever it is, who asked is told.
        pipe.send((None, traceback.format_exc()))
    else:
        pipe.send((result, ""))

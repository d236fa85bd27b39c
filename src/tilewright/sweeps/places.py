"""Places that evaluate points of a sweep: this process, several processes, a Dask cluster.

A place takes points and gives rows as they are finished, in any order. What it raises ends the
sweep; rows that were given before are in the journal by then.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from queue import Empty, Queue
from typing import Any

from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.sweeps.evaluate import Study, evaluate
from tilewright.sweeps.rows import Row
from tilewright.sweeps.space import Point
from tilewright.system.extras import library

Finished = tuple[Point, Row]

Place = Callable[[Study, Sequence[Point]], Iterator[Finished]]
"""Evaluates points; raises TilewrightError (``sweep-worker``, ``sweep-cluster``)."""

AHEAD = 4
"""Points that each worker is given ahead."""

WINDOW = 1000
"""Points that a scheduler has at a time: enough for hundreds of workers, whose number may grow."""

DEATHS = 3
"""Worker processes that may die one after the other before a row is finished."""

GO_ON = "finished points are kept: the same command goes on from there"

PATIENCE = 1.0
"""Seconds between two looks at whether a scheduler is still there."""


@contextmanager
def place_of(on: str | None, jobs: int) -> Generator[Place]:
    """The place that options name, open inside ``with``."""
    if on is not None:
        with _dask(on, jobs) as place:
            yield place
    elif jobs > 1:
        with _processes(jobs) as place:
            yield place
    else:
        yield _here


def _here(study: Study, points: Sequence[Point]) -> Iterator[Finished]:
    """In this process, one after the other."""
    for point in points:
        yield point, row_of(evaluate(study, point))


def row_of(answer: Mapping[str, Any]) -> Row:
    """The row of what ``evaluate`` gave; raises TilewrightError where that is a refusal."""
    if "problems" in answer:
        raise TilewrightError([Problem(**problem) for problem in answer["problems"]])
    return Row.from_json(answer)


def _deaf() -> None:
    """Let ctrl-C be the business of the process that began the sweep."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def dask_setup(worker: Any) -> None:
    """Let ctrl-C be no business of a worker of a local cluster; Dask calls this in each."""
    del worker
    _deaf()


@contextmanager
def _processes(jobs: int) -> Generator[Place]:
    """On fresh processes; one that dies is replaced, unless others die at once, too."""
    pools: list[ProcessPoolExecutor] = []

    def begin() -> ProcessPoolExecutor:
        pool = ProcessPoolExecutor(jobs, get_context("spawn"), _deaf)
        pools.append(pool)
        return pool

    def place(study: Study, points: Sequence[Point]) -> Iterator[Finished]:
        left, deaths = dict.fromkeys(points), 0
        while left:
            pool = pools[-1] if pools else begin()
            try:
                for point, row in windowed(pool, study, list(left), jobs):
                    del left[point]
                    deaths = 0
                    yield point, row
            except BrokenProcessPool:
                pools.pop().shutdown(wait=False, cancel_futures=True)
                deaths += 1
                if deaths >= DEATHS:
                    reason = f"worker processes died {deaths} times without finishing a point"
                    help = f"give them more memory, or fewer --jobs; {GO_ON}"
                    raise refuse("sweep-worker", reason, "--jobs", help) from None

    try:
        yield place
    except BaseException:
        # Points under way are not waited for.
        for pool in pools:
            processes: dict[int, Any] = getattr(pool, "_processes", None) or {}
            for process in list(processes.values()):
                process.terminate()
        raise
    finally:
        for pool in pools:
            pool.shutdown(cancel_futures=True)


def windowed(
    pool: ProcessPoolExecutor, study: Study, points: Sequence[Point], jobs: int
) -> Iterator[Finished]:
    """Rows as they are finished, with few points ahead of the workers."""
    waiting = iter(points)
    running: dict[Future[dict[str, Any]], Point] = {}
    more = True
    while running or more:
        while more and len(running) < AHEAD * jobs:
            point = next(waiting, None)
            more = point is not None
            if point is not None:
                running[pool.submit(evaluate, study, point)] = point
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            yield running.pop(future), row_of(future.result())


@contextmanager
def _dask(on: str, jobs: int) -> Generator[Place]:
    """On the workers of a scheduler (``dask://HOST:PORT``), or of one begun here (``dask``)."""
    kind, separator, address = on.partition("://")
    if kind != "dask" or (separator and not address):
        raise refuse("sweep-cluster", f"{on!r} is no place for a sweep", "--on", "dask://HOST:PORT")
    distributed = library("distributed", "cluster", "sweep-extra", "sweeps on Dask")
    with _silent("distributed"), _client(distributed, address, jobs) as client:
        yield lambda study, points: _on_client(distributed, client, study, points)


@contextmanager
def _silent(package: str) -> Generator[None]:
    """Let a package log nothing below CRITICAL: what Dask says of lost workers and schedulers is
    told as one refusal. Its loggers each have a level of their own."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith(f"{package}.")]
    loggers = [logging.getLogger(name) for name in (package, *names)]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _client(distributed: Any, address: str, jobs: int) -> Generator[Any]:
    cluster = None
    try:
        if not address:
            cluster = distributed.LocalCluster(
                n_workers=jobs,
                threads_per_worker=1,
                dashboard_address=None,
                preload=[__name__],
                silence_logs=logging.CRITICAL,
            )
        target = f"tcp://{address}" if address and "://" not in address else address
        client = distributed.Client(cluster or target, timeout=10)
    except (OSError, ValueError, TimeoutError) as error:
        if cluster is not None:
            cluster.close()
        reason = f"no scheduler answers: {error}"
        help = "dask scheduler starts one, dask worker HOST:PORT each worker"
        raise refuse("sweep-cluster", reason, f"dask://{address}", help) from error
    try:
        yield client
    finally:
        client.close(timeout=2)
        if cluster is not None:
            cluster.close(timeout=5)


def _on_client(
    distributed: Any, client: Any, study: Study, points: Sequence[Point]
) -> Iterator[Finished]:
    """Rows as workers finish them; a scheduler that is lost ends the sweep."""
    finished: Queue[Any] = Queue()
    waiting = iter(list(points))
    running: dict[str, tuple[Any, Point]] = {}
    more = True
    while running or more:
        while more and len(running) < WINDOW:
            point = next(waiting, None)
            more = point is not None
            if point is not None:
                future = client.submit(evaluate, study, point, pure=False)
                running[future.key] = future, point
                future.add_done_callback(finished.put)
        try:
            future = finished.get(timeout=PATIENCE)
        except Empty:
            if client.status != "running":
                raise _lost() from None
            continue
        future, point = running.pop(future.key)
        yield point, row_of(_result(distributed, future, point))


def _result(distributed: Any, future: Any, point: Point) -> dict[str, Any]:
    try:
        return future.result(timeout=10)
    except distributed.KilledWorker:
        reason = "every worker that planned this point died"
        help = f"give workers more memory; {GO_ON}"
        raise refuse("sweep-worker", reason, str(dict(point.values)), help) from None
    except (OSError, TimeoutError, distributed.CancelledError) as error:
        # A scheduler that is gone takes its futures with it.
        raise _lost() from error
    except ImportError as error:
        reason = f"a worker lacks what a sweep needs: {error}"
        raise refuse("sweep-worker", reason, "--on", "install Tilewright there, too") from error


def _lost() -> TilewrightError:
    return refuse("sweep-cluster", "the scheduler is lost", "--on", f"start it anew; {GO_ON}")

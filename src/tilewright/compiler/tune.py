"""Improving a model's schedules by measuring them, within a time budget.

Kernels that are alike are measured once. Each round measures the next batch of the kernel that has
most to gain: predicted seconds of all its occurrences, shared among the batches it has had. All
measurements go to a database at once, so an interrupted search goes on where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

from tilewright.compiler.pipeline import Model, Options, Progress, resolve, run_pipeline
from tilewright.errors import refuse
from tilewright.machine import Machine
from tilewright.planning.canonical import canonical
from tilewright.planning.domain import Kernel
from tilewright.planning.planners.measured import batches, candidates
from tilewright.planning.planners.measurements import Measure, Measurements
from tilewright.planning.schedule import Schedule


@dataclass
class Tuned:
    """The result of tuning one kernel: its fastest measured schedule."""

    kernel: Kernel
    count: int
    """Kernels of the network that are like this one."""
    symbols: list[str]
    model_seconds: float = float("inf")
    """Measured seconds of the schedule that the cost model ranks first."""
    best_seconds: float = float("inf")
    """Seconds of the fastest measured schedule; infinite, as the model's, if there is none."""
    best: Schedule | None = None
    measured: int = 0
    space: int = 0
    """Number of schedules that there are."""
    rest: Iterator[tuple[Schedule, ...]] = field(default_factory=lambda: iter(()))
    """Batches that are still to be measured."""
    weight: float = 0.0
    """Predicted cycles of all the kernels that are like this one."""
    batches: int = 0
    """Batches that were started."""

    def to_json(self) -> dict[str, Any]:
        """A row of ``tilewright tune --json``; null where nothing was measured."""
        return {
            "kernels": self.symbols,
            "nodes": list(self.kernel.nodes),
            "model_seconds": _finite(self.model_seconds),
            "best_seconds": _finite(self.best_seconds),
            "measured": self.measured,
            "space": self.space,
            "schedule": None if self.best is None else str(self.best),
        }


def _finite(seconds: float) -> float | None:
    return None if seconds == float("inf") else seconds


def tune(
    model: Model,
    target: str = "cpu",
    *,
    database: str | Path,
    seconds: float = 300.0,
    values: Mapping[str, float] | None = None,
    exact_convolution: bool = False,
    executor: Executor | None = None,
    jobs: int = 1,
    **options: Unpack[Options],
) -> list[Tuned]:
    """Measure schedules of a model's kernels for about ``seconds``; worst kernels first.

    Measurements are kept in ``database``, where ``compile(..., database=...)`` finds them.
    ``executor`` runs them elsewhere, ``jobs`` at a time: processes of this machine, or workers of a
    cluster whose processors are like this one. Raises TilewrightError; interrupting it with
    KeyboardInterrupt loses nothing that was measured.
    """
    end = time.monotonic() + seconds
    chosen, machine = resolve(target, None, values)
    if exact_convolution:
        machine = machine.exact()
    measure = chosen.measurer()
    if measure is None:
        raise refuse("target-measure", f"target {target} does not run on this computer")
    state = run_pipeline(model, chosen, machine, until="plan", **options)
    kernels = [(item.kernel, state.plans.get(item.kernel.symbol)) for item in state.kernels]
    with Measurements(database, chosen.built()) as known:
        rows: dict[Kernel, Tuned] = {}
        for kernel, plan in kernels:
            if plan is None:
                continue
            form, _ = canonical(kernel)
            if form in rows:
                rows[form].symbols.append(kernel.symbol)
                rows[form].count += 1
            else:
                schedules = candidates(kernel, machine)
                rows[form] = Tuned(kernel, 1, [kernel.symbol], space=len(schedules))
                rows[form].rest = batches(schedules, known.of(kernel, machine))
            rows[form].weight += plan.predicted_cycles
        _search(list(rows.values()), machine, measure, known, end, executor, jobs, state.progress)
        for row in rows.values():
            _summarise(row, machine, known)
    return sorted(rows.values(), key=lambda row: (-row.weight, row.symbols))


def _search(
    rows: list[Tuned],
    machine: Machine,
    measure: Measure,
    known: Measurements,
    end: float,
    executor: Executor | None,
    jobs: int,
    progress: Progress,
) -> None:
    """Measure until the time is over or the space is."""
    start = time.monotonic()
    running: dict[Future[list[float]], tuple[Tuned, tuple[Schedule, ...]]] = {}
    waiting = list(rows)

    def note(row: Tuned, batch: tuple[Schedule, ...], seconds: list[float]) -> None:
        known.add(row.kernel, machine, dict(zip(batch, seconds, strict=True)))
        progress("tune", int(time.monotonic() - start), max(int(end - start), 1))

    try:
        while time.monotonic() < end and (waiting or running):
            while waiting and (executor is None or len(running) < jobs):
                row = max(waiting, key=lambda candidate: candidate.weight / (1 + candidate.batches))
                batch = next(row.rest, None)
                if batch is None:
                    waiting.remove(row)
                    continue
                row.batches += 1
                if executor is None:
                    note(row, batch, measure(row.kernel, machine, batch))
                    break
                running[executor.submit(measure, row.kernel, machine, batch)] = (row, batch)
            if running:
                done, _ = wait(running, max(end - time.monotonic(), 0.0), FIRST_COMPLETED)
                for future in done:
                    note(*running.pop(future), future.result())
    finally:
        for future in running:
            future.cancel()


def _summarise(row: Tuned, machine: Machine, known: Measurements) -> None:
    have = known.of(row.kernel, machine)
    row.measured = len(have)
    first = candidates(row.kernel, machine, 1)
    if first:
        row.model_seconds = have.get(first[0], float("inf"))
    if have:
        row.best = min(have, key=lambda schedule: (have[schedule], str(schedule)))
        row.best_seconds = have[row.best]

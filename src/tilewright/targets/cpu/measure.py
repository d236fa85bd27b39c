"""Seconds that schedules of a kernel take on the processor at hand: built, run, timed.

Candidates of one kernel are built into one library and timed in turns, so that a processor whose
speed drifts is as kind to one as to another; the least time of all turns counts. What proves slow
is not run again: its time does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from tilewright.machine import Machine
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Schedule
from tilewright.targets.cpu.candidates import Candidates, Sources, built

TURNS = 5
"""Times that each candidate is measured."""

TURN_SECONDS = 2e-3
"""Least length of a turn, so that reading the clock does not count."""

SLOW = 1.3
"""Candidates that take this many times as long as the best in two turns are not measured again."""


def measure(
    kernel: Kernel,
    machine: Machine,
    schedules: Sequence[Schedule],
    *,
    turns: int = TURNS,
    turn_seconds: float = TURN_SECONDS,
) -> list[float]:
    """Seconds that one core takes for each schedule; infinite for one that cannot be built.

    ``machine`` is one of machine.py's. A function of plain values, so that executors can run it in
    other processes. Raises TilewrightError when the compiler fails.
    """
    sources = Sources.of(kernel, machine, schedules)
    numbers = sources.distinct
    if not numbers:
        return [inf] * len(schedules)
    with built(sources, numbers) as candidates:
        times = in_turns(candidates, numbers, turns, turn_seconds)
    by_text = {_text(sources, number): took for number, took in times.items()}
    return [inf if source is None else by_text[source.text] for source in sources.kernels]


def _text(sources: Sources, number: int) -> str:
    source = sources.kernels[number]
    assert source is not None
    return source.text


def in_turns(
    candidates: Candidates, numbers: Sequence[int], turns: int, turn_seconds: float
) -> dict[int, float]:
    """Least seconds of each candidate; the first turn is one run, which warms up.

    In every turn a run warms up: whoever came before left other data in the caches. What is slow is
    run in two turns, as one alone may be disturbed.
    """
    times = {number: candidates.seconds(number) for number in numbers}
    for turn in range(1, turns):
        limit = SLOW * min(times.values())
        for number in numbers:
            if times[number] > limit and turn > 2:
                continue
            repeats = max(1, int(turn_seconds / max(times[number], 1e-9)))
            candidates.seconds(number)
            took = candidates.seconds(number, repeats)
            times[number] = min(times[number], took) if turn > 1 else took
    return times

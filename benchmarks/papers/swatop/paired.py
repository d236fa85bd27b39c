"""The pick beside the best: candidates re-timed in alternation, so that noise is not read as loss.

The least of hundreds of times that were measured once is partly luck. So the ten that were fastest
in the first pass and the picks are run again, one after the other, round after round, in turns so
short that other programs leave some alone, each after a run that warms up. The least times of the
even rounds say which is the best; those of the odd ones, what the pick loses against it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from random import Random

from benchmarks.papers.swatop.brute import LONG_SECONDS, Store, digests
from benchmarks.papers.swatop.spaces import Explored, Pick
from tilewright.machine import Machine
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Schedule
from tilewright.targets.cpu.candidates import Sources, built

BEST = 10
"""Candidates that are timed again, beside the pick."""

NEAR = 1.15
"""What took so many times as long as the best in the first pass is not timed again."""

ROUND_SECONDS = 1e-3
"""Least length of a candidate's run in a round."""

TOTAL_SECONDS = 0.6
"""A candidate's runs that count take about so long at most, if that is enough for ``LEAST``."""

LEAST, MOST = 16, 60
"""Rounds."""


@dataclass(frozen=True)
class Entry:
    """A schedule of one of the shape's kernels."""

    method: str
    kernel: Kernel
    schedule: Schedule

    @classmethod
    def of(cls, explored: Explored, pick: Pick) -> Entry:
        """A pick as a schedule of the space that it is from."""
        kernel = next(s.kernel for s in explored.spaces if s.method == pick.method)
        return cls(pick.method, kernel, pick.schedule)


Rounds = Sequence[Sequence[float]]
"""Seconds by round and entry."""


def rounds_of(name: str, entries: Sequence[Entry], machine: Machine, store: Store) -> Rounds:
    """Seconds of every entry in every round; measured unless the store has just these."""
    kernels = list(dict.fromkeys(entry.kernel for entry in entries))
    sources = [
        Sources.of(kernel, machine, [entry.schedule for entry in entries if entry.kernel == kernel])
        for kernel in kernels
    ]
    taken = [0] * len(kernels)
    places: list[tuple[int, int]] = []
    for entry in entries:
        which = kernels.index(entry.kernel)
        places.append((which, taken[which]))
        taken[which] += 1
    texts = [digests(sources[which])[number] for which, number in places]
    key = " ".join(str(text) for text in texts)
    rows: Rounds = store.rounds(name, key)
    if rows:
        return rows
    with ExitStack() as stack:
        # Entries of one kernel share its tensors: where these lie favours none of them.
        made = [
            stack.enter_context(built(source, range(count)))
            for source, count in zip(sources, taken, strict=True)
        ]
        rows = _run([partial(made[which].seconds, number) for which, number in places])
    store.keep_rounds(name, key, rows)
    return rows


def _run(made: Sequence[Callable[[int], float]]) -> Rounds:
    first = [seconds(1) for seconds in made]
    repeats = [max(1, int(ROUND_SECONDS / max(took, 1e-9))) for took in first]
    longest = max(took * count for took, count in zip(first, repeats, strict=True))
    count = max(LEAST, min(MOST, int(TOTAL_SECONDS / longest)))
    rows: list[list[float]] = []
    random = Random(count)
    for _ in range(count):
        row = [0.0] * len(made)
        # Whoever came before leaves other caches behind, and scratch that it did not use has left
        # them: the order changes, and all warm up but those that are long enough to do so alone.
        for index in random.sample(range(len(made)), len(made)):
            if first[index] <= LONG_SECONDS:
                made[index](1)
            row[index] = made[index](repeats[index])
        rows.append(row)
    return rows


def best_of(rounds: Rounds, among: Sequence[int]) -> int:
    """The entry that is fastest in the even rounds."""
    return min(among, key=lambda entry: (min(row[entry] for row in rounds[::2]), entry))


def loss(rounds: Rounds, pick: int, best: int) -> float:
    """What the pick takes longer than the best in the odd rounds; at least 0."""
    least = [min(row[entry] for row in rounds[1::2]) for entry in (pick, best)]
    return max(0.0, least[0] / least[1] - 1.0)

"""Offsets in one arena for buffers that live over intervals of steps (dynamic storage allocation).

The problem is NP-hard (Garey and Johnson, SR2), so several greedy heuristics run and the best
result is kept. Everything is deterministic: ties are broken by the order in which buffers come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, product
from typing import NamedTuple

Order = Callable[["Buffer"], tuple[int, ...]]


@dataclass(frozen=True)
class Buffer:
    """A run of ``size`` bytes that is live from step ``first`` to step ``last``, both included."""

    name: str
    size: int
    first: int
    last: int

    def overlaps(self, other: Buffer) -> bool:
        """Whether the two are live at a common step."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Allocation:
    """Where each buffer lies: ``offsets[i]`` is that of the i-th buffer, in bytes."""

    offsets: tuple[int, ...]
    peak: int
    """Bytes of the arena."""
    bound: int
    """Greatest sum of live bytes at one step: no allocation needs less."""
    busiest: int
    """The first step at which ``bound`` bytes are live."""
    heuristic: str
    """The heuristic that found the offsets."""
    optimal: bool
    """Whether it is known that no allocation needs less."""


ORDERS: tuple[tuple[str, Order], ...] = (
    ("size", lambda b: (-b.size, b.first)),
    ("size, then lifetime", lambda b: (-b.size, b.first - b.last, b.first)),
    ("lifetime", lambda b: (b.first - b.last, -b.size)),
    ("area", lambda b: ((b.first - b.last - 1) * b.size, b.first)),
    ("birth", lambda b: (b.first, -b.size)),
    ("death", lambda b: (-b.last, -b.size)),
)
"""The orders in which buffers are placed, each with its name; smaller keys come first."""


@dataclass
class _Problem:
    """Buffers with rounded sizes, and for each the others that are live when it is."""

    buffers: Sequence[Buffer]
    alignment: int
    sizes: list[int] = field(init=False)
    neighbours: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.sizes = [_round_up(buffer.size, self.alignment) for buffer in self.buffers]
        self.neighbours = [[] for _ in self.buffers]
        # A sweep over the birth steps meets every overlapping pair exactly once.
        live: list[int] = []
        for i in sorted(range(len(self.buffers)), key=lambda i: (self.buffers[i].first, i)):
            live = [j for j in live if self.buffers[j].last >= self.buffers[i].first]
            for j in live:
                self.neighbours[i].append(j)
                self.neighbours[j].append(i)
            live.append(i)

    def place(self, order: Iterable[int], best_fit: bool) -> tuple[list[int], int]:
        """Offsets and peak when buffers are placed one after the other in ``order``."""
        offsets = [-1] * len(self.buffers)
        peak = 0
        for i in order:
            taken = sorted(
                (offsets[j], offsets[j] + self.sizes[j])
                for j in self.neighbours[i]
                if offsets[j] >= 0
            )
            offsets[i] = _gap(taken, self.sizes[i], best_fit)
            peak = max(peak, offsets[i] + self.sizes[i])
        return offsets, peak


class _Attempt(NamedTuple):
    """One placing of all buffers: the order and fit that gave it, offsets and peak."""

    peak: int
    offsets: list[int]
    heuristic: str
    order: list[int]
    best_fit: bool


def allocate(buffers: Sequence[Buffer], *, alignment: int = 64, rounds: int = 200) -> Allocation:
    """Place buffers so that no two that are live together overlap.

    Every offset is a multiple of ``alignment`` and the lengths are rounded up to it, so the bound
    counts rounded sizes. ``rounds`` limits the search that follows when no heuristic reaches the
    bound: the buffers that reach the peak are placed earlier, and all are placed again.
    """
    bound, busiest = _bound(buffers, alignment)
    if not buffers:
        return Allocation((), 0, 0, 0, "none", True)
    problem = _Problem(buffers, alignment)
    best: _Attempt | None = None
    for attempt in _attempts(problem):
        if best is None or attempt.peak < best.peak:
            best = attempt
        if attempt.peak == bound:
            break
    assert best is not None
    if best.peak > bound:
        best = _promote(problem, best, bound, rounds)
    offsets, peak = tuple(best.offsets), best.peak
    return Allocation(offsets, peak, bound, busiest, best.heuristic, peak == bound)


def heuristic_peaks(buffers: Sequence[Buffer], *, alignment: int = 64) -> dict[str, int]:
    """The peak that each heuristic alone reaches, by name; without the search that follows."""
    return {a.heuristic: a.peak for a in _attempts(_Problem(buffers, alignment))}


def _attempts(problem: _Problem) -> Iterator[_Attempt]:
    """Every order with first and with best fit."""
    buffers = problem.buffers
    for (name, key), best_fit in product(ORDERS, (False, True)):
        order = sorted(range(len(buffers)), key=lambda i, key=key: (key(buffers[i]), i))
        offsets, peak = problem.place(order, best_fit)
        fit = "best" if best_fit else "first"
        yield _Attempt(peak, offsets, f"by {name}, {fit} fit", order, best_fit)


def _promote(problem: _Problem, best: _Attempt, bound: int, rounds: int) -> _Attempt:
    """Place the buffers at the peak earlier, again and again, until nothing new is found."""
    offsets, order = best.offsets, best.order
    name = f"{best.heuristic}, improved"
    seen = {tuple(order)}
    for _ in range(rounds):
        peak = max(o + s for o, s in zip(offsets, problem.sizes, strict=True))
        at_peak = [i for i in order if offsets[i] + problem.sizes[i] == peak]
        rest = [i for i in order if i not in at_peak]
        # Half-way to the front: a jump to the very front would forget what was good.
        position = min(order.index(i) for i in at_peak) // 2
        order = [*rest[:position], *at_peak, *rest[position:]]
        if tuple(order) in seen:
            break
        seen.add(tuple(order))
        offsets, peak = problem.place(order, best.best_fit)
        if peak < best.peak:
            best = _Attempt(peak, offsets, name, order, best.best_fit)
        if peak == bound:
            break
    return best


def _gap(taken: Sequence[tuple[int, int]], size: int, best_fit: bool) -> int:
    """Offset of the lowest (or tightest) gap of ``size`` between the sorted runs ``taken``."""
    end, chosen, slack = 0, -1, -1
    for start, stop in taken:
        room = start - end
        if room >= size and (chosen < 0 or room < slack):
            if not best_fit:
                return end
            chosen, slack = end, room
        end = max(end, stop)
    return end if chosen < 0 else chosen


def _bound(buffers: Sequence[Buffer], alignment: int) -> tuple[int, int]:
    """Greatest sum of live bytes over the steps, and the first step that has it."""
    changes: dict[int, int] = {}
    for buffer in buffers:
        size = _round_up(buffer.size, alignment)
        changes[buffer.first] = changes.get(buffer.first, 0) + size
        changes[buffer.last + 1] = changes.get(buffer.last + 1, 0) - size
    steps = sorted(changes)
    live = list(accumulate(changes[step] for step in steps))
    bound = max(live, default=0)
    return (bound, steps[live.index(bound)]) if steps else (0, 0)


def _round_up(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment

"""Offsets in one memory for buffers that live over intervals of steps (dynamic storage allocation).

The problem is NP-hard (Garey and Johnson, SR2), so several greedy heuristics run and the best
result is kept. Everything is deterministic: ties are broken by the order in which buffers come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import NamedTuple

from tilewright.memory.problem import Allocation, Buffer, Problem, lowest_gap, tightest_gap

Order = Callable[[Buffer], tuple[int, ...]]

ORDERS: tuple[tuple[str, Order], ...] = (
    ("size", lambda b: (-b.size, b.first)),
    ("size, then lifetime", lambda b: (-b.size, b.first - b.last, b.first)),
    ("lifetime", lambda b: (b.first - b.last, -b.size)),
    ("area", lambda b: ((b.first - b.last - 1) * b.size, b.first)),
    ("birth", lambda b: (b.first, -b.size)),
    ("death", lambda b: (-b.last, -b.size)),
)
"""The orders in which buffers are placed, each with its name; smaller keys come first."""


class _Attempt(NamedTuple):
    """One placing of all buffers: the order and fit that gave it, offsets and peak."""

    peak: int
    offsets: list[int]
    heuristic: str
    order: list[int]
    best_fit: bool


def place(problem: Problem, order: Iterable[int], *, best_fit: bool = False) -> list[int]:
    """Offsets when buffers are placed one after the other in ``order``, first fit or best fit.

    Buffers that have an address lie there from the beginning.
    """
    buffers, sizes = problem.buffers, problem.sizes
    offsets = [-1 if buffer.address is None else buffer.address for buffer in buffers]
    for i in order:
        if buffers[i].address is None:
            taken = [
                _rounded(offsets[j], sizes[j], problem)
                for j in problem.neighbours[i]
                if offsets[j] >= 0
            ]
            fit = tightest_gap if best_fit else lowest_gap
            offsets[i] = fit(taken, sizes[i])
    return offsets


def _rounded(offset: int, size: int, problem: Problem) -> tuple[int, int]:
    """A range that is taken, up to where the next aligned buffer can begin."""
    return offset, offset + size + -(offset + size) % problem.alignment


def allocate(problem: Problem, *, rounds: int = 200) -> Allocation:
    """Place buffers so that no two that are live together overlap.

    ``rounds`` limits the search that follows when no heuristic reaches the bound: the buffers that
    reach the peak are placed earlier, and all are placed again.
    """
    bound, busiest = problem.bound
    if not problem.buffers:
        return Allocation((), 0, 0, 0, "none", True)
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


def heuristic_peaks(problem: Problem) -> dict[str, int]:
    """The peak that each heuristic alone reaches, by name; without the search that follows."""
    return {attempt.heuristic: attempt.peak for attempt in _attempts(problem)}


def _attempts(problem: Problem) -> Iterator[_Attempt]:
    """Every order with first and with best fit."""
    buffers = problem.buffers
    for (name, key), best_fit in product(ORDERS, (False, True)):
        order = sorted(range(len(buffers)), key=lambda i, key=key: (key(buffers[i]), i))
        offsets = place(problem, order, best_fit=best_fit)
        fit = "best" if best_fit else "first"
        name = f"by {name}, {fit} fit"
        yield _Attempt(problem.peak(offsets), offsets, name, order, best_fit)


def _promote(problem: Problem, best: _Attempt, bound: int, rounds: int) -> _Attempt:
    """Place the buffers at the peak earlier, again and again, until nothing new is found."""
    offsets, order = best.offsets, best.order
    name = f"{best.heuristic}, improved"
    seen = {tuple(order)}
    for _ in range(rounds):
        peak = problem.peak(offsets)
        at_peak = [i for i in order if offsets[i] + problem.sizes[i] == peak]
        rest = [i for i in order if i not in at_peak]
        # Half-way to the front: a jump to the very front would forget what was good.
        position = min(order.index(i) for i in at_peak) // 2
        order = [*rest[:position], *at_peak, *rest[position:]]
        if tuple(order) in seen:
            break
        seen.add(tuple(order))
        offsets = place(problem, order, best_fit=best.best_fit)
        peak = problem.peak(offsets)
        if peak < best.peak:
            best = _Attempt(peak, offsets, name, order, best.best_fit)
        if peak == bound:
            break
    return best

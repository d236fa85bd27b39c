"""Offsets with the least peak: branch and bound, from the bottom up.

A search (search.py) says whether buffers fit under a capacity, or gives up. The first capacity
tried is the most that is live at one step, or that of the memory if it has one; between the least
one that is left and the best peak found the next is the middle one. Each is tried in two ways in
turn (search.py) and in many orders of placing the buffers, at first with few nodes each and then
with more: where one order is led astray another goes straight. Problems of accelerators' on-chip
memories are full to the last byte and of this kind (Moffitt, MiniMalloc, ASPLOS 2023).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilewright.memory.alignment import ceil_div
from tilewright.memory.heuristics import allocate
from tilewright.memory.problem import RULES, UPWARDS, Allocation, Problem

NODES = 200_000
"""Placements that are tried by default: a few seconds."""

SHARE = 8_000
"""Nodes of each of the two ways in the first round; each later round has twice as many."""

ATTEMPT = 2_000
"""Nodes of each of the first attempts at valleys; each later series has twice as many."""

SERIES = 256
"""Attempts at valleys before more nodes are spent on each."""

REMEMBERED = 1 << 16
"""Sub-problems that do not fit and are remembered."""

_Ints = NDArray[np.int64]


@dataclass(frozen=True)
class _Part:
    """Buffers that are linked by common steps, in units of the alignment."""

    members: list[int]
    size: _Ints
    first: _Ints
    """First section of each buffer: only steps whose set of live buffers is no part of another's
    are sections."""
    last: _Ints
    length: _Ints
    """Steps of each buffer's life."""
    demand: _Ints
    """Sum of live sizes in each section."""

    @property
    def bound(self) -> int:
        """The most that is live at one step."""
        return int(self.demand.max())


@dataclass
class _Budget:
    """Placements that may still be tried."""

    left: int


class _OutOfBudget(Exception):
    pass


def allocate_exactly(problem: Problem, *, nodes: int = NODES) -> Allocation:
    """Place buffers with the least peak; ``optimal`` says whether that is proven.

    In a problem with a capacity any peak within it will do. ``nodes`` bounds the placements tried,
    so the work is bounded and the result always the same; when they run out the best allocation
    found so far is returned, the heuristics' at worst. Buffers that have an address are placed by
    the heuristics alone.
    """
    return improve(problem, allocate(problem), nodes)


def improve(
    problem: Problem, best: Allocation, nodes: int = NODES, rules: Sequence[int] = RULES
) -> Allocation:
    """The search of ``allocate_exactly`` from a given allocation, by some of ``RULES``."""
    fixed = any(buffer.address is not None for buffer in problem.buffers)
    if best.optimal or fixed or (problem.capacity and best.peak <= problem.capacity):
        return best
    budget = _Budget(nodes)
    unit = problem.alignment
    offsets = [at if size else 0 for at, size in zip(best.offsets, problem.sizes, strict=True)]
    proven = True
    parts = _parts(problem)
    # A part need not be lower than the bound of another, which is apart from it in time.
    bound = max((part.bound for part in parts), default=0)
    goal = max(bound, (problem.capacity or 0) // unit)
    for part in parts:
        start = [offsets[i] // unit for i in part.members]
        part_offsets, least = _solve(part, start, goal, budget, rules)
        proven = proven and (least or _peak(part, part_offsets) <= bound)
        for index, offset in zip(part.members, part_offsets, strict=True):
            offsets[index] = offset * unit
    peak = problem.peak(offsets)
    proven = peak == best.bound or (proven and goal == bound)
    name = "branch and bound" if proven or peak < best.peak else best.heuristic
    return replace(
        best,
        offsets=tuple(offsets),
        peak=peak,
        heuristic=name,
        optimal=proven,
        nodes=nodes - budget.left,
    )


def _parts(problem: Problem) -> list[_Part]:
    """Buffers with bytes, split where no buffer is live across."""
    buffers = problem.buffers
    order = sorted(
        (i for i, b in enumerate(buffers) if b.size), key=lambda i: (buffers[i].first, i)
    )
    groups: list[list[int]] = []
    end = 0
    for i in order:
        if not groups or buffers[i].first > end:
            groups.append([])
            end = buffers[i].last
        groups[-1].append(i)
        end = max(end, buffers[i].last)
    return [_part(problem, sorted(group)) for group in groups]


def _part(problem: Problem, members: list[int]) -> _Part:
    first = np.array([problem.buffers[i].first for i in members])
    last = np.array([problem.buffers[i].last for i in members])
    size = np.array([ceil_div(problem.sizes[i], problem.alignment) for i in members], np.int64)
    # A step is of interest if some buffer was born since the last end: before the next end.
    births, deaths = set(first.tolist()), set(last.tolist())
    steps: list[int] = []
    fresh = False
    for step in sorted(births | deaths):
        fresh = fresh or step in births
        if fresh and step in deaths:
            steps.append(step)
            fresh = False
    begin = np.searchsorted(steps, first).astype(np.int64)
    end = np.searchsorted(steps, last, side="right").astype(np.int64) - 1
    live = np.zeros(len(steps) + 1, np.int64)
    np.add.at(live, begin, size)
    np.subtract.at(live, end + 1, size)
    length = (last - first + 1).astype(np.int64)
    return _Part(members, size, begin, end, length, live.cumsum()[:-1])


def _solve(
    part: _Part, offsets: list[int], goal: int, budget: _Budget, rules: Sequence[int]
) -> tuple[list[int], bool]:
    """The best offsets that the budget allows, from given ones, and whether they are proven.

    ``goal``, at least the part's bound, is as low as they need be.
    """
    best, peak = offsets, _peak(part, offsets)
    # Nothing fits under ``low``; up to ``tried`` nothing was found.
    low = goal
    tried = low - 1
    capacity = low
    while tried < peak - 1 and budget.left > 0:
        try:
            placed = _fit(part, capacity, budget, rules)
        except _OutOfBudget:
            tried = capacity
        else:
            if placed is None:
                low, tried = capacity + 1, capacity
            else:
                best, peak = placed, _peak(part, placed)
        capacity = (tried + peak) // 2
    return best, peak <= low


def _peak(part: _Part, offsets: Sequence[int]) -> int:
    return int((np.array(offsets, np.int64) + part.size).max())


class _Attempt(NamedTuple):
    """A search: a rule, keys for it, an order of the buffers, a limit of nodes."""

    rule: int
    order: _Ints
    keys: _Ints
    nodes: int


def _attempts(part: _Part, rules: Sequence[int]) -> Iterator[_Attempt]:
    """Without an end: both ways in turn, in each round with twice as many nodes."""
    length, area, demand = part.length, part.length * part.size, np.full(len(part.size), -1)
    upwards = ((length, area, demand), (demand, area, length), (demand, length, area))
    given, keys = np.arange(len(part.size)), [np.stack(kind) for kind in upwards]
    in_valleys = [rule for rule in rules if rule != UPWARDS]
    valleys = ((rule, order) for order in _orders(part) for rule in in_valleys)
    tried = 0
    for number in count():
        share = SHARE << min(number, 40)
        left = share if in_valleys else 0
        while left > 0:
            rule, order = next(valleys)
            nodes = ATTEMPT << min(tried // SERIES, 40)
            yield _Attempt(rule, order, keys[0], nodes)
            left -= nodes
            tried += 1
        if UPWARDS in rules:
            for kind in keys:
                yield _Attempt(UPWARDS, given, kind, share // len(keys))


def _orders(part: _Part) -> Iterator[_Ints]:
    """Orders of trying: by width, size, area, birth, death, crowding; then mixtures of them."""
    width = np.log(part.last - part.first + 1.0)
    size = np.log(part.size + 1.0)
    begin, end = part.first / len(part.demand), part.last / len(part.demand)
    crowd = np.array(
        [part.demand[a : b + 1].max() for a, b in zip(part.first, part.last, strict=True)]
    )
    crowd = crowd / part.bound
    plain = (width, size, width + size, -begin, end, crowd)
    for key in plain:
        yield np.argsort(-key, kind="stable").astype(np.int64)
    for seed in count():
        random = np.random.RandomState(seed)
        scale = np.array([1.0, 1.0, 1.5, 1.5, 6.0 * (seed % 2)])
        weights = random.randn(5) * scale
        key = weights @ np.stack([width, size, begin, end, crowd])
        yield np.argsort(-key - 0.25 * random.randn(len(key)), kind="stable").astype(np.int64)


def _fit(part: _Part, capacity: int, budget: _Budget, rules: Sequence[int]) -> list[int] | None:
    """Offsets within a capacity, or None if there are none; raises _OutOfBudget.

    Takes up to half of the budget.
    """
    from tilewright.memory.search import DOES_NOT_FIT, FITS, fill

    buffers = len(part.members)
    allowed = max(budget.left // 2, 1)
    used = 0
    hashes = np.random.RandomState(0).randint(1, 1 << 62, buffers).astype(np.uint64)
    failed = np.zeros(REMEMBERED, np.uint64)
    members = np.empty((buffers + 2) * (buffers + 2), np.int64)
    sections = np.empty((4, len(part.demand)), np.int64)
    for attempt in _attempts(part, rules):
        members[:buffers] = attempt.order
        nodes = np.array([0, min(attempt.nodes, allowed - used), 0], np.int64)
        offset = np.zeros(buffers, np.int64)
        verdict = fill(
            0, buffers, buffers, -1, capacity, attempt.rule, attempt.keys, part.first, part.last,
            part.size, hashes, np.zeros(buffers, np.int64), np.zeros(buffers, np.int64), offset,
            part.demand.copy(), members, failed, sections, nodes,
        )  # fmt: skip
        used += int(nodes[0])
        budget.left -= int(nodes[0])
        if verdict == FITS:
            return [int(at) for at in offset]
        if verdict == DOES_NOT_FIT:
            return None
        if used >= allowed:
            raise _OutOfBudget
    raise AssertionError  # there is always a next attempt

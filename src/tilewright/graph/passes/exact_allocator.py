"""Offsets with the least peak: branch and bound over the order of offsets.

Among the allocations that fit a capacity take one whose offsets sum to the least. In it every
buffer lies at 0 or right on top of one that is live with it (else it could sink), and no buffer
lies so high that another one above its lower edge would fit wholly below it (else that one could
sink). So it is found by placing buffers in the order of their offsets, each on the skyline of what
is placed: only the next buffer is chosen. A branch dies when some buffer no longer fits, or when
what is left at some step does not fit above the lowest place that is left there.

The same two observations lead the search of MiniMalloc (Moffitt, ASPLOS 2023, sections 4 and 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tilewright.graph.passes.allocator import Allocation, Buffer, allocate

NODES = 20_000
"""Placements that are tried by default: a few seconds."""

_FAR = np.int64(1) << 62

_Ints = NDArray[np.int64]


@dataclass(frozen=True)
class _Part:
    """Buffers that are linked by common steps, in units of the alignment."""

    members: list[int]
    sizes: _Ints
    live: NDArray[np.bool_]
    """[steps, buffers]: only steps whose set of live buffers is no part of another's."""
    meets: NDArray[np.bool_]
    """[buffers, buffers]: live at a common step."""


@dataclass
class _Budget:
    """Placements that may still be tried."""

    left: int


class _OutOfBudget(Exception):
    pass


def allocate_exactly(
    buffers: Sequence[Buffer], *, alignment: int = 64, nodes: int = NODES
) -> Allocation:
    """Place buffers with the least peak; ``optimal`` says whether that is proven.

    ``nodes`` bounds the placements tried, so the work is bounded and the result always the same;
    when they run out the best allocation found so far is returned, the heuristics' at worst.
    """
    return improve(buffers, allocate(buffers, alignment=alignment), alignment, nodes)


def improve(
    buffers: Sequence[Buffer], best: Allocation, alignment: int = 64, nodes: int = NODES
) -> Allocation:
    """The search of ``allocate_exactly``, from a given allocation."""
    if best.optimal:
        return best
    budget = _Budget(nodes)
    offsets = [at if b.size else 0 for at, b in zip(best.offsets, buffers, strict=True)]
    proven = True
    for part in _parts(buffers, alignment):
        found, least = _solve(part, [offsets[i] // alignment for i in part.members], budget)
        proven = proven and least
        for index, offset in zip(part.members, found, strict=True):
            offsets[index] = offset * alignment
    peak = max(
        offset + -(-buffer.size // alignment) * alignment
        for offset, buffer in zip(offsets, buffers, strict=True)
    )
    # Parts are apart in time: the peak is least when the part that reaches it is.
    name = "branch and bound" if proven or peak < best.peak else best.heuristic
    return replace(best, offsets=tuple(offsets), peak=peak, heuristic=name, optimal=proven)


def _parts(buffers: Sequence[Buffer], alignment: int) -> list[_Part]:
    """Buffers with bytes, split where no buffer is live across."""
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
    return [_part(buffers, sorted(group), alignment) for group in groups]


def _part(buffers: Sequence[Buffer], members: list[int], alignment: int) -> _Part:
    first = np.array([buffers[i].first for i in members])
    last = np.array([buffers[i].last for i in members])
    sizes = np.array([-(-buffers[i].size // alignment) for i in members], np.int64)
    # A step is of interest if some buffer was born since the last end: before the next end.
    births, deaths = set(first.tolist()), set(last.tolist())
    steps: list[int] = []
    fresh = False
    for step in sorted(births | deaths):
        fresh = fresh or step in births
        if fresh and step in deaths:
            steps.append(step)
            fresh = False
    times = np.array(steps)[:, None]
    meets = (first[:, None] <= last[None, :]) & (first[None, :] <= last[:, None])
    return _Part(members, sizes, (first <= times) & (times <= last), meets)


def _solve(part: _Part, offsets: list[int], budget: _Budget) -> tuple[list[int], bool]:
    """The best offsets that the budget allows, from given ones, and whether they are proven."""
    bound = int((part.live @ part.sizes).max())
    best, peak = offsets, _peak(part, offsets)
    low = bound
    capacity = bound
    while low < peak:
        try:
            found = _fit(part, capacity, budget)
        except _OutOfBudget:
            return best, False
        if found is None:
            low = capacity + 1
        else:
            best, peak = found, _peak(part, found)
        capacity = (low + peak - 1) // 2
    return best, True


def _peak(part: _Part, offsets: Sequence[int]) -> int:
    return int((np.array(offsets, np.int64) + part.sizes).max())


def _fit(part: _Part, capacity: int, budget: _Budget) -> list[int] | None:
    """Offsets within a capacity, or None if there are none; raises _OutOfBudget."""
    count = len(part.members)
    state = _State(np.zeros(count, np.int64), np.ones(count, np.bool_), 0, -1)
    placed: list[tuple[int, int]] = []
    waiting: list[tuple[_State, list[int]]] = [(state, _choices(part, state, capacity))]
    while waiting:
        state, choices = waiting[-1]
        if not choices:
            waiting.pop()
            if placed:
                placed.pop()
            continue
        if budget.left <= 0:
            raise _OutOfBudget
        budget.left -= 1
        chosen = choices.pop(0)
        offset = int(state.skyline[chosen])
        placed.append((chosen, offset))
        if len(placed) == count:
            result = [0] * count
            for index, at in placed:
                result[index] = at
            return result
        after = _place(part, state, chosen, offset)
        waiting.append((after, _choices(part, after, capacity)))
    return None


@dataclass(frozen=True)
class _State:
    """What is placed, as the buffers that are left see it."""

    skyline: _Ints
    """For each buffer the top of what is placed and live with it."""
    left: NDArray[np.bool_]
    last: int
    """Offset of the buffer placed last; no later one lies lower."""
    index: int
    """That buffer: of equal offsets the smaller index comes first."""


def _place(part: _Part, state: _State, chosen: int, offset: int) -> _State:
    top = offset + part.sizes[chosen]
    skyline = np.where(part.meets[chosen], np.maximum(state.skyline, top), state.skyline)
    left = state.left.copy()
    left[chosen] = False
    return _State(skyline, left, offset, chosen)


def _choices(part: _Part, state: _State, capacity: int) -> list[int]:
    """The buffers that can come next, the lowest and then the longest lived first."""
    lowest = np.where(state.left, np.maximum(state.skyline, state.last), _FAR)
    tops = lowest + part.sizes
    if int(tops[state.left].max()) > capacity:
        return []
    live = part.live & state.left
    floor = np.where(live, lowest, _FAR).min(axis=1)
    demand = live @ part.sizes
    if bool((floor + demand > capacity)[demand > 0].any()):
        return []
    usable = state.left & (state.skyline >= state.last) & (lowest < int(tops.min()))
    usable &= (lowest > state.last) | (np.arange(len(usable)) > state.index)
    found = np.flatnonzero(usable)
    area = part.live.sum(axis=0) * part.sizes
    order = np.lexsort((found, -area[found], lowest[found]))
    return _distinct(part, [int(found[i]) for i in order])


def _distinct(part: _Part, choices: Sequence[int]) -> list[int]:
    """One of each kind of buffers that are alike in size and life."""
    seen: set[tuple[int, bytes]] = set()
    kept: list[int] = []
    # Of those that are alike the smallest index is placed first.
    for index in choices:
        key = int(part.sizes[index]), part.live[:, index].tobytes()
        if key not in seen:
            seen.add(key)
            kept.append(index)
    return kept


__all__ = ["NODES", "allocate_exactly", "improve"]

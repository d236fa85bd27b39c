"""Offsets with the least peak: branch and bound on the lowest valley.

Some allocation within a capacity, if there is any, has every buffer at 0 or right on top of one
that is live with it (else it could sink). It is found from the bottom: of the steps at which bytes
are still to be placed take the one where they can begin lowest, and of several the first. Either a
buffer that is live there begins at just that height, or nothing does, and the step's bytes up to
the next height at which anything can begin are lost. So only the buffers of one step are tried at
a time, and a mistake is found where it was made. A branch dies when some buffer no longer fits
under the capacity, or when what is left at some step does not fit above the lowest place left.

The first capacity tried is the most that is live at one step, where the second test is sharpest.
Problems of accelerators' on-chip buffers are of this tight kind (Moffitt, MiniMalloc, ASPLOS 2023).
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

    @property
    def bound(self) -> int:
        """The most that is live at one step."""
        return int((self.live @ self.sizes).max())


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
    parts = _parts(buffers, alignment)
    # A part need not be lower than the bound of another, which is apart from it in time.
    bound = max((part.bound for part in parts), default=0)
    for part in parts:
        start = [offsets[i] // alignment for i in part.members]
        found, least = _solve(part, start, bound, budget)
        proven = proven and least
        for index, offset in zip(part.members, found, strict=True):
            offsets[index] = offset * alignment
    peak = max(
        offset + -(-buffer.size // alignment) * alignment
        for offset, buffer in zip(offsets, buffers, strict=True)
    )
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


def _solve(part: _Part, offsets: list[int], bound: int, budget: _Budget) -> tuple[list[int], bool]:
    """The best offsets that the budget allows, from given ones, and whether they are proven.

    ``bound``, at least the part's own, is as low as they need be.
    """
    best, peak = offsets, _peak(part, offsets)
    # Nothing fits under ``low``; up to ``tried`` nothing was found.
    low = bound
    tried = low - 1
    capacity = low
    while tried < peak - 1 and budget.left > 0:
        try:
            found = _fit_somehow(part, capacity, budget)
        except _OutOfBudget:
            tried = capacity
        else:
            if found is None:
                low, tried = capacity + 1, capacity
            else:
                best, peak = found, _peak(part, found)
        capacity = (tried + peak) // 2
    return best, peak <= low


def _peak(part: _Part, offsets: Sequence[int]) -> int:
    return int((np.array(offsets, np.int64) + part.sizes).max())


def _fit_somehow(part: _Part, capacity: int, budget: _Budget) -> list[int] | None:
    """Offsets within a capacity, or None if there are none; raises _OutOfBudget.

    Several orders of trying take turns, each time with more placements, up to half of the budget:
    where one is led astray another often goes straight.
    """
    lives = part.live.sum(axis=0)
    orders = (part.sizes, lives * part.sizes, lives)
    share = _Budget(max(budget.left // 2, 1))
    turn = max(2 * len(part.members), 64)
    while share.left > 0:
        for order in orders:
            here = _Budget(min(turn, share.left))
            allowed = here.left
            try:
                return _fit(part, capacity, order, here)
            except _OutOfBudget:
                pass
            finally:
                share.left -= allowed - here.left
                budget.left -= allowed - here.left
        turn *= 4
    raise _OutOfBudget


@dataclass(frozen=True)
class _State:
    """What is placed, as the buffers that are left see it."""

    skyline: _Ints
    """For each buffer, the lowest offset at which it can lie."""
    left: NDArray[np.bool_]


_Move = tuple[int, int]
"""A buffer and its offset; or -1 - step, and the height below which its bytes are lost."""


def _fit(part: _Part, capacity: int, order: _Ints, budget: _Budget) -> list[int] | None:
    """Offsets within a capacity, or None if there are none; raises _OutOfBudget."""
    count = len(part.members)
    state = _State(np.zeros(count, np.int64), np.ones(count, np.bool_))
    taken: list[_Move] = []
    waiting = [(state, _moves(part, state, capacity, order))]
    while waiting:
        state, moves = waiting[-1]
        if not moves:
            waiting.pop()
            if taken:
                taken.pop()
            continue
        if budget.left <= 0:
            raise _OutOfBudget
        budget.left -= 1
        move = moves.pop(0)
        taken.append(move)
        state = _after(part, state, move)
        if not state.left.any():
            placed = dict(move for move in taken if move[0] >= 0)
            return [placed[index] for index in range(count)]
        waiting.append((state, _moves(part, state, capacity, order)))
    return None


def _after(part: _Part, state: _State, move: _Move) -> _State:
    chosen, height = move
    if chosen < 0:
        raised = part.live[-1 - chosen]
        return _State(
            np.where(raised, np.maximum(state.skyline, height), state.skyline), state.left
        )
    top = height + part.sizes[chosen]
    left = state.left.copy()
    left[chosen] = False
    meets = part.meets[chosen]
    return _State(np.where(meets, np.maximum(state.skyline, top), state.skyline), left)


def _moves(part: _Part, state: _State, capacity: int, order: _Ints) -> list[_Move]:
    """What can come next in the lowest valley; nothing if what is left cannot fit."""
    left = state.left
    lowest = np.where(left, state.skyline, _FAR)
    if int((lowest + part.sizes)[left].max()) > capacity:
        return []
    live = part.live & left
    floor = np.where(live, lowest, _FAR).min(axis=1)
    demand = live @ part.sizes
    if bool((floor + demand > capacity)[demand > 0].any()):
        return []
    step = int(floor.argmin())
    height = int(floor[step])
    # The valley: the steps around at which bytes can begin at the same height.
    first = last = step
    while first > 0 and floor[first - 1] == height:
        first -= 1
    while last + 1 < len(floor) and floor[last + 1] == height:
        last += 1
    found = np.flatnonzero(live[step] & (state.skyline == height))
    found = found[np.lexsort((found, -order[found]))]
    moves = [(index, height) for index in _distinct(part, found.tolist())]
    # Whatever lies over the step but higher stands on a side of the valley, or on what is in it.
    inside = live[first : last + 1].any(axis=0)
    above = height + int(part.sizes[inside].min())
    if first > 0:
        above = min(above, int(floor[first - 1]))
    if last + 1 < len(floor):
        above = min(above, int(floor[last + 1]))
    if above + int(demand[step]) <= capacity:
        moves.append((-1 - step, above))
    return moves


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

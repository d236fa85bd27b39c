"""The core of the exact allocator, compiled: whether buffers fit under a capacity.

A buffer is a rectangle: as long as its life, in sections, and as high as its size. A section is a
step whose set of live buffers is no part of another's. In a solution whose buffers can sink no
further each of them lies at 0 or right on top of another one, so solutions are built from the
bottom. ``lowest[b]`` is where buffer b can begin at the earliest: on top of what lies in its
sections. The floor of a section is the least ``lowest`` of its buffers that are left.

A node places one of some buffers that may come next, at its ``lowest``. What keeps the search small
under any rule by which these are chosen (Moffitt, MiniMalloc, ASPLOS 2023):

- What is left is split wherever nothing is live across, and the parts are filled one by one.
- A section whose floor and sizes that are left exceed the capacity cannot be filled.
- Of buffers that are alike in life and size only the first is tried.
- Where a buffer has nothing that is left above it, what failed was the others.
- Parts that were found not to fit are remembered, by a hash of their buffers and ``lowest``.

There are two ways to choose.

**Valleys.** A valley is a run of sections with one floor between sections with higher ones. A
buffer that can begin at the floor of a valley lies in it whole, so each valley can be filled on its
own: either some buffer of a section begins at the floor, or none does and the section's bytes up to
the next height at which anything can end are lost. The section with the fewest choices comes first.
Bytes are lost only under a buffer that another one keeps from sinking into them: if none of those
that are left can, the buffer begins at the floor, and no other is tried.

**Upwards**, as MiniMalloc has it (Moffitt, ASPLOS 2023): the lowest buffer comes first, and those
of one height in an order that is given, so each solution is built in one way alone. What is left
cannot begin lower than what was placed last, nor is anything placed so high that another buffer
that is left would fit below it.

Either finds what the other does not in the same number of nodes: valleys where many buffers are
alike, upwards where few long lives decide.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilewright.memory.problem import FEWEST, FULLEST, LOWEST, SHORTEST, UPWARDS
from tilewright.numerics.compiled import compiled, compiled_together

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]

FITS, DOES_NOT_FIT, OUT_OF_NODES = 1, 0, -1

FAR = 1 << 62
"""An offset beyond all others, in bytes."""

DEEPEST = 3_000
"""Calls in one another: each takes a part of the stack. Past them a search gives up."""


@compiled_together
def fill(
    start: int,
    end: int,
    free: int,
    placed: int,
    capacity: int,
    rule: int,
    keys: Ints,
    first: Ints,
    last: Ints,
    size: Ints,
    hashes: Hashes,
    lowest: Ints,
    rank: Ints,
    offset: Ints,
    demand: Ints,
    members: Ints,
    failed: Hashes,
    sections: Ints,
    nodes: Ints,
) -> int:
    """Place the buffers ``members[start:end]``: FITS, or why not.

    ``members`` is a stack, free from ``free`` on; ``placed`` is the buffer of the same part that
    was placed last, -1 if none was. ``rule`` is one of exact.py, ``keys`` are those of
    ``ranks``. ``demand`` has the bytes that are left to be placed in each section;
    ``sections`` is [4, sections] of scratch; ``nodes`` counts nodes, and their limit, and the
    calls in one another. ``offset`` has the result; ``lowest``, ``rank`` and ``demand`` are
    restored on failure.
    """
    begin, stop = _extent(start, end, first, last, members)
    parts = _cut(start, end, begin, stop, first, last, members, sections[0])
    deep = nodes[2]
    none = int(np.int64(-1))  # numba takes -1 itself for a type of its own
    if parts > 1:
        ends = np.empty(parts + 1, np.int64)
        _group(start, end, free, begin, stop, first, members, sections[0], ends)
        outer = rank.copy()
        verdict = FITS
        for part in np.argsort(np.diff(ends), kind="mergesort"):
            verdict = fill(
                int(ends[part]), int(ends[part + 1]), int(ends[parts]), none, capacity, rule, keys,
                first, last, size, hashes, lowest, rank, offset, demand, members, failed, sections,
                nodes,
            )  # fmt: skip
            nodes[2] = deep
            if verdict != FITS:
                break
        rank[:] = outer
        return verdict
    if nodes[0] >= nodes[1] or nodes[2] >= DEEPEST:
        return OUT_OF_NODES
    nodes[0] += 1
    nodes[2] += 1
    upwards = rule == UPWARDS
    floor = int(offset[placed]) if upwards and placed >= 0 else 0
    key = _survey(start, end, begin, stop, floor, capacity, first, last, size, hashes, lowest,
                  demand, members, sections)  # fmt: skip
    slot = np.int64(key & np.uint64(failed.size - 1))
    # Upwards, what fails after a buffer was placed may fail because of the order alone.
    whole = not upwards or placed < 0
    if key == 0 or (whole and failed[slot] == key):
        nodes[2] -= 1
        return DOES_NOT_FIT
    loses, section, above = False, begin, FAR
    if upwards:
        if placed < 0:
            ranks(start, end, keys, first, last, demand, members, rank)
        choices = upward(start, end, placed, offset, first, last, size, lowest, rank, members)
    else:
        section, above = pick(begin, stop, capacity, rule, demand, sections)
        loses = above + demand[section] <= capacity
        choices, loses = choose(start, end, section, sections[1, section], first, last, size,
                                lowest, members, loses)  # fmt: skip
    before = np.empty(end - start, np.int64)
    for k in range(start, end):
        before[k - start] = lowest[members[k]]
    for choice in choices:
        offset[choice] = lowest[choice]
        top = lowest[choice] + size[choice]
        for s in range(first[choice], last[choice] + 1):
            demand[s] -= size[choice]
        rest, covered = free, False
        for k in range(start, end):
            b = members[k]
            if b != choice:
                members[rest] = b
                rest += 1
                if first[b] <= last[choice] and first[choice] <= last[b]:
                    covered = True
                    lowest[b] = max(lowest[b], top)
        verdict = FITS
        if rest > free:
            verdict = fill(
                free, rest, rest, choice, capacity, rule, keys, first, last, size, hashes, lowest,
                rank, offset, demand, members, failed, sections, nodes,
            )  # fmt: skip
        if verdict != DOES_NOT_FIT:
            return verdict
        for k in range(start, end):
            lowest[members[k]] = before[k - start]
        for s in range(first[choice], last[choice] + 1):
            demand[s] += size[choice]
        if not covered:  # it was in no other's way, so the others failed
            loses = False
            break
    if loses:
        for k in range(start, end):
            b = members[k]
            if first[b] <= section <= last[b]:
                lowest[b] = max(lowest[b], above)
        verdict = fill(
            start, end, free, none, capacity, rule, keys, first, last, size, hashes, lowest, rank,
            offset, demand, members, failed, sections, nodes,
        )  # fmt: skip
        if verdict != DOES_NOT_FIT:
            return verdict
        for k in range(start, end):
            lowest[members[k]] = before[k - start]
    if whole:
        failed[slot] = key
    nodes[2] -= 1
    return DOES_NOT_FIT


@compiled
def _extent(start: int, end: int, first: Ints, last: Ints, members: Ints) -> tuple[int, int]:
    """First section of some buffers, and the one after their last."""
    begin, stop = FAR, 0
    for k in range(start, end):
        begin = min(begin, int(first[members[k]]))
        stop = max(stop, int(last[members[k]]) + 1)
    return begin, stop


@compiled
def _cut(
    start: int, end: int, begin: int, stop: int, first: Ints, last: Ints, members: Ints, part: Ints
) -> int:
    """Number of parts between which no buffer is live; ``part[s]`` is that of section s."""
    for s in range(begin, stop):
        part[s] = -1
    for k in range(start, end):
        b = members[k]
        part[first[b]] = max(part[first[b]], last[b])
    parts, reach = 0, -1
    for s in range(begin, stop):
        begin_part = part[s]
        if begin_part >= 0 and s > reach:
            parts += 1
        reach = max(reach, begin_part)
        part[s] = parts - 1
    return parts


@compiled
def _group(
    start: int,
    end: int,
    free: int,
    begin: int,
    stop: int,
    first: Ints,
    members: Ints,
    part: Ints,
    ends: Ints,
) -> None:
    """Copy the members of each part to the stack: those of part p to [ends[p], ends[p + 1])."""
    ends[:] = 0
    for k in range(start, end):
        ends[part[first[members[k]]] + 1] += 1
    ends[0] = free
    for p in range(1, len(ends)):
        ends[p] += ends[p - 1]
    at = ends[:-1].copy()
    for k in range(start, end):
        p = part[first[members[k]]]
        members[at[p]] = members[k]
        at[p] += 1


@compiled
def _survey(
    start: int,
    end: int,
    begin: int,
    stop: int,
    floor: int,
    capacity: int,
    first: Ints,
    last: Ints,
    size: Ints,
    hashes: Hashes,
    lowest: Ints,
    demand: Ints,
    members: Ints,
    sections: Ints,
) -> np.uint64:
    """A hash of what is left, 0 if it cannot fit with nothing of it below ``floor``.

    ``sections`` gets for each section its floor, the number of buffers that can begin there, and
    the least size of any.
    """
    floors, counts, least = sections[1], sections[2], sections[3]
    for s in range(begin, stop):
        floors[s] = FAR
        least[s] = FAR
        counts[s] = 0
    key = np.uint64(1)
    for k in range(start, end):
        b = members[k]
        low, high = max(lowest[b], floor), size[b]
        if low + high > capacity:
            return np.uint64(0)
        for s in range(first[b], last[b] + 1):
            if low < floors[s]:
                floors[s] = low
                counts[s] = 1
            elif low == floors[s]:
                counts[s] += 1
            least[s] = min(least[s], high)
        mixed = hashes[b] ^ (np.uint64(lowest[b]) * np.uint64(0x9E3779B97F4A7C15))
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        key += (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0x94D049BB133111EB)
    for s in range(begin, stop):
        if floors[s] + demand[s] > capacity:
            return np.uint64(0)
    return np.uint64(max(key, np.uint64(1)))


@compiled_together
def pick(
    begin: int, stop: int, capacity: int, rule: int, demand: Ints, sections: Ints
) -> tuple[int, int]:
    """The section to fill next, and the height below which its bytes are lost otherwise.

    It has the fewest choices. Among those with two or more the rule decides: the fewest still,
    the shortest valley, the lowest one, or the section with the fewest bytes to lose.
    """
    floors, counts, least = sections[1], sections[2], sections[3]
    best_choices, best_key = FAR, FAR
    address, height = begin, FAR
    left = begin
    while left < stop:
        floor, right, above = floors[left], left + 1, floors[left] + least[left]
        while right < stop and floors[right] == floor:
            above = min(above, floor + least[right])
            right += 1
        beside_left = floors[left - 1] if left > begin else FAR
        beside_right = floors[right] if right < stop else FAR
        if beside_left > floor and beside_right > floor:
            above = min(above, beside_left, beside_right)
            for s in range(left, right):
                choices = counts[s] + (above + demand[s] <= capacity)
                key = choices
                if rule == SHORTEST:
                    key = (right - left) * 1024 + choices
                elif rule == LOWEST:
                    key = floor * 1024 + choices
                elif rule == FULLEST:
                    key = (capacity - floor - demand[s]) * 1024 + choices
                if rule != FEWEST:
                    choices = min(choices, 2)
                if choices < best_choices or (choices == best_choices and key < best_key):
                    best_choices, best_key, address, height = choices, key, s, above
        left = right
    return address, height


@compiled
def choose(
    start: int,
    end: int,
    section: int,
    floor: int,
    first: Ints,
    last: Ints,
    size: Ints,
    lowest: Ints,
    members: Ints,
    loses: bool,
) -> tuple[Ints, bool]:
    """Buffers that can begin at a section's floor, one of each kind, and whether none may."""
    choices = np.empty(end - start, np.int64)
    count = 0
    for k in range(start, end):
        b = members[k]
        if lowest[b] != floor or section < first[b] or last[b] < section:
            continue
        alike = False
        for a in choices[:count]:
            alike = alike or (first[a] == first[b] and last[a] == last[b] and size[a] == size[b])
        if not alike:
            choices[count] = b
            count += 1
    if not loses:
        return choices[:count], False
    for b in choices[:count]:
        kept = False
        for k in range(start, end):
            d = members[k]
            beside = (d != b) and (section < first[d] or last[d] < section)
            if beside and first[d] <= last[b] and first[b] <= last[d]:
                kept = kept or lowest[d] < floor + size[b]
        if not kept:
            choices[0] = b
            return choices[:1], False
    return choices[:count], True


@compiled
def ranks(
    start: int,
    end: int,
    keys: Ints,
    first: Ints,
    last: Ints,
    demand: Ints,
    members: Ints,
    rank: Ints,
) -> None:
    """Number a part's members in the order of trying those of one height.

    ``keys`` is [keys, buffers]: the greatest first key comes first, then the greatest second one; a
    negative key stands for the greatest demand of the buffer's sections.
    """
    order = np.sort(members[start:end].copy())
    values = np.empty(len(order), np.int64)
    for key in range(len(keys) - 1, -1, -1):
        for k in range(len(order)):
            b = order[k]
            values[k] = -keys[key, b]
            if keys[key, b] < 0:
                values[k] = -demand[first[b] : last[b] + 1].max()
        order = order[np.argsort(values, kind="mergesort")]
    for k in range(len(order)):
        rank[order[k]] = k


@compiled
def upward(
    start: int,
    end: int,
    placed: int,
    offset: Ints,
    first: Ints,
    last: Ints,
    size: Ints,
    lowest: Ints,
    rank: Ints,
    members: Ints,
) -> Ints:
    """Buffers that may come after ``placed``, one of each kind, in the order of trying."""
    floor, least = 0, -1
    if placed >= 0:
        floor, least = offset[placed], rank[placed]
    ceiling = FAR
    for k in range(start, end):
        ceiling = min(ceiling, lowest[members[k]] + size[members[k]])
    choices = np.empty(end - start, np.int64)
    count = 0
    for k in range(start, end):
        b = members[k]
        if not floor <= lowest[b] < ceiling or (lowest[b] == floor and rank[b] < least):
            continue
        # Insert it by height and rank.
        at = count
        while at > 0:
            a = choices[at - 1]
            if lowest[a] < lowest[b] or (lowest[a] == lowest[b] and rank[a] < rank[b]):
                break
            choices[at] = a
            at -= 1
        choices[at] = b
        count += 1
    kept = 0
    for k in range(count):
        b, alike = choices[k], False
        for a in choices[:kept]:
            same = first[a] == first[b] and last[a] == last[b] and lowest[a] == lowest[b]
            alike = alike or (same and size[a] == size[b])
        if not alike:
            choices[kept] = b
            kept += 1
    return choices[:kept]

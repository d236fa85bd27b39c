"""The core of the exact allocator, compiled: whether buffers fit under a capacity.

A buffer is a rectangle: as long as its life, in sections, and as high as its size. A section is a
step whose set of live buffers is no part of another's. In a solution whose buffers can sink no
further each of them lies at 0 or right on top of another one, so solutions are built from the
bottom. ``lowest[b]`` is where buffer b can begin at the earliest: on top of what lies in its
sections. The floor of a section is the least ``lowest`` of its buffers that are left, and a valley
is a run of sections with one floor between sections with higher ones. A buffer that can begin at
the floor of a valley lies in it whole, so each valley can be filled on its own: either some buffer
of a section begins at the floor, or none does and the section's bytes up to the next height at
which anything can end are lost.

What keeps the search small (Moffitt, MiniMalloc, ASPLOS 2023, has the first four):

- What is left is split wherever nothing is live across, and the parts are filled one by one.
- A section whose floor and sizes that are left exceed the capacity cannot be filled.
- Of buffers that are alike in life and size only the first is tried.
- Bytes are lost only under a buffer that another one keeps from sinking into them: if none of
  those that are left can, the buffer begins at the floor, and no other is tried.
- The section with the fewest choices comes first; one without a choice ends the branch.
- Parts that were found not to fit are remembered, by a hash of their buffers and ``lowest``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilewright.numerics.compiled import compiled

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]

FITS, DOES_NOT_FIT, OUT_OF_NODES = 1, 0, -1

FAR = 1 << 62

DEEPEST = 3_000
"""Calls in one another: each takes a part of the stack. Past them a search gives up."""


@compiled
def fill(
    start: int,
    end: int,
    free: int,
    capacity: int,
    picking: int,
    first: Ints,
    last: Ints,
    size: Ints,
    hashes: Hashes,
    lowest: Ints,
    offset: Ints,
    demand: Ints,
    members: Ints,
    failed: Hashes,
    sections: Ints,
    nodes: Ints,
) -> int:
    """Place the buffers ``members[start:end]``, in the order of trying: FITS, or why not.

    ``members`` is a stack, free from ``free`` on; ``demand`` has the bytes that are left to be
    placed in each section; ``sections`` is [4, sections] of scratch; ``nodes`` counts nodes, and
    their limit, and the calls in one another. ``offset`` has the result; ``lowest`` and
    ``demand`` are restored on failure.
    """
    begin, stop = _extent(start, end, first, last, members)
    parts = _cut(start, end, begin, stop, first, last, members, sections[0])
    deep = nodes[2]
    if parts > 1:
        ends = np.empty(parts + 1, np.int64)
        _group(start, end, free, begin, stop, first, members, sections[0], ends)
        for part in np.argsort(np.diff(ends), kind="mergesort"):
            found = fill(
                int(ends[part]), int(ends[part + 1]), int(ends[parts]), capacity, picking, first,
                last, size, hashes, lowest, offset, demand, members, failed, sections, nodes,
            )  # fmt: skip
            nodes[2] = deep
            if found != FITS:
                return found
        return FITS
    if nodes[0] >= nodes[1] or nodes[2] >= DEEPEST:
        return OUT_OF_NODES
    nodes[0] += 1
    nodes[2] += 1
    key = _survey(start, end, begin, stop, capacity, first, last, size, hashes, lowest, demand,
                  members, sections)  # fmt: skip
    slot = np.int64(key & np.uint64(failed.size - 1))
    if key == 0 or failed[slot] == key:
        nodes[2] -= 1
        return DOES_NOT_FIT
    section, above = _pick(begin, stop, capacity, picking, demand, sections)
    floor = sections[1, section]
    choices = np.empty(sections[2, section], np.int64)
    loses = above + demand[section] <= capacity
    count = _choose(start, end, section, floor, first, last, size, lowest, members, choices, loses)
    if count < 0:  # this one begins at the floor in any case
        count, loses = 1, False
    before = np.empty(end - start, np.int64)
    for k in range(start, end):
        before[k - start] = lowest[members[k]]
    for choice in choices[:count]:
        offset[choice] = floor
        top = floor + size[choice]
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
        found = FITS
        if rest > free:
            found = fill(
                free, rest, rest, capacity, picking, first, last, size, hashes, lowest, offset,
                demand, members, failed, sections, nodes,
            )  # fmt: skip
        if found != DOES_NOT_FIT:
            return found
        for k in range(start, end):
            lowest[members[k]] = before[k - start]
        for s in range(first[choice], last[choice] + 1):
            demand[s] += size[choice]
        if not covered:  # it was in nobody's way, so what failed was the others
            loses = False
            break
    if loses:
        for k in range(start, end):
            b = members[k]
            if first[b] <= section <= last[b]:
                lowest[b] = max(lowest[b], above)
        found = fill(
            start, end, free, capacity, picking, first, last, size, hashes, lowest, offset,
            demand, members, failed, sections, nodes,
        )  # fmt: skip
        if found != DOES_NOT_FIT:
            return found
        for k in range(start, end):
            lowest[members[k]] = before[k - start]
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
        begun = part[s]
        if begun >= 0 and s > reach:
            parts += 1
        reach = max(reach, begun)
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
    """A hash of what is left, 0 if it cannot fit; and for each section

    its floor, the number of buffers that can begin there, and the least size of any.
    """
    floors, counts, least = sections[1], sections[2], sections[3]
    for s in range(begin, stop):
        floors[s] = FAR
        least[s] = FAR
        counts[s] = 0
    key = np.uint64(1)
    for k in range(start, end):
        b = members[k]
        low, high = lowest[b], size[b]
        if low + high > capacity:
            return np.uint64(0)
        for s in range(first[b], last[b] + 1):
            if low < floors[s]:
                floors[s] = low
                counts[s] = 1
            elif low == floors[s]:
                counts[s] += 1
            least[s] = min(least[s], high)
        mixed = hashes[b] ^ (np.uint64(low) * np.uint64(0x9E3779B97F4A7C15))
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        key += (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0x94D049BB133111EB)
    for s in range(begin, stop):
        if floors[s] + demand[s] > capacity:
            return np.uint64(0)
    return np.uint64(max(key, np.uint64(1)))


@compiled
def _pick(
    begin: int, stop: int, capacity: int, picking: int, demand: Ints, sections: Ints
) -> tuple[int, int]:
    """The section to fill next, and the height below which its bytes are lost otherwise.

    It has the fewest choices. Among those with two or more ``picking`` decides: 0 the fewest
    still, 1 the shortest valley, 2 the lowest, 3 the section with the fewest bytes to lose.
    """
    floors, counts, least = sections[1], sections[2], sections[3]
    best_choices, best_key = FAR, FAR
    found, height = begin, FAR
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
                if picking == 1:
                    key = (right - left) * 1024 + choices
                elif picking == 2:
                    key = floor * 1024 + choices
                elif picking == 3:
                    key = (capacity - floor - demand[s]) * 1024 + choices
                if picking != 0:
                    choices = min(choices, 2)
                if choices < best_choices or (choices == best_choices and key < best_key):
                    best_choices, best_key, found, height = choices, key, s, above
        left = right
    return found, height


@compiled
def _choose(
    start: int,
    end: int,
    section: int,
    floor: int,
    first: Ints,
    last: Ints,
    size: Ints,
    lowest: Ints,
    members: Ints,
    choices: Ints,
    loses: bool,
) -> int:
    """Buffers that can begin at a section's floor, one of each kind; -1 if the first one must."""
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
        return count
    for b in choices[:count]:
        kept = False
        for k in range(start, end):
            d = members[k]
            beside = (d != b) and (section < first[d] or last[d] < section)
            if beside and first[d] <= last[b] and first[b] <= last[d]:
                kept = kept or lowest[d] < floor + size[b]
        if not kept:
            choices[0] = b
            return -1
    return count

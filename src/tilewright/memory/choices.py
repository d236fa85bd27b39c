"""The next choices of the exact allocator's search (search.py): two ways to choose, compiled.

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

from tilewright.memory.rules import FEWEST, FULLEST, LOWEST, SHORTEST
from tilewright.numerics.compiled import compiled, compiled_together

Ints = NDArray[np.int64]

FAR = 1 << 62


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

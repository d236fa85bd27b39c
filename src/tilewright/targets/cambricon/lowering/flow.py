"""Data flow through a kernel's statements, on arrays and compiled: webs.py and colours.py ask.

The planner lowers each of its candidates; half of that time would go here.

Blocks are rows of ``blocks``: their first statement, the one behind their last, and the blocks
that may follow (-1: none). What statements read and write is numbered through all statements;
``ends[n]`` is the first number behind statement ``n``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.numerics.compiled import compiled

Ints = NDArray[np.int64]
Array = NDArray[Any]

WORD = 64
"""Bits of a word of a set."""


@compiled
def webs_of_registers(
    blocks: Ints, reads: Ints, read_ends: Ints, writes: Ints, write_ends: Ints, adds: Ints
) -> tuple[Ints, Ints, Ints]:
    """The web of every write, the web of every read (-1: none), and whether webs are known.

    A web is known if no read of it sees what a register holds before all statements. ``reads`` and
    ``writes`` are numbers of registers; a statement that ``adds`` reads what it writes first.

    A **node** is a write, or what a register holds where a block starts. All writes that reach a
    block's start reach every read there, so they are of one web if there is a read.
    """
    count = 1
    for operand in reads:
        count = max(count, operand + 1)
    for operand in writes:
        count = max(count, operand + 1)
    wanted, _ = _alive(blocks, reads, read_ends, writes, write_ends, count)
    first = len(blocks) * count
    parent = np.arange(first + len(writes))
    read_node = np.zeros(len(reads), np.int64)
    now = np.zeros(count, np.int64)
    for number in range(len(blocks)):
        for register in range(count):
            now[register] = number * count + register
        for at in range(blocks[number, 0], blocks[number, 1]):
            start = read_ends[at - 1] if at else 0
            for read in range(start, read_ends[at]):
                read_node[read] = now[reads[read]]
            for write in range(write_ends[at - 1] if at else 0, write_ends[at]):
                now[writes[write]] = first + write
                if adds[at]:
                    _join(parent, first + write, read_node[start])
        for place in range(2, 4):
            following = blocks[number, place]
            if following >= 0:
                for register in range(count):
                    if _has(wanted[following], register):
                        _join(parent, now[register], following * count + register)
    # Webs in the order of their first writes; those of what registers hold at first come first.
    has_write = np.zeros(len(parent), np.bool_)
    for write in range(len(writes)):
        has_write[_root(parent, first + write)] = True
    web = np.full(len(parent), -1, np.int64)
    web_count = 0
    if len(blocks):
        for register in range(count):
            root = _root(parent, register)
            if _has(wanted[0], register) and has_write[root] and web[root] < 0:
                web[root] = web_count
                web_count += 1
    unknown = web_count
    write_web = np.zeros(len(writes), np.int64)
    for write in range(len(writes)):
        root = _root(parent, first + write)
        if web[root] < 0:
            web[root] = web_count
            web_count += 1
        write_web[write] = web[root]
    read_web = np.zeros(len(reads), np.int64)
    for read in range(len(reads)):
        read_web[read] = web[_root(parent, read_node[read])]
    known = np.ones(web_count, np.int64)
    known[:unknown] = 0
    return write_web, read_web, known


@compiled
def _root(parent: Ints, node: int) -> int:
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


@compiled
def _join(parent: Ints, node: int, other: int) -> None:
    parent[_root(parent, node)] = _root(parent, other)


@compiled
def colours_of_webs(
    blocks: Ints, writes: Ints, write_ends: Ints, reads: Ints, read_ends: Ints, copies: Ints,
    count: int,
) -> Ints:  # fmt: skip
    """A colour for each of ``count`` webs that no web has that is alive at the same time.

    ``writes`` and ``reads`` are numbers of webs. Webs that meet most others come first. ``copies``
    says of statements whether they copy what they read, of one web, to what they write: both get
    one colour where that may be.
    """
    _, going = _alive(blocks, reads, read_ends, writes, write_ends, count)
    words = going.shape[1]
    meeting = np.zeros((count, words), np.uint64)
    partners = np.full((len(copies), 2), -1, np.int64)
    for number in range(len(blocks)):
        alive = going[number]
        for at in range(blocks[number, 1] - 1, blocks[number, 0] - 1, -1):
            write_start = write_ends[at - 1] if at else 0
            read_start = read_ends[at - 1] if at else 0
            for write in range(write_start, write_ends[at]):
                _put(alive, writes[write])
            source = -1
            if copies[at] and read_start < read_ends[at] and write_start < write_ends[at]:
                source = reads[read_start]
                partners[at, 0], partners[at, 1] = writes[write_start], source
            for write in range(write_start, write_ends[at]):
                mine = meeting[writes[write]]
                # A copy holds what its source holds.
                apart = source >= 0 and not _has(mine, source)
                for word in range(words):
                    mine[word] |= alive[word]
                if apart:
                    _drop(mine, source)
            for write in range(write_start, write_ends[at]):
                _drop(alive, writes[write])
            for read in range(read_start, read_ends[at]):
                _put(alive, reads[read])
    degree = np.zeros(count, np.int64)
    for web in range(count):
        _drop(meeting[web], web)
    for web in range(count):
        for other in range(count):
            if _has(meeting[web], other):
                _put(meeting[other], web)
    for web in range(count):
        for other in range(count):
            degree[web] += _has(meeting[web], other)
    colours = np.full(count, -1, np.int64)
    having = np.zeros((count, words), np.uint64)
    """The webs of every colour."""
    for _ in range(count):
        # numba's sorting takes longer to compile than this takes for thousands of webs.
        web = 0
        for other in range(count):
            if degree[other] > degree[web]:
                web = other
        degree[web] = -1
        colour = -1
        for at in range(len(partners)):
            for side in range(2):
                if colour < 0 and partners[at, side] == web:
                    wanted = colours[partners[at, 1 - side]]
                    if wanted >= 0 and _apart(having[wanted], meeting[web]):
                        colour = wanted
        if colour < 0:
            colour = 0
            while not _apart(having[colour], meeting[web]):
                colour += 1
        colours[web] = colour
        _put(having[colour], web)
    return colours


@compiled
def _apart(members: Array, other: Array) -> bool:
    """Return True if two bit sets are disjoint."""
    for word in range(len(members)):  # noqa: SIM110 (compiled)
        if members[word] & other[word]:
            return False
    return True


@compiled
def _alive(
    blocks: Ints, reads: Ints, read_ends: Ints, writes: Ints, write_ends: Ints, count: int
) -> tuple[Array, Array]:
    """Per block, the sets of those of ``count`` numbers that are alive at its start and its end.

    Alive is what is read before it is written. A statement reads before it writes.
    """
    words = (count + WORD - 1) // WORD
    before = np.zeros((len(blocks), words), np.uint64)
    gone = np.zeros((len(blocks), words), np.uint64)
    going = np.zeros((len(blocks), words), np.uint64)
    for number in range(len(blocks)):
        for at in range(blocks[number, 1] - 1, blocks[number, 0] - 1, -1):
            for write in range(write_ends[at - 1] if at else 0, write_ends[at]):
                _drop(before[number], writes[write])
                _put(gone[number], writes[write])
            for read in range(read_ends[at - 1] if at else 0, read_ends[at]):
                _put(before[number], reads[read])
    again = True
    while again:
        again = False
        for number in range(len(blocks) - 1, -1, -1):
            for place in range(2, 4):
                following = blocks[number, place]
                if following >= 0:
                    for word in range(words):
                        going[number, word] |= before[following, word]
            for word in range(words):
                more = before[number, word] | (going[number, word] & ~gone[number, word])
                if more != before[number, word]:
                    before[number, word] = more
                    again = True
    return before, going


@compiled
def _has(some: Array, number: int) -> bool:
    """Return True if a number is in a bit set."""
    return (some[number // WORD] >> np.uint64(number % WORD)) & np.uint64(1) != 0


@compiled
def _put(some: Array, number: int) -> None:
    """Add a number to a set."""
    some[number // WORD] |= np.uint64(1) << np.uint64(number % WORD)


@compiled
def _drop(some: Array, number: int) -> None:
    """Take a number out of a set."""
    some[number // WORD] &= ~(np.uint64(1) << np.uint64(number % WORD))

"""Race detection, compiled; ``races.find_races`` is its interface and says what it means.

Clocks: ``clock[c, f]`` is how many commands of engine f are known to be over before command c
touches anything. Command number i of engine f comes before c exactly when ``i < clock[c, f]``.

Shadow: memory is divided into cells of ``granule`` bytes; each remembers, per engine, the number
(plus one) of its last command that wrote there and that read there. A cell only raises the alarm;
``common_byte`` then compares exactly, so that the granule does not change what is found.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.numerics.compiled import compiled

Array = Any
"""A NumPy array; numba infers the element types."""


@compiled
def clocks(engine: Array, waits: Array, first: Array, order: Array) -> tuple[Array, Array]:
    """Commands in an order that keeps every wait, and their clocks; shorter when that is stuck."""
    commands, engines = engine.size, first.size - 1
    sequence = np.empty(commands, np.int64)
    clock = np.zeros((commands, engines), np.int64)
    done = np.zeros(engines, np.int64)
    for position in range(commands):
        following = commands
        for e in range(engines):
            if first[e] + done[e] < first[e + 1]:
                command = order[first[e] + done[e]]
                met = command < following
                for f in range(engines):
                    if waits[command, f] > done[f]:
                        met = False
                if met:
                    following = command
        if following == commands:
            return sequence[:position], clock
        e = engine[following]
        if done[e]:
            for f in range(engines):
                clock[following, f] = clock[order[first[e] + done[e] - 1], f]
        for f in range(engines):
            count = waits[following, f]
            if count > clock[following, f]:
                awaited = order[first[f] + count - 1]
                for g in range(engines):
                    clock[following, g] = max(clock[following, g], clock[awaited, g])
                clock[following, f] = max(clock[following, f], count)
        clock[following, e] = done[e]
        done[e] += 1
        sequence[position] = following
    return sequence, clock


@compiled
def run_starts(address: int, count: Array, stride: Array, low: int, high: int) -> Array:
    """Sorted starts of the runs of an access that begin in ``[low, high)``."""
    starts = np.empty(count[0] * count[1] * count[2], np.int64)
    number = 0
    for i in range(count[0]):
        for j in range(count[1]):
            for k in range(count[2]):
                start = address + i * stride[0] + j * stride[1] + k * stride[2]
                if low <= start < high:
                    starts[number] = start
                    number += 1
    return np.sort(starts[:number])


@compiled
def common_byte(address: Array, run: Array, count: Array, stride: Array, a: int, b: int) -> int:
    """Lowest byte that accesses a and b both touch, or -1."""
    last_a, last_b = address[a] + run[a], address[b] + run[b]
    for axis in range(3):
        last_a += (count[a, axis] - 1) * stride[a, axis]
        last_b += (count[b, axis] - 1) * stride[b, axis]
    low, high = max(address[a], address[b]), min(last_a, last_b)
    if low >= high or run[a] == 0 or run[b] == 0:
        return -1
    x = run_starts(address[a], count[a], stride[a], low - run[a] + 1, high)
    y = run_starts(address[b], count[b], stride[b], low - run[b] + 1, high)
    i, j = 0, 0
    while i < x.size and j < y.size:
        if x[i] + run[a] <= y[j]:
            i += 1
        elif y[j] + run[b] <= x[i]:
            j += 1
        else:
            return max(x[i], y[j])
    return -1


@compiled
def search(
    engine: Array,
    sequence: Array,
    clock: Array,
    first: Array,
    order: Array,
    access_first: Array,
    memory: Array,
    write: Array,
    address: Array,
    run: Array,
    count: Array,
    stride: Array,
    low: Array,
    granule: Array,
    base: Array,
    cells: int,
    byte_base: Array,
    byte_count: int,
    limit: int,
) -> tuple[Array, Array, bool]:
    """Races (first, second, memory, address) and unwritten reads (command, memory, address).

    Memory m has its cells from ``base[m]`` to ``base[m + 1]``, the first at address ``low[m]``;
    and, if its reads are checked, one flag per byte from ``byte_base[m]`` (else -1). The last
    result says whether everything was searched.
    """
    commands, engines = engine.size, first.size - 1
    known = np.zeros(engines, np.int32)
    last_write = np.zeros((cells, engines), np.int32)
    last_read = np.zeros((cells, engines), np.int32)
    written = np.zeros(byte_count, np.bool_)
    filled = np.zeros(cells, np.int64)
    races = np.empty((limit, 4), np.int64)
    unwritten = np.empty((limit, 3), np.int64)
    race_count, unwritten_count, complete = 0, 0, True
    done = np.zeros(engines, np.int64)
    alarm = np.zeros(engines, np.bool_)
    for position in range(sequence.size):
        command = sequence[position]
        e = engine[command]
        for f in range(engines):
            known[f] = clock[command, f]
        known[e] = commands  # its own engine is always in order
        # All reads of a command come before its writes.
        for turn in range(2):
            for a in range(access_first[command], access_first[command + 1]):
                if write[a] != (turn == 1) or run[a] == 0:
                    continue
                m = memory[a]
                size = granule[m]
                bytes_here = byte_base[m]
                for f in range(engines):
                    alarm[f] = False
                missing = np.int64(-1)
                for i in range(count[a, 0]):
                    for j in range(count[a, 1]):
                        for k in range(count[a, 2]):
                            start = address[a] + i * stride[a, 0] + j * stride[a, 1]
                            start += k * stride[a, 2] - low[m]
                            cell = max(start // size, 0) + base[m]
                            stop = min((start + run[a] - 1) // size + 1 + base[m], base[m + 1])
                            for place in range(cell, stop):
                                if write[a]:
                                    for f in range(engines):
                                        alarm[f] |= last_write[place, f] > known[f]
                                        alarm[f] |= last_read[place, f] > known[f]
                                    last_write[place, e] = done[e] + 1
                                else:
                                    for f in range(engines):
                                        alarm[f] |= last_write[place, f] > known[f]
                                    last_read[place, e] = done[e] + 1
                                if bytes_here >= 0 and filled[place] < size:
                                    begin = max(start, (place - base[m]) * size)
                                    end = min(start + run[a], (place - base[m] + 1) * size)
                                    for byte in range(begin, end):
                                        if write[a]:
                                            filled[place] += not written[bytes_here + byte]
                                            written[bytes_here + byte] = True
                                        elif not written[bytes_here + byte] and (
                                            missing < 0 or byte < missing
                                        ):
                                            missing = byte
                if missing >= 0 and unwritten_count == limit:
                    complete = False  # More of them; races are still searched.
                elif missing >= 0:
                    unwritten[unwritten_count, 0] = command
                    unwritten[unwritten_count, 1] = m
                    unwritten[unwritten_count, 2] = missing + low[m]
                    unwritten_count += 1
                for f in range(engines):
                    if not alarm[f]:
                        continue
                    for number in range(clock[command, f], done[f]):
                        other = order[first[f] + number]
                        for b in range(access_first[other], access_first[other + 1]):
                            if memory[b] != m or not (write[a] or write[b]):
                                continue
                            byte = common_byte(address, run, count, stride, b, a)
                            if byte < 0:
                                continue
                            place = race_count
                            for r in range(race_count):
                                if (
                                    races[r, 0] == other
                                    and races[r, 1] == command
                                    and races[r, 2] == m
                                ):
                                    place = r
                                    byte = min(byte, races[r, 3])
                            if place == limit:
                                return races[:race_count], unwritten[:unwritten_count], False
                            races[place, 0] = other
                            races[place, 1] = command
                            races[place, 2] = m
                            races[place, 3] = byte
                            race_count = max(race_count, place + 1)
        done[e] += 1
    return races[:race_count], unwritten[:unwritten_count], complete

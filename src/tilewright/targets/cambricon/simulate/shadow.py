"""Races: accesses of two units to a common byte that no barrier puts in order; compiled.

For every two bytes on the chip it is kept which word of each unit last wrote and read them, and
between which barriers. Transfers' bytes of main memory are kept as a list, since the last barrier.
Nothing here depends on time.
"""

from __future__ import annotations

from tilewright.numerics.compiled import compiled_together
from tilewright.targets.cambricon.simulate import state as at
from tilewright.targets.cambricon.simulate.state import Array

UNITS = 4
STAMP = 1 << 32
"""A cell holds its time between barriers (counted from 1) times this, plus the word's number."""


@compiled_together
def look(n: Array, shadow: Array, recent: Array, races: Array, pc: int) -> None:
    """Compare the accesses of the instruction at hand with those since the last barrier."""
    unit = n[at.UNIT]
    for i in range(n[at.ACCESS_COUNT]):
        place = at.ACCESS + 4 * i
        memory, low, high, write = n[place], n[place + 1], n[place + 2], n[place + 3]
        if high <= low:
            continue
        if memory == at.MAIN:
            _main(n, recent, races, pc, unit, low, high, write)
        else:
            _chip(n, shadow, races, pc, unit, memory, low, high, write)


@compiled_together
def _chip(
    n: Array,
    shadow: Array,
    races: Array,
    pc: int,
    unit: int,
    memory: int,
    low: int,
    high: int,
    write: int,
) -> None:
    now = n[at.EPOCH] + 1
    base = n[at.BASES + memory] // 2
    for place in range(low // 2, high // 2):
        for other in range(1, UNITS + 1):
            if other != unit:
                cell = shadow[base + place, other]
                if cell // STAMP == now:
                    _race(n, races, cell % STAMP, pc, memory, 2 * place)
                cell = shadow[base + place, UNITS + other]
                if write and cell // STAMP == now:
                    _race(n, races, cell % STAMP, pc, memory, 2 * place)
        shadow[base + place, unit if write else UNITS + unit] = now * STAMP + pc


@compiled_together
def _main(
    n: Array, recent: Array, races: Array, pc: int, unit: int, low: int, high: int, write: int
) -> None:
    count = n[at.ACCESSES]
    for i in range(count):
        if (
            recent[i, 1] != unit
            and recent[i, 2] < high
            and low < recent[i, 3]
            and (write or recent[i, 4])
        ):
            _race(n, races, recent[i, 0], pc, at.MAIN, max(low, recent[i, 2]))
    if count >= recent.shape[0]:
        n[at.LOST] = 1
        return
    recent[count, 0] = pc
    recent[count, 1] = unit
    recent[count, 2] = low
    recent[count, 3] = high
    recent[count, 4] = write
    n[at.ACCESSES] += 1


@compiled_together
def _race(n: Array, races: Array, first: int, second: int, memory: int, address: int) -> None:
    """Record a race between a pair of words, once for each memory, with the lowest address."""
    count = n[at.RACES]
    for i in range(count):
        if races[i, 0] == first and races[i, 1] == second and races[i, 2] == memory:
            races[i, 3] = min(races[i, 3], address)
            return
    if count >= races.shape[0]:
        n[at.LOST] = 1
        return
    races[count, 0] = first
    races[count, 1] = second
    races[count, 2] = memory
    races[count, 3] = address
    n[at.RACES] += 1

"""The commands of an engine as intervals, in levels of detail that a page can draw.

A run may have millions of commands. Each level joins neighbouring commands until few enough
intervals are left, across the shortest gaps first, and those between kernels last::

    commands    ## ## ##   ## ##  ###  ###
    joined      ########   #####  ########

No level loses anything: the commands, the busy cycles and the bytes of its intervals sum to the
engine's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.machine import Machine
from tilewright.simulate.commands import TimedArray
from tilewright.simulate.timing import Spans

LEVELS = (400, 2000, 6000)
"""Intervals of an engine at each level of detail, at most."""

MOST_INTERVALS = 24_000
"""Intervals of all engines together at the finest level, at most."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Intervals:
    """Commands of one engine in the order of time, neighbours joined; arrays have one row each."""

    start: Floats
    end: Floats
    busy: Floats
    """Cycles in which a command runs; the rest of an interval is gaps between its commands."""
    commands: Integers
    bytes: Integers
    kernel: Integers
    """Number of the kernel that its longest command belongs to."""

    def __len__(self) -> int:
        """The number of intervals."""
        return len(self.start)


@dataclass(frozen=True)
class EngineTimeline:
    """The commands of one engine over a run."""

    name: str
    moves: bool
    """True if it moves data, false if it computes."""
    busy: float
    """Cycles in which at least one command runs."""
    commands: int
    levels: tuple[Intervals, ...]
    """The intervals in levels of detail, coarse to fine."""

    @property
    def finest(self) -> Intervals:
        """The level with the most detail."""
        return self.levels[-1]


def engine_timelines(
    spans: Spans, commands: TimedArray, machine: Machine, levels: Sequence[int] = LEVELS
) -> tuple[EngineTimeline, ...]:
    """The timelines of all engines, in the machine's order."""
    moving = {move.engine for move in machine.moves}
    most = max(MOST_INTERVALS // max(len(machine.engines), 1), 1)
    found: list[EngineTimeline] = []
    for number, engine in enumerate(machine.engines):
        whole = _commands_of(number, spans, commands)
        sizes = dict.fromkeys(min(size, most) for size in levels)
        detail = tuple(joined(whole, size) for size in sizes if size < len(whole))
        if len(whole) <= max(sizes):
            detail = (*detail, whole)
        found.append(
            EngineTimeline(
                engine.name,
                engine.name in moving,
                float(whole.busy.sum()),
                len(whole),
                detail or (whole,),
            )
        )
    return tuple(found)


def _commands_of(engine: int, spans: Spans, commands: TimedArray) -> Intervals:
    """Each command of an engine, from the end of the one before where latencies overlap."""
    mine = np.flatnonzero(commands["engine"] == engine)
    end = spans.end[mine]
    before = np.maximum.accumulate(np.append(0.0, end))[:-1]
    start = np.minimum(np.maximum(spans.start[mine], before), end)
    return Intervals(
        start,
        end,
        end - start,
        np.ones(len(mine), np.int64),
        commands["bytes"][mine].astype(np.int64),
        commands["kernel"][mine].astype(np.int64),
    )


def joined(whole: Intervals, most: int) -> Intervals:
    """At most ``most`` intervals: the widest gaps stay, those between kernels before all others."""
    if len(whole) <= most:
        return whole
    gaps = whole.start[1:] - whole.end[:-1]
    changes = whole.kernel[1:] != whole.kernel[:-1]
    widest = np.lexsort((-gaps, ~changes))[: most - 1]
    first = np.append(0, np.sort(widest) + 1)
    last = np.append(first[1:], len(whole)) - 1
    # Of each interval the longest command, the first of equals: it comes first in this order.
    group = np.zeros(len(whole), np.int64)
    group[first[1:]] = 1
    order = np.lexsort((-whole.busy, np.cumsum(group)))
    return Intervals(
        whole.start[first],
        whole.end[last],
        np.add.reduceat(whole.busy, first),
        np.add.reduceat(whole.commands, first),
        np.add.reduceat(whole.bytes, first),
        whole.kernel[order[first]],
    )


@dataclass(frozen=True)
class Shares:
    """The cycles of each kernel by what they went into; the three sum to the kernel's cycles."""

    compute: Floats
    """Cycles in which an engine computes."""
    moves: Floats
    """Cycles in which nothing computes and data move: computes wait for them."""
    idle: Floats
    """Cycles in which nothing runs: latencies of issue, and waits."""


def shares_of(
    spans: Spans, commands: TimedArray, machine: Machine, ends: Sequence[float]
) -> Shares:
    """The shares of kernels, each from the end of all before it to its own: ``ends``."""
    moving = {move.engine for move in machine.moves}
    computes = [n for n, engine in enumerate(machine.engines) if engine.name not in moving]
    edges = np.append(0.0, np.maximum.accumulate(np.asarray(ends, np.float64)))
    computing = np.isin(commands["engine"], computes)
    compute = np.diff(_covered(spans.start[computing], spans.end[computing], edges))
    either = np.diff(_covered(spans.start, spans.end, edges))
    return Shares(compute, either - compute, np.diff(edges) - either)


def _covered(start: Floats, end: Floats, edges: Floats) -> Floats:
    """Cycles before each edge in which any of the intervals runs."""
    if not len(start):
        return np.zeros_like(edges)
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    first = np.append(True, start[1:] > end[:-1])
    begin = start[first]
    stop = end[np.append(np.flatnonzero(first)[1:] - 1, len(end) - 1)]
    total = np.append(0.0, np.cumsum(stop - begin))
    times = np.column_stack([begin, stop]).ravel()
    levels = np.column_stack([total[:-1], total[1:]]).ravel()
    return np.interp(edges, times, levels)

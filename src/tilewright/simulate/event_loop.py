"""The event loop of timing, compiled; ``timing.simulate`` is its interface and says what it means.

Per engine e, its commands are ``order[first[e]:first[e + 1]]`` in program order, and
``done <= started <= issued`` count how many of them have come how far. At most one command of an
engine, number ``done[e]``, is in its busy phase.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.numerics.compiled import compiled

Array = Any
"""A NumPy array; numba infers the element types."""


@compiled
def engine_order(engine: Array, engines: int) -> tuple[Array, Array]:
    """Commands grouped by engine in program order: where each group begins, and their indices."""
    first = np.zeros(engines + 1, np.int64)
    for e in engine:
        first[e + 1] += 1
    for e in range(engines):
        first[e + 1] += first[e]
    place = first[:-1].copy()
    order = np.empty(engine.size, np.int64)
    for command in range(engine.size):
        e = engine[command]
        order[place[e]] = command
        place[e] += 1
    return first, order


@compiled
def share(flows: Array, most: Array, ends: Array, limit: Array, rate: Array) -> None:
    """Max-min fair rates: all flows rise together until their own limit or a memory stops them.

    ``flows[e]`` says which flow; ``own[e]`` is a flow's own limit, ``ends[e]`` its two memories
    (-1: none), ``limit[m]`` that of a memory. Writes ``rate``.
    """
    engines, memories = flows.size, limit.size
    rising = flows.copy()
    left = limit.copy()
    users = np.zeros(memories, np.int64)
    level = 0.0
    while True:
        for m in range(memories):
            users[m] = 0
        step = np.inf
        some = False
        for e in range(engines):
            if rising[e]:
                some = True
                step = min(step, most[e] - level)
                for m in ends[e]:
                    if m >= 0:
                        users[m] += 1
        if not some:
            return
        for m in range(memories):
            if users[m]:
                step = min(step, left[m] / users[m])
        for e in range(engines):
            if rising[e]:
                stopped = most[e] - level <= step
                for m in ends[e]:
                    if m >= 0 and left[m] / users[m] <= step:
                        stopped = True
                if stopped:
                    rate[e] = level + step
                    rising[e] = False
        level += step
        for m in range(memories):
            if users[m] and left[m] < np.inf:
                left[m] = max(left[m] - step * users[m], 0.0)


@compiled
def run(
    engine: Array,
    move: Array,
    size: Array,
    cycles: Array,
    latency: Array,
    waits: Array,
    queue: Array,
    in_flight: Array,
    own_limit: Array,
    move_ends: Array,
    limit: Array,
    issue: float,
    first: Array,
    order: Array,
) -> tuple[Array, Array, Array, Array, Array]:
    """Start, data and end of every command, and how many each engine was issued and began.

    An end of -1 means that the program is stuck. The last rows of ``in_flight``, ``own_limit`` and
    ``move_ends`` are for commands whose move is -1.
    """
    commands, engines = engine.size, queue.size
    start = np.full(commands, -1.0)
    data = np.full(commands, -1.0)
    end = np.full(commands, -1.0)
    issued = np.zeros(engines, np.int64)
    started = np.zeros(engines, np.int64)
    done = np.zeros(engines, np.int64)
    busy = np.zeros(engines, np.bool_)
    flows = np.zeros(engines, np.bool_)
    least_end = np.zeros(engines)
    left = np.zeros(engines)
    rate = np.zeros(engines)
    flow_end = np.zeros(engines)
    most = np.zeros(engines)
    ends = np.full((engines, 2), -1, np.int64)
    now, stamp, next_issue = 0.0, 0.0, issue
    position, completed = 0, 0
    while completed < commands:
        changed = False
        moved = True
        while moved:  # all that happens at this instant
            moved = False
            for e in range(engines):
                if busy[e]:
                    if flows[e] and flow_end[e] <= now:
                        # What has flowed is accounted for below; this flow ends exactly here.
                        flows[e] = False
                        changed = True
                    if not flows[e] and least_end[e] <= now:
                        end[order[first[e] + done[e]]] = now
                        busy[e] = False
                        done[e] += 1
                        completed += 1
                        moved = True
            while position < commands and next_issue <= now:
                e = engine[position]
                if issued[e] - done[e] >= queue[e]:
                    break
                issued[e] += 1
                position += 1
                next_issue = now + issue
                moved = True
            for e in range(engines):
                while started[e] < issued[e]:
                    command = order[first[e] + started[e]]
                    outstanding = started[e] - done[e]
                    if outstanding >= in_flight[move[command]]:
                        break
                    if outstanding and move[order[first[e] + started[e] - 1]] < 0:
                        break
                    met = True
                    for other in range(engines):
                        if waits[command, other] > done[other]:
                            met = False
                    if not met:
                        break
                    start[command] = now
                    started[e] += 1
                    moved = True
                if not busy[e] and done[e] < started[e]:
                    command = order[first[e] + done[e]]
                    if start[command] + latency[command] <= now:
                        data[command] = now
                        busy[e] = True
                        least_end[e] = now + cycles[command]
                        moved = True
                        if size[command] > 0:
                            flows[e] = True
                            changed = True
                            most[e] = own_limit[move[command]]
                            for side in range(2):
                                ends[e, side] = move_ends[move[command], side]
                            left[e] = size[command]
                            rate[e] = 0.0
                            flow_end[e] = np.inf
        if changed:
            for e in range(engines):
                if flows[e]:
                    left[e] = max(left[e] - rate[e] * (now - stamp), 0.0)
            share(flows, most, ends, limit, rate)
            stamp = now
            for e in range(engines):
                if flows[e]:
                    flow_end[e] = now + left[e] / rate[e]
        later = np.inf
        if (
            position < commands
            and issued[engine[position]] - done[engine[position]] < (queue[engine[position]])
        ):
            later = next_issue
        for e in range(engines):
            if busy[e]:
                later = min(later, flow_end[e] if flows[e] else least_end[e])
            elif done[e] < started[e]:
                command = order[first[e] + done[e]]
                later = min(later, start[command] + latency[command])
        if later == np.inf:
            break
        now = later
    return start, data, end, issued, started

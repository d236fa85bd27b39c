"""Time: the memory queue, the units and the two transfers that share main memory; compiled.

Instructions leave the queue in order, so the moment at which one starts follows from those before
it alone: it is known as soon as the instruction enters. A transfer's end is not, as a later one may
take half of its bandwidth; it is projected from what has started so far, which is right for every
question that is asked before the next start.
"""

from __future__ import annotations

import numpy as np

from tilewright.numerics.compiled import compiled_together
from tilewright.targets.cambricon.simulate import state as at
from tilewright.targets.cambricon.simulate.state import Array


@compiled_together
def flow(t: Array, left: int, until: float) -> None:
    """Let the transfers' bytes flow from DMA_TIME to ``until``.

    Two numbers from place ``left`` on say how many are left and are written; ENDED has the end of a
    transfer that is over by then, -1 for others. Both share main memory fairly: of what one cannot
    take the other has the rest.
    """
    now = t[at.DMA_TIME]
    total = t[at.BANDWIDTH]
    t[at.ENDED] = t[at.ENDED + 1] = -1.0
    while now < until and (t[left] > 0 or t[left + 1] > 0):
        rate0 = rate1 = 0.0
        if t[left] > 0 and t[at.DATA] <= now:
            rate0 = min(t[at.FLOW], total)
        if t[left + 1] > 0 and t[at.DATA + 1] <= now:
            rate1 = min(t[at.FLOW + 1], total)
        if rate0 + rate1 > total:
            if rate0 < total / 2:
                rate1 = total - rate0
            elif rate1 < total / 2:
                rate0 = total - rate1
            else:
                rate0 = rate1 = total / 2
        later = until
        for d in range(2):
            rate = rate1 if d else rate0
            if t[left + d] > 0:
                later = min(later, now + t[left + d] / rate if rate > 0 else t[at.DATA + d])
        for d in range(2):
            rate = rate1 if d else rate0
            if rate > 0:
                if now + t[left + d] / rate <= later:
                    t[left + d] = 0.0
                    t[at.ENDED + d] = later
                else:
                    t[left + d] = max(t[left + d] - rate * (later - now), 1e-9)
        now = later


@compiled_together
def unit_end(t: Array, unit: int) -> float:
    """Cycle in which a unit ends its work, if nothing else starts before."""
    d = unit - at.VECTOR_DMA
    if d < 0 or t[at.LEFT + d] <= 0:
        return t[at.UNIT_END + unit]
    t[at.PLAN] = t[at.LEFT]
    t[at.PLAN + 1] = t[at.LEFT + 1]
    flow(t, at.PLAN, np.inf)
    return t[at.ENDED + d]


@compiled_together
def _settle(t: Array, kernels: Array, unit: int, kernel: int, start: float, end: float) -> None:
    """Book a finished instruction."""
    t[at.UNIT_END + unit] = end
    t[at.BUSY + unit] += end - start
    kernels[kernel, at.KERNEL_BUSY + unit] += end - start
    if end > kernels[kernel, at.KERNEL_END]:
        kernels[kernel, at.KERNEL_END] = end


@compiled_together
def advance(n: Array, t: Array, kernels: Array, events: Array, until: float) -> None:
    """Count the transfers' bytes up to a moment, and settle what is over by then."""
    if t[at.LEFT] > 0 or t[at.LEFT + 1] > 0:
        flow(t, at.LEFT, until)
        for d in range(2):
            end = t[at.ENDED + d]
            if end >= 0:
                unit = at.VECTOR_DMA + d
                _settle(t, kernels, unit, n[at.OWNER + unit], t[at.STARTED + d], end)
                if n[at.EVENT + unit] >= 0:
                    events[n[at.EVENT + unit], at.EVENT_END] = end
    if until > t[at.DMA_TIME]:
        t[at.DMA_TIME] = until


@compiled_together
def _conflicts(n: Array, unit: int) -> bool:
    """Return True if this instruction and a unit's last one overlap, and one of them writes.

    Empty ranges touch nothing.
    """
    for i in range(n[at.RANGE_COUNT + unit]):
        a = at.RANGES + 16 * unit + 4 * i
        for j in range(n[at.ACCESS_COUNT]):
            b = at.ACCESS + 4 * j
            if (
                n[a] == n[b]
                and (n[a + 3] or n[b + 3])
                and n[a + 1] < n[b + 2]
                and n[b + 1] < n[a + 2]
                and n[a + 1] < n[a + 2]
                and n[b + 1] < n[b + 2]
            ):
                return True
    return False


@compiled_together
def _start(n: Array, t: Array, unit: int, barrier: bool) -> float:
    """Cycle in which the current instruction leaves the queue.

    It enters when there is room. It leaves when those before it have left, its unit is free, and no
    unit works on the bytes that it needs (or on anything, for a barrier).
    """
    slot = at.STARTS + n[at.ISSUED]
    if t[slot] > t[at.NOW]:
        t[at.NOW] = t[slot]
    start = max(t[at.NOW], t[at.LAST_START])
    for u in range(1, 5):
        runs = u >= at.VECTOR_DMA and t[at.LEFT + u - at.VECTOR_DMA] > 0
        if (runs or t[at.UNIT_END + u] > start) and (u == unit or barrier or _conflicts(n, u)):
            start = max(start, unit_end(t, u))
    t[slot] = start
    n[at.ISSUED] = n[at.ISSUED] + 1 if slot + 1 < t.size else 0
    t[at.LAST_START] = start
    t[at.NOW] += 1
    return start


@compiled_together
def _event(
    n: Array, events: Array, word: int, unit: int, kernel: int, start: float, end: float, size: int
) -> int:
    """Record an event if events are wanted; its number, or -1."""
    if events.shape[0] == 0:
        return -1
    number = n[at.EVENTS]
    events[number, at.EVENT_WORD] = word
    events[number, at.EVENT_UNIT] = unit
    events[number, at.EVENT_KERNEL] = kernel
    events[number, at.EVENT_BYTES] = size
    events[number, at.EVENT_START] = start
    events[number, at.EVENT_END] = end
    n[at.EVENTS] += 1
    return number


@compiled_together
def issue(n: Array, t: Array, kernels: Array, events: Array, word: int, kernel: int) -> float:
    """Send the instruction at hand through the queue to its unit.

    Returns when a computation ends. A transfer also brings the words that were executed for the
    first time since the one before it.
    """
    unit = n[at.UNIT]
    start = _start(n, t, unit, False)
    n[at.RANGE_COUNT + unit] = n[at.ACCESS_COUNT]
    for i in range(4 * n[at.ACCESS_COUNT]):
        n[at.RANGES + 16 * unit + i] = n[at.ACCESS + i]
    if start < kernels[kernel, at.KERNEL_START]:
        kernels[kernel, at.KERNEL_START] = start
    if unit < at.VECTOR_DMA:
        end = start + n[at.CYCLES]
        _settle(t, kernels, unit, kernel, start, end)
        _event(n, events, word, unit, kernel, start, end, 0)
        return end
    advance(n, t, kernels, events, start)
    d = unit - at.VECTOR_DMA
    move = n[at.MOVE]
    size = n[at.MOVE_BYTES] + n[at.FETCH]
    n[at.FETCH] = 0
    t[at.LEFT + d] = max(float(size), 1e-9)
    t[at.DATA + d] = start + t[at.LATENCY + move]
    t[at.FLOW + d] = t[at.RATE + move]
    t[at.STARTED + d] = start
    n[at.OWNER + unit] = kernel
    n[at.MOVED + move] += size
    kernels[kernel, at.KERNEL_BYTES] += size
    n[at.EVENT + unit] = _event(n, events, word, unit, kernel, start, start, size)
    return start


@compiled_together
def barrier(n: Array, t: Array) -> None:
    """Hold the queue until all before it has completed; takes no unit."""
    n[at.ACCESS_COUNT] = 0
    _start(n, t, 0, True)
    n[at.EPOCH] += 1
    n[at.ACCESSES] = 0


@compiled_together
def scalar_access(
    n: Array, t: Array, kernels: Array, events: Array, word: int, kernel: int
) -> None:
    """Let the pipeline itself reach main memory: after what is in the queue."""
    now = max(t[at.NOW], t[at.LAST_START])
    n[at.ACCESS_COUNT] = 1
    for unit in range(at.VECTOR_DMA, 5):
        if _conflicts(n, unit):
            now = max(now, unit_end(t, unit))
    size = n[at.MOVE_BYTES]
    end = now + t[at.LATENCY + at.SCALAR_MOVE] + size / t[at.BANDWIDTH]
    t[at.NOW] = end
    n[at.MOVED + at.SCALAR_MOVE] += size
    kernels[kernel, at.KERNEL_BYTES] += size
    if now < kernels[kernel, at.KERNEL_START]:
        kernels[kernel, at.KERNEL_START] = now
    _settle(t, kernels, at.SCALAR, kernel, now, end)
    _event(n, events, word, at.SCALAR, kernel, now, end, size)


@compiled_together
def finish(n: Array, t: Array, kernels: Array, events: Array) -> float:
    """Let everything complete; when that is."""
    end = max(t[at.NOW], t[at.LAST_START])
    for unit in range(1, 5):
        end = max(end, unit_end(t, unit))
    advance(n, t, kernels, events, end)
    return end

"""Counters of a simulated run for traces: bytes taken of memories, bandwidth, busy multipliers.

Bandwidth and multipliers are means over ``BINS`` equal parts of the run at most, so that a trace of
millions of commands gets thousands of counter events. What flows in a part is exact: the integral
of a counter over the run is the number of bytes, or of cycles at peak, of all commands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.program.buffers import occupants_of, taken_bytes
from tilewright.codegen.program.interface import PlannedKernel
from tilewright.machine import Machine
from tilewright.simulate.commands import TimedArray
from tilewright.simulate.timing import Spans
from tilewright.simulate.trace import Counter

BINS = 2000
"""The most intervals of a run for each of which a mean rate is shown."""

Floats = NDArray[np.float64]


def counters_of(
    spans: Spans,
    commands: TimedArray,
    machine: Machine,
    kernels: Sequence[str],
    planned: Mapping[str, PlannedKernel],
) -> Iterator[Counter]:
    """The counters of a run: one per memory with buffers, one per move, one of the multipliers."""
    windows = kernel_windows(spans, commands, kernels)
    buffers = {name: kernel.buffers for name, kernel in planned.items()}
    for memory, (times, levels) in taken_bytes(occupants_of(windows, buffers)).items():
        yield Counter(f"{memory} taken", "bytes", times, levels)
    end = float(spans.end.max(initial=0.0))
    if not len(commands) or end <= 0:
        return
    edges = np.linspace(0.0, end, min(BINS, max(int(end), 1)) + 1)
    for number, move in enumerate(machine.moves):
        mine = commands["move"] == number
        amounts = commands["bytes"][mine].astype(np.float64)
        if amounts.any():
            rates = flow_rates(spans.data[mine], spans.end[mine], amounts, edges)
            yield Counter(f"{move.name} bandwidth", "bytes/cycle", *_steps(edges, rates))
    rates = multiplier_rates(spans, commands, machine, kernels, planned, edges)
    if rates is not None:
        yield Counter("multipliers busy", "%", *_steps(edges, 100 * rates))


def kernel_windows(
    spans: Spans, commands: TimedArray, kernels: Sequence[str]
) -> list[tuple[str, float, float]]:
    """Symbol, first start and last end of every kernel that has commands, in order."""
    count = len(kernels)
    first, last = np.full(count, np.inf), np.zeros(count)
    known = commands["kernel"] < count
    np.minimum.at(first, commands["kernel"][known], spans.start[known])
    np.maximum.at(last, commands["kernel"][known], spans.end[known])
    rows = zip(kernels, first.tolist(), last.tolist(), strict=True)
    return [(name, start, end) for name, start, end in rows if start < end]


def flow_rates(start: Floats, end: Floats, amount: Floats, edges: Floats) -> Floats:
    """The mean rate between edges of amounts that flow evenly from their starts to their ends.

    What takes no time counts where it begins.
    """
    long = end > start
    rate = np.divide(amount, end - start, out=np.zeros_like(amount), where=long)
    # The sum of ramps: each begins to rise at its start and stops at its end.
    times = np.concatenate([start[long], end[long]])
    slopes = np.concatenate([rate[long], -rate[long]])
    order = np.argsort(times, kind="stable")
    times, slopes = times[order], np.cumsum(slopes[order])
    total = np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(times))]) if len(times) else None
    reached = np.zeros_like(edges) if total is None else np.interp(edges, times, total, left=0.0)
    flowed = np.diff(reached)
    if not long.all():
        bins = np.clip(np.searchsorted(edges, start[~long], "right") - 1, 0, len(edges) - 2)
        np.add.at(flowed, bins, amount[~long])
    return flowed / np.diff(edges)


def multiplier_rates(
    spans: Spans,
    commands: TimedArray,
    machine: Machine,
    kernels: Sequence[str],
    planned: Mapping[str, PlannedKernel],
    edges: Floats,
) -> Floats | None:
    """The part of the multipliers that computes between edges: each kernel's cycles at peak, spread
    over its computes as long as they take. None where no kernel's are known."""
    moving = {move.engine for move in machine.moves}
    computing = [n for n, engine in enumerate(machine.engines) if engine.name not in moving]
    peaks = np.array([(planned.get(n) or PlannedKernel()).peak_cycles or 0.0 for n in kernels])
    known = np.append(peaks, 0.0)[np.minimum(commands["kernel"], len(peaks))] > 0
    mine = np.isin(commands["engine"], computing) & (commands["move"] < 0) & known
    taken = (spans.end - spans.data)[mine]
    kernel = commands["kernel"][mine]
    busy = np.bincount(kernel, weights=taken, minlength=len(peaks))
    if not taken.any():
        return None
    share = np.divide(peaks, busy, out=np.zeros_like(peaks), where=busy > 0)
    return flow_rates(spans.data[mine], spans.end[mine], taken * share[kernel], edges)


def _steps(edges: Floats, rates: Floats) -> tuple[list[float], list[float]]:
    """Times and values where they change, with a zero at the end."""
    values = np.round(np.append(rates, 0.0), 9)
    changed = np.append(True, values[1:] != values[:-1])
    return edges[changed].tolist(), values[changed].tolist()

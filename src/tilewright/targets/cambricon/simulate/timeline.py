"""A run's events as the timeline and the commands that every target's trace is written from."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path

import numpy as np

from tilewright.machine import Machine
from tilewright.simulate.commands import TimedArray, timed_table
from tilewright.simulate.timing import Timeline
from tilewright.simulate.trace import write_trace
from tilewright.targets.cambricon.formats import UNITS
from tilewright.targets.cambricon.isa import decode
from tilewright.targets.cambricon.simulate.simulator import Result
from tilewright.targets.cambricon.statements import Statement, Words, mnemonic_text


def write_events(
    path: Path,
    result: Result,
    words: Words,
    machine: Machine,
    *,
    kernels: Sequence[str] = (),
    nodes: Sequence[Sequence[str]] = (),
) -> None:
    """Write a run's events for Perfetto; the run must have kept them.

    ``kernels`` and ``nodes`` name the kernels and their model nodes. Instructions of the units and
    transfers are shown under their mnemonics; scalar instructions are not.
    """
    shown, timeline, commands = timed(result, machine)
    numbers = result.events[shown, 0]
    names: dict[int, str] = {}
    for word in np.unique(numbers).tolist():
        decoded = decode(int(words[word]))
        names[word] = mnemonic_text(Statement(decoded.instruction.mnemonic, (), decoded.modifiers))
    write_trace(
        path,
        timeline,
        commands,
        machine,
        kernels=kernels,
        nodes=nodes,
        label=lambda command: names[int(numbers[command])],
    )


def timed(result: Result, machine: Machine) -> tuple[np.ndarray, Timeline, TimedArray]:
    """Which events belong to the machine's engines, and these as a timeline of commands."""
    engines = [engine.name for engine in machine.engines]
    number = np.array([engines.index(unit) if unit in engines else -1 for unit in UNITS])
    engine = number[result.events[:, 1]]
    shown = np.flatnonzero(engine >= 0)
    commands = timed_table(shown.size)
    commands["engine"] = engine[shown]
    commands["kernel"] = result.events[shown, 2]
    commands["bytes"] = result.events[shown, 3]
    start, end = result.times[shown, 0], result.times[shown, 1]
    commands["cycles"] = np.ceil(end - start)
    latency = np.zeros(len(engines))
    for move in machine.moves:
        latency[engines.index(move.engine)] = move.latency
    timeline = Timeline(
        start=start,
        data=np.minimum(start + latency[commands["engine"]], end),
        end=end,
        cycles=ceil(result.cycles),
        busy=np.array([result.busy[name] for name in engines]),
        main_bytes=result.main_bytes,
        kernel_start=np.where(np.isfinite(result.kernel_start), result.kernel_start, 0.0),
        kernel_end=result.kernel_end,
        kernel_bytes=result.kernel_bytes,
    )
    return shown, timeline, commands

"""A run's events as the commands and times that every target's trace is written from."""

from __future__ import annotations

import numpy as np

from tilewright.machine import Machine
from tilewright.simulate.commands import timed_table
from tilewright.simulate.timing import Spans
from tilewright.simulate.trace import Events
from tilewright.targets.cambricon.formats import UNITS
from tilewright.targets.cambricon.isa import decode
from tilewright.targets.cambricon.simulate.simulator import Result
from tilewright.targets.cambricon.statements import Statement, Words, mnemonic_text


def events_of(result: Result, words: Words, machine: Machine) -> Events:
    """Return a run's events for a trace; the run must have kept them.

    Instructions of the machine's engines and transfers are shown under their mnemonics; others,
    which are the scalar unit's, are not.
    """
    engines = [engine.name for engine in machine.engines]
    number = np.array([engines.index(unit) if unit in engines else -1 for unit in UNITS])
    engine = number[result.events[:, 1]]
    shown = np.flatnonzero(engine >= 0)
    commands = timed_table(shown.size)
    commands["engine"] = engine[shown]
    commands["kernel"] = result.events[shown, 2]
    commands["bytes"] = result.events[shown, 3]
    latency = np.zeros(len(engines))
    for move in machine.moves:
        latency[engines.index(move.engine)] = move.latency
    start, end = result.times[shown].T
    data = np.minimum(start + latency[commands["engine"]], end)
    numbers = result.events[shown, 0]
    names: dict[int, str] = {}
    for word in np.unique(numbers).tolist():
        decoded = decode(int(words[word]))
        names[word] = mnemonic_text(Statement(decoded.instruction.mnemonic, (), decoded.modifiers))
    spans = Spans(start, data, end, result.kernel_end, result.kernel_bytes)
    return spans, commands, lambda command: names[int(numbers[command])]

"""Programs whose engines signal one another: their signals and waits as counts of commands.

A target says which of its instructions signal, which wait, and which are barriers; what goes with
what follows from their order alone. Timing and the search for races know counts of commands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.machine import Machine
from tilewright.simulate.commands import TimedArray
from tilewright.simulate.events import EVENT, EventArray, Matched, counts, match
from tilewright.simulate.races import completed_before

Column = NDArray[np.int64]


@dataclass(frozen=True)
class Ordering:
    """Signals and waits of a program, matched."""

    machine: Machine
    events: EventArray
    rows: Column
    """The instruction of each event."""
    source: NDArray[np.int16]
    """The engine that signals, of each event; of waits for reply words it follows from them."""
    matched: Matched
    barriers: Column
    """The instructions that are barriers."""


class Signals:
    """The signals, waits and barriers of a program, gathered kind by kind; ``engine`` has each
    command's engine."""

    def __init__(self, engine: Column, machine: Machine) -> None:
        self.engine, self.machine = engine, machine
        self._position = np.zeros(len(engine), np.int64)
        for number in range(len(machine.engines)):
            mine = np.flatnonzero(engine == number)
            self._position[mine] = np.arange(mine.size)
        self._tables = [np.zeros(0, EVENT)]
        self._rows = [np.zeros(0, np.int64)]
        self._values = [np.zeros(0, np.int64)]
        self.barriers = [np.zeros(0, np.int64)]
        """The commands that are barriers."""

    def add(
        self,
        commands: Column,
        source: Column | int,
        target: Column | int,
        number: Column | int,
        *,
        signal: bool,
        value: Column | int = 0,
    ) -> None:
        """Add what commands signal, or wait for: an id of an ordered pair of engines."""
        table = np.zeros(commands.size, EVENT)
        table["place"] = self._position[commands] + signal
        table["source"], table["target"], table["id"] = source, target, number
        table["signal"] = signal
        self._tables.append(table)
        self._rows.append(commands)
        self._values.append(np.broadcast_to(np.asarray(value, np.int64), commands.shape))

    def ordering(self) -> Ordering:
        """All of them, matched."""
        table, row = np.concatenate(self._tables), np.concatenate(self._rows)
        value = np.concatenate(self._values)
        sort = np.lexsort((table["signal"], row))
        table, row, value = table[sort], row[sort], value[sort]
        replies = self.machine.synchronisation.style == "replies"
        matched = match(table, self.machine.synchronisation.limit, value if replies else None)
        source = table["source"].copy()
        if replies:
            source = self.engine[row].astype(np.int16)
            source[matched.waits] = source[matched.signals]
        barriers = np.sort(np.concatenate(self.barriers))
        return Ordering(self.machine, table, row, source, matched, barriers)


def ordered(table: TimedArray, ordering: Ordering, name: Callable[[int], str]) -> TimedArray:
    """The records with counts in place of signals; raises TilewrightError (``program-deadlock``)
    for a wait that nothing answers."""
    if ordering.matched.unanswered.size:
        event = int(ordering.matched.unanswered[0])
        raise refuse(
            "program-deadlock",
            f"{name(int(ordering.rows[event]))} waits for ever: too few signals before it",
            help="add the signal, or remove the wait",
        )
    told = counts(ordering.events, ordering.matched)
    waits = ordering.matched.waits
    np.maximum.at(
        table["waits"], (ordering.rows[waits], ordering.source[waits]), told[waits].astype(np.int32)
    )
    engine = table["engine"]
    sums = np.stack([np.cumsum(engine == e) for e in range(len(ordering.machine.engines))])
    places = [np.flatnonzero(engine == e) for e in range(len(sums))]
    for row in ordering.barriers.tolist():
        issuing = int(engine[row])
        for other in range(len(sums)):
            if other == issuing:
                continue
            table["waits"][row, other] = max(table["waits"][row, other], sums[other][row])
            after = np.searchsorted(places[other], row)
            if after < places[other].size:
                following = places[other][after]
                waiting = table["waits"][following]
                waiting[issuing] = max(waiting[issuing], sums[issuing][row])
    return table


def refuse_faults(table: TimedArray, ordering: Ordering, name: Callable[[int], str]) -> None:
    """Refuse (``program-event``) signals that nothing waits for, and those that are given again
    before what they signal is taken; ``table`` has the counts."""
    problems: list[Problem] = []
    for event in ordering.matched.unused[:5].tolist():
        where = name(int(ordering.rows[event]))
        problems.append(Problem("program-event", "sends a signal that nothing waits for", where))
    matched = ordering.matched
    if matched.again.size:
        known = completed_before(table, len(ordering.machine.engines))
        again, taken = matched.again, matched.taken
        rows = ordering.rows
        waiting = table["engine"][rows[taken]].astype(np.int64)
        signalling = table["engine"][rows[again]]
        done = known[rows[again], waiting]
        missed = np.flatnonzero((done <= ordering.events["place"][taken]) & (waiting != signalling))
        for at in missed[:5].tolist():
            problems.append(
                Problem(
                    "program-event",
                    f"signals again what {name(int(rows[taken[at]]))} may not have taken yet",
                    name(int(rows[again[at]])),
                )
            )
    if problems:
        raise TilewrightError(problems)

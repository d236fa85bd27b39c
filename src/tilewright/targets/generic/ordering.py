"""The order of engines in programs of machines with flags, reply words or tokens.

Programs say it by signals and waits (families/ordering.py); timing and the check of races know
counts of commands. What goes with what is found here, from the words alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.words import Column, Columns
from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.machine import Machine
from tilewright.simulate.commands import TimedArray
from tilewright.simulate.events import EVENT, EventArray, Matched, counts, match
from tilewright.simulate.races import completed_before
from tilewright.targets.generic.families.ordering import others
from tilewright.targets.generic.isa import Instruction

Group = tuple[Instruction, Columns, Column]
"""Instructions of one kind: their fields, and their places in the program."""


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


def ordering_of(engine: Column, groups: Iterable[Group], machine: Machine) -> Ordering:
    """The signals and waits of a program, of which ``engine`` has each instruction's engine."""
    position = np.zeros(len(engine), np.int64)
    for number in range(len(machine.engines)):
        mine = np.flatnonzero(engine == number)
        position[mine] = np.arange(mine.size)
    tables: list[EventArray] = []
    rows: list[Column] = []
    values: list[Column] = []
    barriers = [np.zeros(0, np.int64)]
    index = {description.name: number for number, description in enumerate(machine.engines)}

    def add(
        places: Column,
        source: Column | int,
        target: Column | int,
        number: Column | int,
        *,
        signal: bool,
        value: Column | int = 0,
    ) -> None:
        table = np.zeros(places.size, EVENT)
        table["place"] = position[places] + signal
        table["source"], table["target"], table["id"] = source, target, number
        table["signal"] = signal
        tables.append(table)
        rows.append(places)
        values.append(np.broadcast_to(np.asarray(value, np.int64), places.shape))

    for instruction, columns, places in groups:
        own = machine.engines[instruction.engine]
        other = np.array([index[name] for name in others(machine, own)], np.int64)
        flags = machine.synchronisation.style == "flags"
        if instruction.family.name == "barrier":
            barriers.append(places)
        elif instruction.family.name == "signal" and flags:
            add(places, instruction.engine, other[columns["to"]], columns["id"], signal=True)
        elif instruction.family.name == "wait" and flags:
            add(places, other[columns["from"]], instruction.engine, columns["id"], signal=False)
        elif instruction.family.name == "wait":
            add(places, 0, 0, columns["word"], signal=False, value=columns["value"])
        if "reply" in columns:
            for word in range(machine.synchronisation.count):
                mine = (columns["reply"] >> word & 1).astype(np.bool_)
                add(places[mine], 0, 0, word, signal=True)
        for field in ("take", "put"):
            for number in other.tolist() if field in columns else ():
                mine = (columns[field] >> number & 1).astype(np.bool_)
                pair = (
                    (instruction.engine, number) if field == "put" else (number, instruction.engine)
                )
                add(places[mine], *pair, 0, signal=field == "put")
    table = np.concatenate(tables or [np.zeros(0, EVENT)])
    row = np.concatenate(rows or [np.zeros(0, np.int64)])
    value = np.concatenate(values or [np.zeros(0, np.int64)])
    sort = np.lexsort((table["signal"], row))
    table, row, value = table[sort], row[sort], value[sort]
    limit = machine.synchronisation.limit
    matched = match(table, limit, value if machine.synchronisation.style == "replies" else None)
    source = table["source"].copy()
    if machine.synchronisation.style == "replies":
        source = engine[row].astype(np.int16)
        source[matched.waits] = source[matched.signals]
    return Ordering(machine, table, row, source, matched, np.sort(np.concatenate(barriers)))


def ordered(table: TimedArray, ordering: Ordering, name: Callable[[int], str]) -> TimedArray:
    """The records with counts in place of signals; raises TilewrightError (``program-deadlock``)
    for a wait that nothing answers."""
    if ordering.matched.unanswered.size:
        event = int(ordering.matched.unanswered[0])
        raise refuse(
            "program-deadlock",
            f"{name(int(ordering.rows[event]))} waits for ever: nothing before it signals so often",
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
        own = int(engine[row])
        for other in range(len(sums)):
            if other == own:
                continue
            table["waits"][row, other] = max(table["waits"][row, other], sums[other][row])
            after = np.searchsorted(places[other], row)
            if after < places[other].size:
                following = places[other][after]
                waiting = table["waits"][following]
                waiting[own] = max(waiting[own], sums[own][row])
    return table


def refuse_faults(table: TimedArray, ordering: Ordering, name: Callable[[int], str]) -> None:
    """Refuse (``program-event``) signals that nothing waits for, and those that are given again
    before what they signal is taken; ``table`` has the counts."""
    problems: list[Problem] = []
    for event in ordering.matched.unused[:5].tolist():
        where = name(int(ordering.rows[event]))
        problems.append(Problem("program-event", "signals what nothing waits for", where))
    matched = ordering.matched
    if matched.again.size:
        known = completed_before(table, len(ordering.machine.engines))
        again, taken = matched.again, matched.taken
        rows = ordering.rows
        waiting = table["engine"][rows[taken]].astype(np.int64)
        signalling = table["engine"][rows[again]]
        done = known[rows[again], waiting]
        late = np.flatnonzero((done <= ordering.events["place"][taken]) & (waiting != signalling))
        for at in late[:5].tolist():
            problems.append(
                Problem(
                    "program-event",
                    f"signals again what {name(int(rows[taken[at]]))} may not have taken yet",
                    name(int(rows[again[at]])),
                )
            )
    if problems:
        raise TilewrightError(problems)

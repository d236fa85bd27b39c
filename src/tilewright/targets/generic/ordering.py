"""The order of engines in programs of machines with flags, reply words or tokens.

Programs order engines by signals and waits (families/ordering.py); timing and the race check use
counts of commands. This module pairs each wait with its signal, from the instruction words alone.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tilewright.codegen.words import Column, Columns
from tilewright.machine import Machine
from tilewright.simulate.ordering import Ordering, Signals
from tilewright.targets.generic.families.ordering import others
from tilewright.targets.generic.isa import Instruction

Group = tuple[Instruction, Columns, Column]
"""Instructions of one kind: their fields, and their places in the program."""


def ordering_of(engine: Column, groups: Iterable[Group], machine: Machine) -> Ordering:
    """The signals and waits of a program, of which ``engine`` has each instruction's engine."""
    signals = Signals(engine, machine)
    index = {description.name: number for number, description in enumerate(machine.engines)}
    add = signals.add
    for instruction, columns, places in groups:
        runs_on = machine.engines[instruction.engine]
        other = np.array([index[name] for name in others(machine, runs_on)], np.int64)
        flags = machine.synchronisation.style == "flags"
        if instruction.family.name == "barrier":
            signals.barriers.append(places)
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
    return signals.ordering()

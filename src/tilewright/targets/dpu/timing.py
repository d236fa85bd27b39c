"""Time and synchronisation of a program: its operations as commands of the shared timing core.

Every class of instructions is an engine; tokens become counted waits. What is not modelled: the
bank arbiter (two engines may use a bank in one cycle without a delay), and the fetch of words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import Problem, TilewrightError
from tilewright.machine import parse_expression
from tilewright.simulate import (
    Timeline,
    UnwrittenRead,
    access_table,
    find_races,
    simulate,
    timed_table,
)
from tilewright.simulate.commands import AccessArray, TimedArray
from tilewright.targets.dpu.core import DEPTH, Core
from tilewright.targets.dpu.footprint import CONSTANT, Footprint, Footprints, Span, footprint
from tilewright.targets.dpu.formats import CATEGORIES
from tilewright.targets.dpu.isa import REVISIONS
from tilewright.targets.dpu.machine import machine_of
from tilewright.targets.dpu.operations import Operation
from tilewright.targets.dpu.places import Rows
from tilewright.targets.dpu.tokens import match

REGISTER_STEP = 1 << 30
"""Distance of base registers in the addresses of main memory: what two of them address is
taken to be apart."""


@dataclass(frozen=True)
class Report:
    """The findings of the check of a program's synchronisation."""

    races: tuple[Problem, ...]
    """``program-race``: two instructions, the memory and the place that both touch."""
    deadlocks: tuple[Problem, ...]
    left: tuple[Problem, ...]
    """Tokens that nothing takes."""
    unwritten: tuple[UnwrittenRead, ...]
    """Bank rows that are read before anything has written them; their bytes may not matter."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All that makes the program wrong."""
        return (*self.deadlocks, *self.races, *self.left)

    @property
    def race_free(self) -> bool:
        """True if every order that the engines may take gives the same result."""
        return not self.problems


def commands_of(core: Core, operations: Sequence[Operation]) -> TimedArray:
    """TIMED records of a program.

    Raises TilewrightError (``program-deadlock``) where tokens are missing, and what ``footprint``
    refuses.
    """
    matched = match(operations)
    if matched.starved:
        raise TilewrightError(matched.starved)
    for operation in operations:
        if operation.mnemonic in ("load", "save"):
            footprint(core, operation)
    engines = [operation.engine for operation in operations]
    named = [(operation.mnemonic, operation.fields) for operation in operations]
    return timed_commands(core, engines, named, matched.waits)


def timed_commands(
    core: Core,
    engines: Sequence[int],
    instructions: Sequence[tuple[str, Mapping[str, int]]],
    waits: NDArray[np.int64],
) -> TimedArray:
    """TIMED records of instructions by name, with the fields that they and their INITs have set;
    those that are left out are 1 where they count something."""
    table = timed_table(len(instructions))
    table["engine"] = engines
    table["waits"][:, : len(CATEGORIES)] = waits
    by_name: dict[str, list[int]] = {}
    for row, (name, _) in enumerate(instructions):
        by_name.setdefault(name, []).append(row)
    transfers = by_name.pop("load", []), by_name.pop("save", [])
    for name, rows in by_name.items():
        cycles = parse_expression(REVISIONS[core.isa].by_mnemonic[name].cycles)
        counts = {n: np.array([instructions[r][1].get(n, 1) for r in rows]) for n in cycles.names}
        table["cycles"][rows] = cycles.evaluate(counts)
    moves = sorted(transfers[0] + transfers[1])
    groups = list(core.bank_groups)
    of_bank = [groups.index(group) for group in core.group_of_bank]
    fields = [instructions[row][1] for row in moves]
    saves = np.array([instructions[row][0] == "save" for row in moves], np.int64)
    table["move"][moves] = saves * len(groups) + [of_bank[f.get("bank_id", 0)] for f in fields]
    table["bytes"][moves] = [
        0 if f.get("broadcast", 0) == CONSTANT else f.get("channel", 1) * f.get("length", 1)
        for f in fields
    ]
    table["latency"][moves] = core.latency
    return table


def time_program(core: Core, operations: Sequence[Operation]) -> Timeline:
    """Timeline of a program; raises TilewrightError (``program-deadlock``)."""
    return simulate(
        commands_of(core, operations), machine_of(core), label=lambda i: operations[i].text
    )


def accesses_of(core: Core, touched: Sequence[Footprint]) -> AccessArray:
    """ACCESS records of a program's footprints; memory 0 is main memory, then the bank groups."""
    records: list[tuple[int, int, bool, int, int, int, int]] = []
    for command, touch in enumerate(touched):
        for span, write in ((touch.loads, False), (touch.stores, True)):
            if span is not None:
                records.append(_of_span(command, span, write))
        for rows, write in ((touch.reads, False), (touch.writes, True)):
            records += _of_rows(core, command, rows, write)
    table = access_table(len(records))
    if records:
        command, memory, write, address, run, count, stride = zip(*records, strict=True)
        table["command"], table["memory"], table["write"] = command, memory, write
        table["address"], table["run"] = address, run
        table["count"][:, 0], table["stride"][:, 0] = count, stride
    return table


def _of_span(command: int, span: Span, write: bool) -> tuple[int, int, bool, int, int, int, int]:
    address = span.register * REGISTER_STEP + span.address
    return command, 0, write, address, span.run, span.count, span.stride


def _of_rows(
    core: Core, command: int, rows: Rows, write: bool
) -> list[tuple[int, int, bool, int, int, int, int]]:
    """Records of ascending bank rows: per bank, runs of equal length and distance are one."""
    if not rows.size:
        return []
    breaks = np.flatnonzero((np.diff(rows) != 1) | (rows[1:] % DEPTH == 0)) + 1
    first = np.concatenate([[0], breaks])
    last = np.concatenate([breaks, [rows.size]])
    starts, runs = rows[first], last - first
    accesses: list[tuple[int, int, bool, int, int, int, int]] = []
    banks = starts // DEPTH
    for bank in np.unique(banks).tolist():
        mine = banks == bank
        group = core.group_of_bank[bank]
        memory = 1 + core.bank_groups.index(group)
        begin = (starts[mine] - group.first * DEPTH) * core.channels
        size = runs[mine] * core.channels
        steps = np.diff(begin)
        if (size == size[0]).all() and (steps.size == 0 or (steps == steps[0]).all()):
            stride = int(steps[0]) if steps.size else 0
            accesses.append(
                (command, memory, write, int(begin[0]), int(size[0]), len(begin), stride)
            )
        else:
            accesses += [
                (command, memory, write, int(a), int(n), 1, 0)
                for a, n in zip(begin, size, strict=True)
            ]
    return accesses


def check_program(core: Core, operations: Sequence[Operation]) -> Report:
    """Races, deadlocks, and tokens that are left over; no data is needed.

    Raises TilewrightError (``program-field``, ``program-bounds``) for operations that the core
    cannot execute.
    """
    footprints = Footprints(core)
    touched = [footprints.of(operation) for operation in operations]
    matched = match(operations)
    if matched.starved:
        return Report((), matched.starved, matched.left, ())
    table, accesses = commands_of(core, operations), accesses_of(core, touched)
    try:
        report = find_races(table, accesses, machine_of(core), label=lambda i: operations[i].text)
    except TilewrightError as error:
        deadlocks = tuple(
            problem for problem in error.problems if problem.code == "program-deadlock"
        )
        if len(deadlocks) != len(error.problems):
            raise
        return Report((), deadlocks, matched.left, ())
    races = tuple(
        Problem(
            "program-race",
            f"and {operations[race.second].name} both touch "
            f"{_place(core, race.memory, race.address)}, and nothing orders them",
            operations[race.first].name,
            "a token from the earlier one's class to the later one's",
        )
        for race in report.races
    )
    return Report(races, (), matched.left, report.unwritten)


def _place(core: Core, memory: str, address: int) -> str:
    """A place in words."""
    if memory == "dram":
        register, byte = divmod(address, REGISTER_STEP)
        return f"byte {byte:#x} after register {register}"
    row = address // core.channels
    return f"bank {core.group(memory).first + row // DEPTH} ({memory}), row {row % DEPTH:#x}"

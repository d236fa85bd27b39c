"""From instructions to the records of the timing core and of the race check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.codegen.words import Column, Columns
from tilewright.errors import refuse
from tilewright.machine import Machine
from tilewright.machine.expression import parse_expression
from tilewright.simulate.accesses import bandwidth_bytes, records
from tilewright.simulate.commands import (
    TIMED,
    AccessArray,
    TimedArray,
    timed_table,
)
from tilewright.simulate.ordering import ordered, refuse_faults
from tilewright.simulate.races import RaceReport, find_races
from tilewright.simulate.timing import Timeline, simulate
from tilewright.targets.generic.isa import Instruction
from tilewright.targets.generic.ordering import Group, ordering_of
from tilewright.targets.generic.program import Program


def timed_of(
    instruction: Instruction, columns: Columns, count: int, machine: Machine
) -> TimedArray:
    """TIMED records of instructions of one kind; kernels are left at 0."""
    table = timed_table(count)
    table["engine"] = instruction.engine
    for index, engine in enumerate(machine.engines):
        if f"wait.{engine.name}" in columns:
            table["waits"][:, index] = columns[f"wait.{engine.name}"]
    if instruction.move is not None:
        table["move"] = machine.moves.index(instruction.move)
        table["latency"] = instruction.move.latency
        table["bytes"] = moved_bytes(instruction, columns, machine)
    elif instruction.primitive is not None:
        expression = parse_expression(instruction.primitive.cycles)
        cycles: Any = np.asarray(expression.evaluate(instruction.family.dims(columns)))
        table["cycles"] = np.ceil(cycles) if cycles.dtype.kind == "f" else cycles
    return table


def moved_bytes(instruction: Instruction, columns: Columns, machine: Machine) -> Column:
    """Bytes of bandwidth that transfers cost."""
    move = instruction.move
    assert move is not None
    touches = instruction.family.charged(machine, move, columns)
    return np.sum([bandwidth_bytes(touch, move) for touch in touches], axis=0)


def timed_program(program: Program, kernels: Column) -> TimedArray:
    """TIMED records of a whole program; ``kernels`` has the kernel of every instruction."""
    machine = program.instructions.machine
    table = np.zeros(program.size, TIMED)
    for group in program.groups:
        timings = timed_of(group.instruction, group.columns, group.rows.size, machine)
        table[group.rows] = timings
    table["kernel"] = kernels
    return whole_program(table, machine, groups_of(program))


def groups_of(program: Program) -> list[Group]:
    """The instructions of each kind."""
    return [(group.instruction, group.columns, group.rows) for group in program.groups]


def whole_program(table: TimedArray, machine: Machine, groups: Sequence[Group]) -> TimedArray:
    """Return a program's records with what follows from their order: fetches, waits and signals.

    ``groups`` has the fields that order engines, where they signal one another.
    """
    table = _one_at_a_time(_with_fetches(table, machine), machine)
    if not machine.synchronisation.signals:
        return table
    return ordered(table, ordering_of(table["engine"], groups, machine), _namer(groups))


def _namer(groups: Sequence[Group]) -> Callable[[int], str]:
    """Instructions by their places, for messages."""

    def name(row: int) -> str:
        for instruction, _, rows in groups:
            place = int(np.searchsorted(rows, row))
            if place < len(rows) and int(rows[place]) == row:
                return f"instruction {row} ({instruction.mnemonic})"
        return f"instruction {row}"

    return name


def _with_fetches(table: TimedArray, machine: Machine) -> TimedArray:
    """Charge the bandwidth of main memory for the instruction words.

    Words stream in over the bus of main memory: each of its transfers carries its own word and
    those issued since its transfer before; the last carries what follows it, too.
    """
    main = [machine.main in (move.source, move.target) for move in machine.moves]
    transfers = np.flatnonzero(np.append(main, False)[table["move"]])
    if transfers.size:
        words = np.diff(transfers, prepend=-1)
        words[-1] += len(table) - 1 - transfers[-1]
        table["bytes"][transfers] += words * machine.instruction_bytes
    return table


def _one_at_a_time(table: TimedArray, machine: Machine) -> TimedArray:
    """The records of a machine without synchronisation: each waits for all before it.

    Such a machine runs one command at a time, so that its programs need no waits; here the order
    is written as waits, which the timing core and the race check understand.
    """
    if machine.synchronisation.style != "none":
        return table
    for engine in range(len(machine.engines)):
        mine = table["engine"] == engine
        table["waits"][:, engine] = np.cumsum(mine) - mine
    return table


def time_program(program: Program, kernels: Column) -> Timeline:
    """Simulated times of a program; raises TilewrightError if it never ends."""
    return simulate(
        timed_program(program, kernels),
        program.instructions.machine,
        label=lambda row: f"instruction {row}",
    )


def accesses_of(program: Program) -> AccessArray:
    """ACCESS records of a whole program."""
    machine = program.instructions.machine
    names = [memory.name for memory in machine.memories]
    parts: list[AccessArray] = []
    for group in program.groups:
        instruction = group.instruction
        part = instruction.move or instruction.primitive
        seen = program.instructions.machines[instruction.opcode]
        touches = instruction.family.touches(seen, part, group.columns)
        parts.append(records(touches, group.rows, names))
    accesses = np.concatenate(parts) if parts else records([], np.zeros(0, np.int64), names)
    return accesses[np.argsort(accesses["command"], kind="stable")]


def check_races(program: Program, kernels: Column) -> RaceReport:
    """Races of a program. Refuses signals that do not go with its waits (``program-event``)."""
    commands = timed_program(program, kernels)
    machine, groups = program.instructions.machine, groups_of(program)
    if machine.synchronisation.signals:
        ordering = ordering_of(commands["engine"], groups, machine)
        refuse_faults(commands, ordering, _namer(groups))
    return find_races(commands, accesses_of(program), program.instructions.machine)


def check_bounds(program: Program, sizes: dict[str, int]) -> None:
    """Refuse (``simulate-bounds``) instructions that reach outside the memories."""
    for group in program.groups:
        instruction = group.instruction
        seen = program.instructions.machines[instruction.opcode]
        for touch in instruction.family.touches(
            seen, instruction.move or instruction.primitive, group.columns
        ):
            bad = touch.used & ((touch.end > sizes.get(touch.memory, 0)) | (touch.address < 0))
            if bad.any():
                index = int(np.flatnonzero(bad)[0])
                raise refuse(
                    "simulate-bounds",
                    f"{instruction.mnemonic} reaches "
                    f"{touch.memory}:{int(touch.end[index]) - 1:#x}; "
                    f"{touch.memory} has {sizes.get(touch.memory, 0)} bytes",
                    f"instruction {int(group.rows[index])}",
                )

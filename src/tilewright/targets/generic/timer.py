"""The planner's timer: simulated cycles of one kernel under one schedule, no values computed.

Times need sizes, bytes and waits but no addresses on the chip, so this makes the records of the
timing core from the tile program directly. Whole programs are always timed from decoded words;
tests hold the two against each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate

import numpy as np

from tilewright.codegen.program.interface import CompiledKernel, RunTimer
from tilewright.codegen.words import Column, Columns
from tilewright.ir.arenas import WEIGHTS
from tilewright.machine import Machine
from tilewright.planning import Timer
from tilewright.planning.chains.known import Recent, sized
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Schedule
from tilewright.simulate.commands import TimedArray, timed_table
from tilewright.simulate.timing import simulate
from tilewright.targets.generic.functions import TABLES
from tilewright.targets.generic.isa import Instruction, InstructionSet, derive
from tilewright.targets.generic.lower import KernelLowering, Lowering
from tilewright.targets.generic.lowering.carried import Carried
from tilewright.targets.generic.program import Part
from tilewright.targets.generic.timing import timed_of, whole_program
from tilewright.tile.dialect import ComputeOp, ProgramOp
from tilewright.tile.lower import tile
from tilewright.tile.queues import Command
from tilewright.tile.tensors import Placement, separate_arenas

MOST_ALONE = 4096
"""Kernels under schedules whose commands a process keeps, for machines of other bandwidths."""

MOST_IN_ROWS = 1024
"""Programs whose lowering a process keeps, likewise."""

MOST_ROWS = 512
"""Rows of programs whose commands a process keeps, likewise."""

_alone = Recent[TimedArray](MOST_ALONE)
_in_rows = Recent[tuple[KernelLowering, "Costs"]](MOST_IN_ROWS)
_rows = Recent[tuple[Sequence[ProgramOp], TimedArray]](MOST_ROWS)


def timer(machine: Machine, instructions: InstructionSet | None = None) -> Timer:
    """Simulated cycles of a kernel that runs alone, its operands dense in main memory.

    Function tables count as loaded: in a network they stay from kernel to kernel.
    """
    known = instructions or derive(machine)

    def commands(kernel: Kernel, schedule: Schedule) -> TimedArray:
        placements, lowering = placed_alone(kernel, known)
        program = tile(kernel, schedule, known.machine, placements, check=False)
        return timed_kernel(program, lowering)

    def cycles(kernel: Kernel, schedule: Schedule) -> float:
        key = sized(known.machine), kernel, schedule
        table = _alone.get(key, lambda: commands(kernel, schedule))
        return float(simulate(table, known.machine).cycles)

    return cycles


def run_timer(instructions: InstructionSet, arenas: Mapping[str, int]) -> RunTimer:
    """Simulated cycles of kernels that run one after the other, in order by their waits.

    A program that is timed beside others again is lowered once, and its commands' costs are known.
    """
    place = sized(instructions.machine), *arenas.items()

    def known(program: ProgramOp, lowering: Lowering) -> tuple[KernelLowering, Costs]:
        kernel = KernelLowering(lowering, program)
        return kernel, {op: _timed(op, kernel) for op in kernel.all}

    def commands(programs: Sequence[ProgramOp]) -> tuple[Sequence[ProgramOp], TimedArray]:
        lowering, timed = _lowering(instructions, arenas), list[_Timed]()
        for number, program in enumerate(programs):
            key = place, id(program)
            lowered, costs = _in_rows.get(key, partial(known, program, lowering))
            lowered.append_to(lowering)
            for part in lowering.kernels[-1]:
                table = _timed_part(part, lowering.machine, costs)
                keys = np.full(part.keys.size, number), part.keys
                timed.append((table, keys, part.instruction, part.columns))
        return programs, _in_order(timed, lowering.machine)

    def cycles(kernels: Sequence[CompiledKernel]) -> float:
        programs = [program for kernel in kernels for program in kernel.programs]
        # Programs are kept with what is known of them, so that no others have their ids.
        key = place, *map(id, programs)
        _, table = _rows.get(key, partial(commands, programs))
        return float(simulate(table, instructions.machine).cycles)

    return cycles


def placed_alone(
    kernel: Kernel, instructions: InstructionSet
) -> tuple[Mapping[str, Placement], Lowering]:
    """A place for every operand of a kernel that runs alone, and what lowers it there."""
    placements, sizes = separate_arenas(kernel)
    return placements, _lowering(instructions, sizes)


def _lowering(instructions: InstructionSet, arenas: Mapping[str, int]) -> Lowering:
    apart = len(instructions.machine.homes) > 1
    sizes = [0 if apart and name == WEIGHTS else size for name, size in arenas.items()]
    bases = dict(zip((*arenas, TABLES), accumulate(sizes, initial=0), strict=True))
    return Lowering(instructions, bases | ({WEIGHTS: 0} if apart else {}))


def timed_kernel(program: ProgramOp, lowering: Lowering) -> TimedArray:
    """TIMED records of one program in program order."""
    kernel = KernelLowering(lowering, program)
    carried = Carried(kernel)
    timed = list[_Timed]()
    for op in kernel.all:
        keys = (kernel.order.rows(op).key,)
        timed.append((_timed(op, kernel), keys, kernel.instruction(op), carried.fields(op)))
    for part in carried.parts(lowering.instructions):
        table = _timed_part(part, lowering.machine)
        timed.append((table, (part.keys,), part.instruction, part.columns))
    return _in_order(timed, kernel.machine)


Costs = Mapping[Command, TimedArray]
"""The records of a kernel's commands, but for their waits."""

_Timed = tuple[TimedArray, tuple[Column, ...], Instruction, Columns]
"""Records of instructions of one kind, the keys by which they are sorted (the first counts most),
and their fields."""


def _in_order(timed: Sequence[_Timed], machine: Machine) -> TimedArray:
    """The records of a whole program in program order."""
    sort = np.lexsort(
        [np.concatenate(keys) for keys in zip(*(e[1] for e in timed), strict=True)][::-1]
    )
    place = np.empty(sort.size, np.int64)
    place[sort] = np.arange(sort.size)
    rows = np.split(place, np.cumsum([entry[0].size for entry in timed])[:-1])
    groups = [(entry[2], entry[3], mine) for entry, mine in zip(timed, rows, strict=True)]
    return whole_program(np.concatenate([entry[0] for entry in timed])[sort], machine, groups)


def _timed_part(part: Part, machine: Machine, costs: Costs | None = None) -> TimedArray:
    """TIMED records of instructions of one kind; with those of their command, if these are known,
    waits alone are the part's own."""
    if costs is not None and part.command is not None:
        table = costs[part.command].copy()
        if not machine.synchronisation.signals:
            table["waits"] = 0
            for number, engine in enumerate(machine.engines):
                table["waits"][:, number] = part.columns.get(f"wait.{engine.name}", 0)
        return table
    given, count = part.columns, part.keys.size
    columns = {
        field.name: np.broadcast_to(
            np.asarray(given.get(field.name, field.initial), np.int64), (count,)
        )
        for field in part.instruction.format.fields
    }
    return timed_of(part.instruction, columns, count, machine)


def _timed(op: Command, kernel: KernelLowering) -> TimedArray:
    if isinstance(op, ComputeOp):
        table = timed_table(kernel.order.rows(op).count)
        table["cycles"] = kernel.cycles(op)
    else:
        table = _timed_part(kernel.transfer(op), kernel.machine)
    table["engine"] = kernel.engines.index(op.engine.data)
    if not kernel.machine.synchronisation.signals:
        for name, count in kernel.queues.waits(op).items():
            table["waits"][:, kernel.engines.index(name)] = count
    return table

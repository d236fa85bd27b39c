"""The time of a kernel from its tile program alone, for targets of any kind.

Every command, signal and wait of the program is a record of the timing core: nothing is lowered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tilewright.codegen.program.commands import Commands
from tilewright.codegen.program.interface import CompiledKernel, RunTimer
from tilewright.ir.types import element_size
from tilewright.machine import Machine
from tilewright.planning import Timer
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Schedule
from tilewright.simulate.commands import TimedArray, timed_table, transfer_bytes
from tilewright.simulate.timing import simulate
from tilewright.tile.boxes import box_columns
from tilewright.tile.dialect import ComputeOp, MoveOp, ProgramOp
from tilewright.tile.lower import tile
from tilewright.tile.queues import Command, followers_of
from tilewright.tile.tensors import separate_placements


def tile_timer(machine: Machine) -> Timer:
    """Simulated cycles of a kernel that runs alone under a schedule."""

    def cycles(kernel: Kernel, schedule: Schedule) -> float:
        placements = separate_placements(kernel)
        program = tile(kernel, schedule, machine, placements, check=False)
        return float(simulate(timed_tiles(program, machine), machine).cycles)

    return cycles


def row_timer(machine: Machine) -> RunTimer:
    """Simulated cycles of kernels of which each begins when the one before has ended."""

    def cycles(kernels: Sequence[CompiledKernel]) -> float:
        programs = [program for kernel in kernels for program in kernel.programs]
        return float(simulate(one_by_one(programs, machine), machine).cycles)

    return cycles


def timed_tiles(program: ProgramOp, machine: Machine) -> TimedArray:
    """TIMED records of a program's commands, signals and waits, in program order."""
    commands = Commands(program, machine, {})
    order, queues, engines = commands.order, commands.queues, commands.engines
    tables: list[TimedArray] = [timed_table(0)]
    keys = [np.zeros(0, np.int64)]
    for engine in queues.engines:
        for op in queues.operations(engine):
            rows = order.rows(op)
            table = timed_table(rows.count)
            table["engine"] = engines.index(engine)
            for other, count in queues.waits(op, engine).items():
                table["waits"][:, engines.index(other)] = count
            if isinstance(op, MoveOp | ComputeOp):
                _fill(table, op, commands)
            tables.append(table)
            keys.append(rows.key)
    sort = np.argsort(np.concatenate(keys), kind="stable")
    return np.concatenate(tables)[sort]


def one_by_one(programs: Iterable[ProgramOp], machine: Machine) -> TimedArray:
    """TIMED records of kernels of which each begins when the one before has ended."""
    tables, before = [timed_table(0)], np.zeros(len(machine.engines), np.int32)
    for number, program in enumerate(programs):
        table = timed_tiles(program, machine)
        table["kernel"] = number
        table["waits"][:, : len(before)] += before
        before = before + np.bincount(table["engine"], minlength=len(before)).astype(np.int32)
        tables.append(table)
    return np.concatenate(tables)


def _fill(table: TimedArray, op: Command, commands: Commands) -> None:
    """Fill in a compute's cycles, or a transfer's move, latency and bytes."""
    if isinstance(op, ComputeOp):
        table["cycles"] = commands.cycles(op)
        return
    move, order = commands.move(op), commands.order
    table["move"], table["latency"] = commands.machine.moves.index(move), move.latency
    for part in (op, *followers_of(op)):
        boxes = box_columns(part.buffer.window.data, part.buffer.tensor_shape, order.rows(part))
        element = element_size(part.buffer.result.type.of.element_type)
        table["bytes"] += transfer_bytes(move, element * np.prod(boxes.clamped_size, axis=0))

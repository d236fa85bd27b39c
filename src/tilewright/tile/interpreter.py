"""Runs a tile program on NumPy arrays: the oracle for everything below the tile level.

Arrays are the tensors' logical arrays. The interpreter trusts nothing: what a compute reads must
lie in its buffer, have been written, and belong to the visit that the program means; addresses, if
there are any, are honoured, so buffers that share memory overwrite one another. With
``interleave`` the engines run side by side in a random order that only the waits restrict, and a
missing wait shows as a stale or unwritten buffer.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping

from tilewright.errors import refuse
from tilewright.ir import Block
from tilewright.ir.types import Array
from tilewright.machine import Machine
from tilewright.tile.execution import Dims, Execution, Step
from tilewright.tile.iteration import Order, each_run
from tilewright.tile.operations import (
    BufferOp,
    ComputeOp,
    DomainOp,
    LoopOp,
    MoveOp,
    ProgramOp,
)
from tilewright.tile.queues import Command, Queues, commands_of, leader_of


def run(
    program: ProgramOp,
    tensors: Mapping[str, Array],
    machine: Machine | None = None,
    *,
    interleave: int | None = None,
) -> dict[str, Array]:
    """Run a program on its inputs by name; returns its outputs by name.

    ``machine`` adds checks of capacity. ``interleave`` is the seed of a random order of the
    engines. Raises TilewrightError (``tile-run``) with the operation and the iteration.
    """
    execution = Execution(program, tensors, machine)
    steps = steps_of(program)
    if interleave is None:
        for step in steps:
            execution.execute(step)
    else:
        _interleaved(execution, steps, random.Random(interleave))
    return execution.outputs()


def _interleaved(execution: Execution, steps: list[Step], chance: random.Random) -> None:
    order = Order(execution.program)
    queues, steps = Queues(order), _by_keys(steps, order)
    waits = {op: queues.waits(op) for op in queues.commands}
    waiting: dict[str, deque[tuple[Step, dict[str, int]]]] = {}
    seen: dict[Command, int] = {}
    done: dict[str, int] = {}
    for step in steps:
        row = seen.get(step.op, 0)
        seen[step.op] = row + 1
        # A joined move has no waits of its own and is no command of its own.
        counts = {engine: int(column[row]) for engine, column in waits[step.op].items()}
        waiting.setdefault(step.op.engine.data, deque()).append((step, counts))
    while any(waiting.values()):
        able = [
            engine
            for engine, queue in waiting.items()
            if queue and all(done.get(e, 0) >= n for e, n in queue[0][1].items())
        ]
        if not able:
            raise refuse("tile-run", "every engine waits", execution.program.symbol.data)
        engine = chance.choice(able)
        # Runs of several commands let one engine get far ahead of the others.
        for _ in range(chance.choice((1, 1, 2, 8))):
            queue = waiting[engine]
            if not queue or any(done.get(e, 0) < n for e, n in queue[0][1].items()):
                break
            step, _ = queue.popleft()
            execution.execute(step)
            op = step.op
            followed = bool(queue) and _is_joined(queue[0][0].op, op)
            done[engine] = done.get(engine, 0) + (0 if followed else 1)


def _by_keys(steps: list[Step], order: Order) -> list[Step]:
    """The steps in the order in which they stand in their queues."""
    keys = {op: order.rows(op).key for op in dict.fromkeys(step.op for step in steps)}
    rows: dict[Command, int] = {}
    placed: list[tuple[int, Step]] = []
    for step in steps:
        row = rows.get(step.op, 0)
        rows[step.op] = row + 1
        placed.append((int(keys[step.op][row]), step))
    return [step for _, step in sorted(placed, key=lambda pair: pair[0])]


def _is_joined(op: Command, before: Command) -> bool:
    return (
        isinstance(op, MoveOp)
        and op.joined is not None
        and isinstance(before, MoveOp)
        and leader_of(op) is leader_of(before)
    )


def steps_of(program: ProgramOp) -> list[Step]:
    """Every execution of every command, in program order; refuses more than columns may hold."""
    order = Order(program)
    for op in commands_of(program):
        order.rows(op)
    found: list[Step] = []
    filled: dict[BufferOp, int] = {}

    def walk(
        block: Block, dims: Dims, visits: dict[BufferOp, int], outer: dict[BufferOp, Dims]
    ) -> None:
        for op in block.ops:
            if isinstance(op, (LoopOp, DomainOp)):
                for inner in each_run(op, dims):
                    walk(op.body.block, inner, visits, outer)
            elif isinstance(op, BufferOp):
                visit = filled.get(op, 0)
                filled[op] = visit + 1
                visits, outer = {**visits, op: visit}, {**outer, op: dims}
            elif isinstance(op, (MoveOp, ComputeOp)):
                found.append(Step(op, dims, visits, outer))

    whole = {dim: (0, extent) for dim, extent in program.extents.items()}
    walk(program.body.block, whole, {}, {})
    return found

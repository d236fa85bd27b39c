"""Runs a tile program on NumPy arrays: the oracle for everything below the tile level.

Arrays are the tensors' logical arrays. The interpreter trusts nothing: what a compute reads must
lie in its buffer, have been written, and belong to the visit that the program means; addresses, if
there are any, are honoured, so buffers that share memory overwrite one another. With
``interleave`` the engines run side by side in a random order that only the waits restrict, and a
missing wait shows as a stale or unwritten buffer. Signals and waits for them are then executed as
the machine would: an id counts what it is given and not yet taken.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tests.tile.execution import Dims, Execution, Step
from tests.tile.iterations import each_run
from tilewright.errors import refuse
from tilewright.ir import Block, Operation, to_text
from tilewright.ir.types import Array
from tilewright.machine import Machine
from tilewright.tile.iteration import Order
from tilewright.tile.operations import (
    BarrierOp,
    BufferOp,
    ComputeOp,
    DomainOp,
    EventOp,
    LoopOp,
    MoveOp,
    Ordering,
    ProgramOp,
    SignalOp,
    WaitOp,
)
from tilewright.tile.queues import Command, Queues, commands_of, leader_of

_Any = TypeVar("_Any", bound="Entry")


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
    entries = entries_of(program)
    steps = [entry for entry in entries if isinstance(entry, Step)]
    if interleave is None:
        for step in steps:
            execution.execute(step)
    elif _is_synchronised(program):
        depth = None if machine is None else machine.synchronisation.limit
        _signalled(execution, entries, random.Random(interleave), depth)
    else:
        _interleaved(execution, steps, random.Random(interleave))
    return execution.outputs()


def _is_synchronised(root: Operation) -> bool:
    """Return True if signals or barriers order the engines, not the waits of moves and computes."""
    return any(isinstance(op, (EventOp, BarrierOp)) for op in root.walk())


@dataclass(frozen=True)
class Given:
    """One execution of a signal, a wait for one, or a barrier."""

    op: Ordering
    id: int


Entry = Step | Given
"""An entry of an engine's queue; all engines get a barrier."""


def _signalled(
    execution: Execution, entries: list[Entry], chance: random.Random, depth: int | None
) -> None:
    """Run the engines in a random order that signals and barriers restrict.

    Where one of them gives the others their commands, none is run before that one comes to it, and
    each kind of transfer is a queue of its own: they may end in any order.
    """
    queues: dict[str, deque[tuple[int, Entry]]] = {}
    issuer = execution.program.issuer_name
    for entry in entries:
        for engine in _queues_of(entry, issuer):
            queues[engine] = deque()
    for number, entry in enumerate(_by_keys(entries, Order(execution.program))):
        for engine in _queues_of(entry, issuer) or list(queues):
            queues[engine].append((number, entry))
    raised: dict[tuple[str, str, int], int] = {}

    def able(engine: str) -> bool:
        number, entry = queues[engine][0]
        if issuer and engine != issuer and queues[issuer] and queues[issuer][0][0] < number:
            return False
        if isinstance(entry, Step) or isinstance(entry.op, SignalOp):
            return True
        if isinstance(entry.op, WaitOp):
            return raised.get(_id_of(entry.op, entry.id), 0) > 0
        return all(queue[0][0] >= number for queue in queues.values() if queue)

    while any(queues.values()):
        choices = [engine for engine, queue in queues.items() if queue and able(engine)]
        if not choices:
            stuck = ", ".join(to_text(queue[0][1].op) for queue in queues.values() if queue)
            where = execution.program.symbol.data
            raise refuse("tile-run", f"every engine waits: {stuck}", where)
        engine = chance.choice(choices)
        # Runs of several commands let one engine get far ahead of the others.
        for _ in range(chance.choice((1, 1, 2, 8))):
            if not queues[engine] or not able(engine):
                break
            _, entry = queues[engine].popleft()
            if isinstance(entry, Step):
                execution.execute(entry)
            elif isinstance(entry.op, EventOp):
                named = _id_of(entry.op, entry.id)
                raised[named] = raised.get(named, 0) + (1 if isinstance(entry.op, SignalOp) else -1)
                if depth is not None and raised[named] > depth:
                    where = f"{execution.program.symbol.data}: {to_text(entry.op)}"
                    raise refuse("tile-run", "signals again what was not taken", where)
    left = [named for named, count in raised.items() if count]
    if left:
        source, target, number = left[0]
        raise refuse(
            "tile-run",
            f"id {number} from {source} to {target} is signalled at the end",
            execution.program.symbol.data,
        )


def _queues_of(entry: Entry, issuer: str) -> list[str]:
    """The queues that are given an entry; none for all."""
    engines = _engines_of(entry)
    if not issuer or engines == [issuer] or not engines:
        return engines
    return [f"{engines[0]} {_buffer_of(entry.op)}"]


def _buffer_of(op: Operation) -> str:
    """The name of the buffer of a transfer, or of that whose word is signalled."""
    move = op if isinstance(op, MoveOp) else op.prev_op
    return move.buffer.symbol.data if isinstance(move, MoveOp) else ""


def _engines_of(entry: Entry) -> list[str]:
    """The engines that are given an entry; none for all."""
    match entry.op:
        case SignalOp():
            return [entry.op.source_engine]
        case WaitOp():
            return [entry.op.target_engine]
        case MoveOp() | ComputeOp():
            return [entry.op.engine.data]
        case _:
            return []


def _id_of(op: EventOp, number: int) -> tuple[str, str, int]:
    return op.source_engine, op.target_engine, number


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


def _by_keys(entries: Sequence[_Any], order: Order) -> list[_Any]:
    """Return the entries of the engines in the order of their queues."""
    keys = {op: order.rows(op).key for op in dict.fromkeys(entry.op for entry in entries)}
    rows: dict[Command | Ordering, int] = {}
    placed: list[tuple[int, _Any]] = []
    for entry in entries:
        row = rows.get(entry.op, 0)
        rows[entry.op] = row + 1
        placed.append((int(keys[entry.op][row]), entry))
    return [entry for _, entry in sorted(placed, key=lambda pair: pair[0])]


def _is_joined(op: Command, before: Command) -> bool:
    return (
        isinstance(op, MoveOp)
        and op.joined is not None
        and isinstance(before, MoveOp)
        and leader_of(op) is leader_of(before)
    )


def entries_of(program: ProgramOp) -> list[Entry]:
    """Every execution of every command and of what orders them, in the order of the text.

    Refuses more than columns may hold.
    """
    order = Order(program)
    for op in commands_of(program):
        order.rows(op)
    entries: list[Entry] = []
    filled: dict[BufferOp, int] = {}
    ends: dict[tuple[DomainOp, str], int] = {}

    def walk(
        block: Block, dims: Dims, visits: dict[BufferOp, int], outer: dict[BufferOp, Dims]
    ) -> None:
        for op in block.ops:
            if isinstance(op, (LoopOp, DomainOp)):
                for inner in each_run(op, dims, ends):
                    walk(op.body.block, inner, visits, outer)
            elif isinstance(op, BufferOp):
                visit = filled.get(op, 0)
                filled[op] = visit + 1
                visits, outer = {**visits, op: visit}, {**outer, op: dims}
            elif isinstance(op, (MoveOp, ComputeOp)):
                entries.append(Step(op, dims, visits, outer))
            elif isinstance(op, (SignalOp, WaitOp)):
                of, ids = op.turns_of, op.id_list
                visit = visits[of.owner] if of and isinstance(of.owner, BufferOp) else 0
                entries.append(Given(op, ids[visit % len(ids)]))
            elif isinstance(op, BarrierOp):
                entries.append(Given(op, 0))

    whole = {dim: (0, extent) for dim, extent in program.extents.items()}
    walk(program.body.block, whole, {}, {})
    return entries


def steps_of(program: ProgramOp) -> list[Step]:
    """Every execution of every command, in the order of the text."""
    return [entry for entry in entries_of(program) if isinstance(entry, Step)]

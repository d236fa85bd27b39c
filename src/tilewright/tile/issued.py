"""Programs whose commands one engine gives to the others, in the order of the text: its *issuer*, a
core that computes itself (``issuer`` of ProgramOp).

So what it computes is done before the commands after it are given to anybody, and it waits for all
others, whose commands may end in any order: each counts up a reply word, and is done for certain
only when the issuer has waited for that word.

    tile.move %x to %bx on "get" ahead                  # given in the run before
    tile.signal "get" to "cpe" ids [0, 1] of %bx        # the words that it counts up
    tile.wait "get" to "cpe" ids [0, 1] of %bx
    tile.compute "conv" on "cpe" to %by {...}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tilewright.errors import refuse
from tilewright.ir import Operation
from tilewright.ir.types import Array
from tilewright.tile.handovers import Handover, statement_in
from tilewright.tile.issue_order import signal_of
from tilewright.tile.iteration import Order
from tilewright.tile.operations import MoveOp, ProgramOp
from tilewright.tile.queues import Command, Queues, commands_of, fills, leader_of, users_of

NEVER = np.iinfo(np.int64).max
"""Completion key of a command that is never waited for."""


def handovers_of_issued(program: ProgramOp) -> Iterator[Handover]:
    """Yield for each transfer where the issuer waits for it.

    A load is waited for where its buffer is used next, a store where its slot is filled again; what
    is stored once, at once.
    """
    issuer = program.issuer_name
    place = {op: number for number, op in enumerate(program.walk())}
    for move in commands_of(program):
        if not isinstance(move, MoveOp) or move.engine.data == issuer:
            continue
        buffer, block = move.buffer, move.parent_block()
        if block is not buffer.parent_block() or block is None or leader_of(move) is not move:
            reason = "a core gives each transfer by itself, in the block of its buffer"
            raise refuse("tile-event", reason, program.symbol.data)
        uses = [op for op in users_of(buffer) if fills(op, buffer) is not move.loads]
        uses = [statement_in(block, op) for op in uses if op is not move]
        use = min(uses, key=place.__getitem__) if uses else None
        if not move.loads and block is program.body.block:
            use = None
        several = buffer.slot_count > 1 and use is not None
        yield Handover(
            move.engine.data,
            issuer,
            block,
            move,
            use,
            back=not move.loads and use is not None,
            slots=buffer.slot_count if several else 1,
            of=buffer if several else None,
        )


def unordered(
    order: Order, queues: Queues, dependences: Sequence[tuple[Command, Command, Array]]
) -> Iterator[tuple[int, int, int]]:
    """Yield the number of each dependence that is not ordered, and its first executions for which
    that holds, of the later and the earlier command.

    A dependence is (later, earlier, for each execution of the later the row of the earlier or -1).
    """
    done = _done(order, queues)
    for number, (later, earlier, row) in enumerate(dependences):
        start = order.rows(leader_of(later) if isinstance(later, MoveOp) else later).key
        end = done.get(earlier)
        if end is None:
            end = order.rows(earlier).key
        needs = np.flatnonzero(row >= 0)
        unmet = needs[end[row[needs]] >= start[needs]]
        if len(unmet):
            yield number, int(unmet[0]), int(row[unmet[0]])


def _done(order: Order, queues: Queues) -> dict[Command, Array]:
    """For each transfer, the key at which each of its executions is known to be done: that of the
    wait for the word that it counts up."""
    issuer, events = order.program.issuer_name, queues.events
    keys = [order.rows(op).key for op in events.ops]
    matched = events.match(None)
    ends: dict[Operation, Array] = {
        op: np.full(len(key), NEVER) for op, key in zip(events.ops, keys, strict=True)
    }
    for wait, signal in zip(matched.waits, matched.signals, strict=True):
        given, row = events.executed(int(signal))
        ends[given][row] = keys[int(events.number[wait])][int(events.row[wait])]
    return {
        move: ends[signal] if signal is not None else np.full(order.rows(move).count, NEVER)
        for move in queues.commands
        if isinstance(move, MoveOp) and move.engine.data != issuer
        for signal in (signal_of(move),)
    }

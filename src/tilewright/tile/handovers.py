"""Waits of a program as hand-overs: places where one engine signals and another waits for it.

A wait says which executions must be done before a command starts. Between two statements of one
block the same can be said by a signal after the one and a wait before the other, once in each
run of the block::

    ready x on a compute, x filled by a move before it:
        move x; signal load -> compute; ...; wait load -> compute; compute

    free x on the move, x used by the compute, two slots:
        wait compute -> load; move x; ...; compute; signal compute -> load

The second hands a slot *back*: to a later run of the block, by as many runs as there are slots. Its
ids are signalled before the outermost loop (all slots are free), and taken after it. Those of the
first loop are signalled before all commands: each signal waits for those that its engine was given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.ir import Block, Operation
from tilewright.tile import assignment
from tilewright.tile.dialect import part_block
from tilewright.tile.operations import (
    BarrierOp,
    BufferOp,
    DomainOp,
    EventOp,
    LoopOp,
    MoveOp,
    Ordering,
    ProgramOp,
    SignalOp,
    TensorOp,
    WaitOp,
)
from tilewright.tile.queues import (
    Command,
    commands_of,
    fills,
    leader_of,
    users_of,
    wait_parts,
)

PART = "a part ends"
"""Reason why a barrier ends the block that each of several cores runs for its parts of a result."""


Handover = assignment.Handover[Block, Operation, BufferOp]
Placed = assignment.Placed[Handover]


def handovers_of(program: ProgramOp) -> list[Handover]:
    """Return the hand-overs that the waits of a program's commands need, in the order of the
    text."""
    buffers = {op.symbol.data: op for op in program.walk() if isinstance(op, BufferOp)}
    place = {op: number for number, op in enumerate(program.walk())}
    handovers: dict[Handover, None] = {}
    for op in commands_of(program):
        for wait in op.wait_list:
            verb, _, name = wait_parts(wait)
            buffer = buffers[name]
            others = [user for user in users_of(buffer) if user.engine != op.engine]
            if verb == "ready":
                others = [user for user in others if fills(user, buffer)]
                asked = _ready(op, buffer, others, program)
            elif any(_fills(user, op, buffer) for user in users_of(buffer)):
                asked = _free(op, buffer, others)
            else:
                asked = _gone(op, others, place, program)
            handovers |= dict.fromkeys(asked)
    return list(handovers)


def merged(handovers: Sequence[Handover]) -> list[Handover]:
    """Join hand-overs that have the same engines and slots, where their places allow."""
    return assignment.merged(
        handovers, lambda one, other: one.is_before_in_block(other), lambda each: each.of is None
    )


def _fills(user: Command, op: Command, buffer: BufferOp) -> bool:
    """Return True if a user is ``op``, or is issued with it, and writes the buffer."""
    leader = leader_of(user) if isinstance(user, MoveOp) else user
    return leader is op and fills(user, buffer)


def _ready(
    op: Command, buffer: BufferOp, fillers: Sequence[Command], program: ProgramOp
) -> Iterator[Handover]:
    for filler in fillers:
        block = common_block(filler, op)
        after, before = statement_in(block, filler), statement_in(block, op)
        back = not after.is_before_in_block(before)
        if back and block is program.body.block:
            continue
        in_turn = block is buffer.parent_block() and not back and buffer.slot_count > 1
        yield Handover(
            filler.engine.data,
            op.engine.data,
            block,
            after,
            before,
            back,
            buffer.slot_count if in_turn else 1,
            buffer if in_turn else None,
        )


def _free(op: Command, buffer: BufferOp, users: Sequence[Command]) -> Iterator[Handover]:
    """Yield the hand-overs by which the last user of a slot on each engine gives it back."""
    block = buffer.parent_block()
    assert block is not None
    several = buffer.slot_count > 1
    for user in {user.engine.data: user for user in users}.values():
        yield Handover(
            user.engine.data,
            op.engine.data,
            block,
            statement_in(block, user),
            statement_in(block, op),
            True,
            buffer.slot_count,
            buffer if several else None,
        )


def _gone(
    op: Command, users: Sequence[Command], place: dict[Operation, int], program: ProgramOp
) -> Iterator[Handover]:
    """All uses of a buffer whose memory ``op`` fills with another."""
    for engine in dict.fromkeys(user.engine.data for user in users):
        mine = [user for user in users if user.engine.data == engine]
        earlier = [user for user in mine if place[user] < place[op]]
        user = (earlier or mine)[-1]
        block = common_block(user, op)
        after, before = statement_in(block, user), statement_in(block, op)
        back = not after.is_before_in_block(before)
        if not back or block is not program.body.block:
            yield Handover(engine, op.engine.data, block, after, before, back)


def common_block(first: Operation, other: Operation) -> Block:
    """The innermost block around two operations of a program."""
    around = list(_blocks(first))
    return next(block for block in _blocks(other) if block in around)


def _blocks(op: Operation | None) -> Iterator[Block]:
    """The blocks around an operation, from its own outwards."""
    while op is not None and (block := op.parent_block()) is not None:
        yield block
        op = op.parent_op()


def statement_in(block: Block, op: Operation) -> Operation:
    """The statement of a block that is an operation or holds it."""
    while op.parent_block() is not block:
        outer = op.parent_op()
        assert outer is not None
        op = outer
    return op


def place(program: ProgramOp, items: Sequence[Placed]) -> dict[Ordering, list[Placed]]:
    """Put the signals, waits and barriers of hand-overs into a program.

    Returns the hand-overs that each of these belongs to; a barrier may belong to several.
    """
    whole = program.body.block
    if program.issuer is None and program.shared is not None:
        part_block(program).add_op(BarrierOp.of(PART))
    start = next(op for op in whole.ops if not isinstance(op, (TensorOp, BufferOp)))
    first = next((op for op in whole.ops if isinstance(op, (LoopOp, DomainOp))), start)
    placed_last: dict[Operation, Operation] = {}
    placed: dict[Ordering, list[Placed]] = {}
    barriers: dict[Operation, BarrierOp] = {}
    for item in items:
        handover, block = item.handover, item.handover.block
        if item.reason:
            if handover.before is not None and handover.before not in barriers:
                barriers[handover.before] = op = BarrierOp.of(item.reason)
                block.insert_op_before(op, handover.before)
            if handover.before is not None:
                placed.setdefault(barriers[handover.before], []).append(item)
            continue
        of = handover.of.result if handover.of is not None and len(item.ids) > 1 else None
        wait = WaitOp.between(*handover.engines, item.ids, of)
        signal = SignalOp.between(*handover.engines, item.ids, of)
        last = placed_last.get(handover.after, _last(handover.after))
        block.insert_op_after(signal, last)
        placed_last[handover.after] = signal
        if handover.before is None:
            block.insert_op_after(wait, signal)
        else:
            block.insert_op_before(wait, handover.before)
        placed |= {wait: [item], signal: [item]}
        if handover.back and handover.before is not None:
            loop = statement_in(whole, handover.before)
            begin = loop if loop is not first else start
            for turn in range(handover.slots):
                ids = (item.ids[turn % len(item.ids)],)
                preset = SignalOp.between(*handover.engines, ids)
                flush = WaitOp.between(*handover.engines, ids)
                whole.insert_op_before(preset, begin)
                whole.insert_op_after(flush, placed_last.get(loop, loop))
                placed_last[loop] = flush
                placed |= {preset: [item], flush: [item]}
    return placed


def remove(program: ProgramOp) -> None:
    """Take all signals, waits for them and barriers out of a program."""
    for op in list(program.walk()):
        if isinstance(op, (EventOp, BarrierOp)):
            op.detach()
            op.erase()


def _last(op: Operation) -> Operation:
    """A statement, or the last move that travels with it."""
    last, following = op, op.next_op
    while isinstance(following, (BufferOp, MoveOp)):
        if isinstance(following, MoveOp):
            if following.joined is None:
                break
            last = following
        following = following.next_op
    return last if isinstance(op, MoveOp) else op

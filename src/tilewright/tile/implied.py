"""Rules for redundant waits, where the engine has waited for the same or later before.

All rules rest on engines being in-order queues: what an engine has waited for once, it knows for
all its later commands, and a command's completion means that of all before it in its queue. They
speak of a buffer's *visits*: a fill of visit v in one of s slots needs the users of visit v - s.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.ir import Block, Operation
from tilewright.memory.alignment import ceil_div
from tilewright.tile.dialect import enclosing_loops, enclosing_scopes, own_loops
from tilewright.tile.operations import BufferOp, DomainOp, LoopOp, MoveOp, ProgramOp
from tilewright.tile.queues import (
    Command,
    commands_of,
    fills,
    is_ahead,
    is_out_of_order,
    leader_of,
    users_of,
)


class Dependences:
    """The commands that fill and use each buffer of a program, and the waits that follow from
    others."""

    def __init__(self, program: ProgramOp) -> None:
        self.commands = commands_of(program)
        self.buffers = [op for op in program.walk() if isinstance(op, BufferOp)]
        self.position: dict[Operation, int] = {op: i for i, op in enumerate(program.walk())}
        self.users = {buffer: users_of(buffer) for buffer in self.buffers}
        self.depth = {buffer: len(enclosing_loops(buffer)) for buffer in self.buffers}
        self.filled: dict[Command, list[BufferOp]] = {}
        """The buffers that each command fills, those of moves joined to it included."""
        for buffer, users in self.users.items():
            for op in users:
                if fills(op, buffer):
                    leader = leader_of(op) if isinstance(op, MoveOp) else op
                    self.filled.setdefault(leader, []).append(buffer)

    def foreign(self, buffer: BufferOp, engine: str) -> dict[str, int]:
        """Engine -> position in the text of the last user of a buffer on it; without ``engine``."""
        engines: dict[str, int] = {}
        for user in self.users[buffer]:
            name = user.engine.data
            if name != engine:
                engines[name] = max(engines.get(name, 0), self.position[user])
        return engines

    def is_implied(self, op: Command, buffer: BufferOp, ready: Sequence[BufferOp]) -> bool:
        """Return True if ``op``, which fills a buffer, starts after the slot's users without a
        wait.

        ``ready`` are the buffers whose content ``op`` waits for.
        """
        if is_ahead(op):
            # The rules speak of what comes before it in the text.
            return False
        engine = op.engine.data
        if self._is_ready_later(engine, buffer, ready) or self._is_stored_since(engine, buffer):
            return True
        for other_op, others in self.filled.items():
            if other_op.engine != op.engine:
                continue
            for other in others:
                if other is buffer:
                    continue
                before = self._is_before(other_op, other, op, buffer)
                if self._is_waited_for(engine, other, buffer, before):
                    return True
        return False

    def _is_before(self, other_op: Command, other: BufferOp, op: Command, buffer: BufferOp) -> bool:
        """Return True if ``other`` is filled before ``buffer``; of two filled at once, the first
        is.

        Of commands that stand elsewhere in their queue than in the text, nothing is known.
        """
        if is_out_of_order(other_op):
            return False
        if other_op is op:
            return self.position[other] < self.position[buffer]
        return self.position[other_op] < self.position[op]

    def _is_waited_for(self, engine: str, other: BufferOp, buffer: BufferOp, before: bool) -> bool:
        """Return True if fills of ``other`` by the same engine have waited for the users of
        ``buffer``."""
        block, around = buffer.parent_block(), other.parent_block()
        if block is None or around is None:
            return False
        users, others = self.foreign(buffer, engine), self.foreign(other, engine)
        if not users.keys() <= others.keys():
            return False
        slots, reaches = other.slot_count, all(others[e] >= p for e, p in users.items())
        if block is around:
            # Filled before it in this visit: ``other`` waited for its users ``slots`` visits ago.
            # Filled after it, in the visit before: for those one visit earlier.
            visits_ago = slots if before else slots + 1
            return visits_ago <= buffer.slot_count and visits(other) > slots and reaches
        # Further in: of the visits between the users waited for and this fill, the last fill of
        # ``other`` waited for users ``slots`` fills back, within those visits or right before.
        within = (buffer.slot_count - 1) * fewest_visits(other, block)
        if within > slots or (within == slots and reaches):
            return True
        # Further out: it waited for all uses up to ``slots`` of its visits ago.
        most = most_visits(buffer, around)
        enough = 0 < most * slots <= buffer.slot_count
        return before and enough and visits(other) > slots and reaches

    def _is_ready_later(self, engine: str, buffer: BufferOp, ready: Sequence[BufferOp]) -> bool:
        """Return True if the awaited fills come after the buffer's users in their own queues.

        So it is where one engine both stores a tile and loads the next one's operands.
        """
        block = buffer.parent_block()
        covered: set[str] = set()
        for other in ready:
            if other.parent_block() is block or (block and fewest_visits(other, block)):
                covered |= {u.engine.data for u in self.users[other] if fills(u, other)}
        return self.foreign(buffer, engine).keys() <= covered

    def _is_stored_since(self, engine: str, buffer: BufferOp) -> bool:
        """Return True if the engine has, since, stored what the users of ``buffer`` computed."""
        users = self.foreign(buffer, engine)
        for stored in self.buffers:
            makers = [user for user in self.users[stored] if fills(user, stored)]
            positions = {maker.engine.data: self.position[maker] for maker in makers}
            others = [user for user in self.users[stored] if user not in makers]
            if not any(user.engine.data == engine for user in others):
                continue
            since = self._fills_since(stored, buffer)
            # With a slot to spare, what the visit before made comes after the users anyway.
            reaches = since < buffer.slot_count or all(
                positions.get(e, -1) >= p for e, p in users.items()
            )
            if since and reaches and users.keys() <= positions.keys():
                return True
        return False

    def _fills_since(self, stored: BufferOp, buffer: BufferOp) -> int:
        """Return how many fills of ``buffer`` follow the previous store of ``stored``, at most.

        0 if they may be more than it has slots, or if nothing need have been stored.
        """
        block, around = buffer.parent_block(), stored.parent_block()
        if block is None or around is None:
            return 0
        if block is around or fewest_visits(stored, block) > 0:
            return 1
        most = most_visits(buffer, around)
        return most if most <= buffer.slot_count else 0


def visits(buffer: BufferOp) -> int:
    """Return how often a buffer is filled, at most."""
    return prod(_trips(loop) for loop in enclosing_loops(buffer))


def visits_of_part(buffer: BufferOp) -> int:
    """Return how often a buffer is filled while a core computes one part, at most."""
    return prod(_trips(loop) for loop in own_loops(buffer))


def fewest_visits(buffer: BufferOp, block: Block) -> int:
    """Return how often a buffer is filled in one run of a block around it, at least; 0 if
    outside."""
    inner = _loops_between(block, buffer)
    if any(isinstance(scope, DomainOp) for scope in _between(block, buffer)):
        return 0  # A domain need not run.
    count = 1
    # Sizes that the interval of a dim may have: a loop over it leaves a shorter one at the edge.
    sizes: dict[str, set[int]] = {}
    for loop in enclosing_loops(buffer):
        dim, lower, step = loop.dim.data, loop.lower_bound, loop.step_size
        if any(isinstance(s, DomainOp) and dim in s.bound for s in enclosing_scopes(loop)):
            continue  # How long the interval is, varies: it is not empty.
        spans = {min(loop.upper_bound, n) - lower for n in sizes.get(dim, {loop.upper_bound})}
        if loop in inner:
            count *= max(0, min(ceil_div(span, step) for span in spans))
        sizes[dim] = {n for span in spans for n in (min(step, span), span % step) if n > 0}
    return count if inner else 0


def most_visits(buffer: BufferOp, block: Block) -> int:
    """Return how often a buffer is filled in one run of a block around it, at most; 0 if
    outside."""
    inner = _loops_between(block, buffer)
    return prod(_trips(loop) for loop in inner) if inner else 0


def _between(block: Block, op: Operation) -> list[Operation]:
    """Return the operations around an operation within a block, innermost first."""
    ancestors: list[Operation] = []
    around = op.parent_op()
    while around is not None and op.parent_block() is not block:
        ancestors.append(around)
        op, around = around, around.parent_op()
    return ancestors


def _trips(loop: LoopOp) -> int:
    return ceil_div(loop.upper_bound - loop.lower_bound, loop.step_size)


def _loops_between(block: Block, buffer: BufferOp) -> Sequence[LoopOp]:
    """The loops within a block and around a buffer; none if the block does not enclose it."""
    loops = enclosing_loops(buffer)
    for number, loop in enumerate(loops):
        if loop.parent_block() is block:
            return loops[number:]
    return []

"""The queues of the engines: which command is which, and waits as counts of commands.

Every execution of a move or a compute is one command of its engine; a joined move is part of the
command of the move before it. Commands of an engine run in program order. A wait then says: of
another engine's commands, the first so many have completed.

    queues = Queues(order)
    queues.position(move)       # number of each execution's command in its engine's queue
    queues.waits(compute)       # engine -> commands of it that must have completed before each
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from tilewright.ir import Operation
from tilewright.ir.types import Array
from tilewright.tile.containers import containers_of
from tilewright.tile.iteration import Order
from tilewright.tile.operations import BufferOp, ComputeOp, MoveOp, StageOp

Command = MoveOp | ComputeOp


def commands_of(root: Operation) -> list[Command]:
    """The moves and computes in an operation, in the order of the text."""
    return [op for op in root.walk() if isinstance(op, (MoveOp, ComputeOp))]


def fills(op: Command, buffer: BufferOp) -> bool:
    """Whether a command writes a buffer."""
    return (op.target if isinstance(op, MoveOp) else op.output) is buffer.result


def stores_parts(op: Command, buffer: BufferOp) -> bool:
    """Whether a command stores a part of a buffer in each run of loops of its own."""
    stores = isinstance(op, MoveOp) and op.source is buffer.result
    return stores and op.parent_block() is not buffer.parent_block()


def is_out_of_order(op: Command) -> bool:
    """Whether a command stands elsewhere in its queue than in the text."""
    leader = leader_of(op) if isinstance(op, MoveOp) else None
    return leader is not None and (leader.late is not None or leader.ahead is not None)


def is_ahead(op: Command) -> bool:
    """Whether a command is issued one run of its block earlier."""
    return isinstance(op, MoveOp) and op.ahead is not None


def users_of(buffer: BufferOp) -> list[Command]:
    """The commands that read or write a buffer, in the order of the text."""
    found: list[Command] = []
    users = {use.operation for use in buffer.result.uses}
    users |= {op.parent_op() for op in users if isinstance(op, StageOp)}
    block = buffer.parent_block()
    if block is not None:
        for op in block.walk():
            if op in users and isinstance(op, (MoveOp, ComputeOp)):
                found.append(op)
    return found


def leader_of(move: MoveOp) -> MoveOp:
    """The move in whose command a move travels: itself, unless it is joined."""
    leader = move
    while leader.joined is not None:
        before = leader.prev_op
        while before is not None and not isinstance(before, MoveOp):
            before = before.prev_op
        if before is None:
            break
        leader = before
    return leader


class Queues:
    """The commands of every engine of one program."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.commands = commands_of(order.program)
        """Moves and computes in the order of the text, joined moves included."""
        self._buffers = {
            op.symbol.data: op for op in order.program.walk() if isinstance(op, BufferOp)
        }
        self._sorted: dict[str, Array] = {}
        self._positions: dict[Command, Array] = {}
        self._users: dict[BufferOp, list[Command]] = {}

    @property
    def buffers(self) -> list[BufferOp]:
        """The program's buffers, in the order of the text."""
        return list(self._buffers.values())

    @property
    def engines(self) -> list[str]:
        """Names of the engines, in order of first use."""
        return list(dict.fromkeys(op.engine.data for op in self.commands))

    def operations(self, engine: str) -> list[Command]:
        """The operations whose executions are commands of an engine; no joined moves."""
        return [
            op
            for op in self.commands
            if op.engine.data == engine and not (isinstance(op, MoveOp) and op.joined is not None)
        ]

    def keys(self, engine: str) -> Array:
        """The keys of an engine's commands, ascending."""
        found = self._sorted.get(engine)
        if found is None:
            keys = [self.order.rows(op).key for op in self.operations(engine)]
            found = np.sort(np.concatenate(keys)) if keys else np.empty(0, np.int64)
            self._sorted[engine] = found
        return found

    def position(self, op: Command) -> Array:
        """For each execution: the number of its command in its engine's queue, from 0."""
        if isinstance(op, MoveOp):
            op = leader_of(op)
        found = self._positions.get(op)
        if found is None:
            found = np.searchsorted(self.keys(op.engine.data), self.order.rows(op).key)
            self._positions[op] = found
        return found

    def waits(self, op: Command) -> dict[str, Array]:
        """Engine -> for each execution: how many of its commands must have completed before."""
        counts = self.dependences(op)
        if self.order.program.containers is None:
            return counts
        mine = self.containers[op.engine.data][self.position(op)]
        for engine, numbers in self.containers.items():
            if engine != op.engine.data:
                # All that stands in earlier containers.
                ended = np.searchsorted(numbers, mine)
                counts[engine] = np.maximum(counts[engine], ended) if engine in counts else ended
        return counts

    @cached_property
    def containers(self) -> Mapping[str, Array]:
        """Engine -> the container of each of its commands, in programs that have containers."""
        return containers_of(self)

    def dependences(self, op: Command) -> dict[str, Array]:
        """The waits that the program states: those of buffers, without those of containers."""
        counts: dict[str, Array] = {}
        for wait in op.wait_list:
            verb, _, name = wait.partition(" ")
            buffer = self._buffers[name]
            for other in self.users_of(buffer):
                engine = other.engine.data
                if engine == op.engine.data or (verb == "ready" and not fills(other, buffer)):
                    continue
                index = self._last(verb, buffer, other, op)
                done = np.zeros(len(index), np.int64)
                done[index >= 0] = self.position(other)[index[index >= 0]] + 1
                counts[engine] = np.maximum(counts[engine], done) if engine in counts else done
        return counts

    def users_of(self, buffer: BufferOp) -> list[Command]:
        """The commands that read or write a buffer, in the order of the text."""
        found = self._users.get(buffer)
        if found is None:
            found = self._users[buffer] = users_of(buffer)
        return found

    def _last(self, verb: str, buffer: BufferOp, other: Command, op: Command) -> Array:
        """The last execution of ``other`` that a wait of ``op`` means, for each of ``op``'s."""
        if verb == "free" and _fills_with_joined(op, buffer):
            return self.order.last_use(buffer, other, op, buffer.slot_count)
        if verb == "ready" and (stores_parts(op, buffer) or is_ahead(other)):
            return self.order.last_use(buffer, other, op, 0)
        return self.order.last_before(other, op)


def _fills_with_joined(op: Command, buffer: BufferOp) -> bool:
    """Whether a command or a move joined to it writes the buffer."""
    if fills(op, buffer):
        return True
    if isinstance(op, MoveOp):
        for other in users_of(buffer):
            if isinstance(other, MoveOp) and fills(other, buffer) and leader_of(other) is op:
                return True
    return False

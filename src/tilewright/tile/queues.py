"""The queues of the engines: which command is which, and waits as counts of commands.

Every execution of a move or a compute is one command of its engine; a joined move is part of the
command of the move before it. Commands of an engine run in program order. A wait then gives a
number n: of another engine's commands, the first n have completed.

    queues = Queues(order)
    queues.position(move)       # number of each execution's command in its engine's queue
    queues.waits(compute)       # engine -> commands of it that must have completed before each

Signals, waits for them and barriers are entries of the queues, too, of the engines that they are
given to; so the counts of a program that has any are counts of entries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np

from tilewright.ir import Block, Operation
from tilewright.ir.types import Array
from tilewright.simulate.events import EVENT, EventArray, Matched, counts, match
from tilewright.tile.iteration import Order
from tilewright.tile.operations import (
    BarrierOp,
    BufferOp,
    ComputeOp,
    EventOp,
    MoveOp,
    Ordering,
    SignalOp,
    StageOp,
    WaitOp,
)

Command = MoveOp | ComputeOp

Entry = Command | Ordering
"""An entry of a queue; a barrier is in all of them."""

GROUPINGS: dict[str, Callable[[Queues], Mapping[str, Array]]] = {}
"""Rules by which programs put commands into groups that run one after the other (``groups`` of
ProgramOp): engine -> for each command in its queue the number of its group, ascending. Who has such
a rule enters it here."""


def commands_of(root: Operation | Block) -> list[Command]:
    """The moves and computes in an operation or a block, in the order of the text."""
    return [op for op in root.walk() if isinstance(op, (MoveOp, ComputeOp))]


def fills(op: Command, buffer: BufferOp) -> bool:
    """Return True if a command writes a buffer."""
    return (op.target if isinstance(op, MoveOp) else op.output) is buffer.result


def is_out_of_order(op: Command) -> bool:
    """Return True if a command's position in its queue differs from that in the text."""
    leader = leader_of(op) if isinstance(op, MoveOp) else None
    return leader is not None and leader.ahead is not None


def is_ahead(op: Command) -> bool:
    """Return True if a command is issued one run of its block earlier."""
    return isinstance(op, MoveOp) and op.ahead is not None


def users_of(buffer: BufferOp) -> list[Command]:
    """The commands that read or write a buffer, in the order of the text.

    One that is read ``at_store`` is read by the first move of a compute's result on its way out.
    """
    commands: set[Operation] = {use.operation for use in buffer.result.uses}
    for op in computes_of(buffer):
        output = op.output.owner
        if buffer.at_store is not None and isinstance(output, BufferOp):
            commands |= set(stores_of(output))
        else:
            commands.add(op)
    block = buffer.parent_block()
    return [] if block is None else [op for op in commands_of(block) if op in commands]


def computes_of(buffer: BufferOp) -> list[ComputeOp]:
    """The computes that read or write a buffer."""
    users = {use.operation for use in buffer.result.uses}
    users |= {op.parent_op() for op in users if isinstance(op, StageOp)}
    return [op for op in users if isinstance(op, ComputeOp)]


def moves_of(buffer: BufferOp) -> list[MoveOp]:
    """The moves between a buffer and what it is of."""
    users = [use.operation for use in buffer.result.uses]
    return [op for op in users if isinstance(op, MoveOp) and op.buffer is buffer]


def stores_of(buffer: BufferOp) -> list[MoveOp]:
    """The moves from a buffer to what it is of."""
    return [op for op in moves_of(buffer) if not op.loads]


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


def followers_of(op: Command) -> list[MoveOp]:
    """The moves that travel with a move, in its command."""
    block = op.parent_block()
    moves = [] if block is None else [other for other in block.ops if isinstance(other, MoveOp)]
    return [other for other in moves if other.joined is not None and leader_of(other) is op]


def buffers_of(op: Command) -> list[BufferOp]:
    """The buffers that a command reads, and then those that it writes."""
    if isinstance(op, MoveOp):
        values = [op.source, op.target]
    else:
        values = [*(value for stage in op.stages for value in stage.inputs), op.output]
    return [value.owner for value in values if isinstance(value.owner, BufferOp)]


ROWS = "rows of "
"""Prefix of a buffer's name in a wait: each instruction of the command waits for those that
touch the same rows of the buffer."""


def wait_parts(wait: str) -> tuple[str, bool, str]:
    """Split a wait: its verb, whether it is for rows, and the name of the buffer."""
    verb, _, name = wait.partition(" ")
    return verb, name.startswith(ROWS), name.removeprefix(ROWS)


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
        self._positions: dict[tuple[Entry, str], Array] = {}
        self._users: dict[BufferOp, list[Command]] = {}

    @property
    def buffers(self) -> list[BufferOp]:
        """The program's buffers, in the order of the text."""
        return list(self._buffers.values())

    @cached_property
    def engines(self) -> list[str]:
        """Names of the engines, in order of first use."""
        names = [op.engine.data for op in self.commands]
        for op in self.orderings:
            if isinstance(op, EventOp):
                names += [op.source_engine, op.target_engine]
        return list(dict.fromkeys(names))

    def operations(self, engine: str) -> list[Entry]:
        """The operations whose executions are entries of an engine's queue; no joined moves."""
        return [
            op
            for op in (*self.commands, *self.orderings)
            if engine in self.engines_of(op)
            and not (isinstance(op, MoveOp) and op.joined is not None)
        ]

    @cached_property
    def orderings(self) -> list[Ordering]:
        """Signals, waits for them and barriers, in the order of the text."""
        return [
            op for op in self.order.program.walk() if isinstance(op, (SignalOp, WaitOp, BarrierOp))
        ]

    def engines_of(self, op: Entry) -> list[str]:
        """The engines that an operation is given to."""
        match op:
            case BarrierOp():
                return self.engines
            case SignalOp():
                return [op.source_engine]
            case WaitOp():
                return [op.target_engine]
            case _:
                return [op.engine.data]

    def keys(self, engine: str) -> Array:
        """The keys of an engine's entries, ascending."""
        known = self._sorted.get(engine)
        if known is None:
            keys = [self.order.rows(op).key for op in self.operations(engine)]
            known = np.sort(np.concatenate(keys)) if keys else np.empty(0, np.int64)
            self._sorted[engine] = known
        return known

    def position(self, op: Entry, engine: str = "") -> Array:
        """For each execution: the number of its entry in its engine's queue, from 0.

        Of a barrier, ``engine`` says in which queue.
        """
        if isinstance(op, MoveOp):
            op = leader_of(op)
        engine = engine or self.engines_of(op)[0]
        known = self._positions.get((op, engine))
        if known is None:
            known = np.searchsorted(self.keys(engine), self.order.rows(op).key)
            self._positions[op, engine] = known
        return known

    def waits(self, op: Entry, engine: str = "", *, rows: bool = True) -> dict[str, Array]:
        """Engine -> for each execution: how many of its entries must be done before.

        Of a barrier, ``engine`` says which one waits. A wait for rows counts as one for whole
        commands, which allows fewer orders; without ``rows`` it does not count.
        """
        if isinstance(op, BarrierOp):
            return {other: self.position(op, other) for other in self.engines if other != engine}
        if isinstance(op, WaitOp):
            return {op.source_engine: self.events.counts[op]}
        if isinstance(op, SignalOp):
            return {}
        counts = self.dependences(op, rows=rows)
        if self.order.program.groups is None:
            return counts
        mine = self.groups[op.engine.data][self.position(op)]
        for engine, numbers in self.groups.items():
            if engine != op.engine.data:
                # All that stands in earlier groups.
                ended = np.searchsorted(numbers, mine)
                counts[engine] = np.maximum(counts[engine], ended) if engine in counts else ended
        return counts

    @cached_property
    def events(self) -> Events:
        """The program's signals and waits, with the n-th of one that goes with the n-th of the
        other."""
        return Events(self)

    @cached_property
    def groups(self) -> Mapping[str, Array]:
        """Engine -> the group of each of its commands, in programs that have groups (GROUPINGS)."""
        grouping = self.order.program.groups
        return {} if grouping is None else GROUPINGS[grouping.data](self)

    def dependences(self, op: Command, *, rows: bool = True) -> dict[str, Array]:
        """The waits that the program states: those of buffers, without those of groups."""
        counts: dict[str, Array] = {}
        for wait in op.wait_list:
            verb, by_rows, name = wait_parts(wait)
            if by_rows and not rows:
                continue
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
        users = self._users.get(buffer)
        if users is None:
            users = self._users[buffer] = users_of(buffer)
        return users

    def _last(self, verb: str, buffer: BufferOp, other: Command, op: Command) -> Array:
        """The last execution of ``other`` that a wait of ``op`` means, for each of ``op``'s."""
        if verb == "free" and any(fills(each, buffer) for each in (op, *followers_of(op))):
            return self.order.last_use(buffer, other, op, buffer.slot_count)
        if verb == "ready" and is_ahead(other):
            return self.order.last_use(buffer, other, op, 0)
        return self.order.last_before(other, op)


class Events:
    """Every execution of a program's signals and waits, in program order."""

    def __init__(self, queues: Queues) -> None:
        self.ops = [op for op in queues.orderings if not isinstance(op, BarrierOp)]
        sizes = [queues.order.rows(op).count for op in self.ops]
        keys = [queues.order.rows(op).key for op in self.ops]
        number = np.repeat(np.arange(len(self.ops)), sizes)
        row = np.concatenate([np.arange(size) for size in sizes] or [np.zeros(0, np.int64)])
        unsorted = np.concatenate(keys or [np.zeros(0, np.int64)])
        sort = np.argsort(unsorted, kind="stable")
        self.keys: Array = unsorted[sort]
        """The key of each event."""
        table = np.zeros(len(number), EVENT)
        engines = {name: place for place, name in enumerate(queues.engines)}
        start = 0
        for op, size in zip(self.ops, sizes, strict=True):
            rows = table[start : start + size]
            signals = isinstance(op, SignalOp)
            rows["place"] = queues.position(op) + signals
            rows["source"] = engines[op.source_engine]
            rows["target"] = engines[op.target_engine]
            rows["id"] = _turn_ids(op, queues.order)
            rows["signal"] = signals
            start += size
        self.table: EventArray = table[sort]
        self.number, self.row = number[sort], row[sort]
        """Operation, and execution of it, of each event."""
        self._sort, self._sizes = sort, sizes
        self.counts = self.column(counts(self.table, match(self.table, None)))
        """For each execution of a wait: the entries of the source's queue that must be done."""

    def column(self, values: Array) -> dict[SignalOp | WaitOp, Array]:
        """A number for each event as numbers for each execution of the operations."""
        column = np.empty(len(self._sort), np.int64)
        column[self._sort] = values
        ends = np.cumsum(self._sizes)[:-1] if self._sizes else np.zeros(0, np.int64)
        return dict(zip(self.ops, np.split(column, ends) if self.ops else [], strict=True))

    def match(self, depth: int | None) -> Matched:
        """Match waits with signals, where an id holds at most ``depth`` signals at a time."""
        return match(self.table, depth)

    def executed(self, event: int) -> tuple[SignalOp | WaitOp, int]:
        """Operation and execution of an event."""
        return self.ops[int(self.number[event])], int(self.row[event])


def _turn_ids(op: EventOp, order: Order) -> Array:
    """The id of each execution."""
    ids = np.array(op.id_list, np.int64)
    of = op.turns_of
    if of is None or not isinstance(of.owner, BufferOp):
        return np.broadcast_to(ids[:1], (order.rows(op).count,))
    return ids[order.visit(of.owner, op) % len(ids)]

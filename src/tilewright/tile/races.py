"""Dependences between engines that the waits of a program leave unordered.

Every execution is looked at, as columns. What a command knows to be done when it starts is a
count for each engine: from its own waits, from those of the commands before it in its queue, and
from what the commands that it waits for knew in turn (vector clocks; in-order engines make a count
say everything). A dependence is ordered if the count that the later command knows of the earlier
one's engine includes the earlier one.

A wait for the rows of a buffer orders the instructions of commands that touch the same rows of it,
and nothing else: it says nothing of other buffers, nor to the commands that wait for its own. So a
dependence is ordered, too, if the later command itself waits for the rows of its buffer.

Where one engine gives the others their commands, what comes before and after is the order of the
text, and a transfer is done when that engine has waited for its word (issued.py).

Where signals order engines, an id must also hold what it is given: ``faults`` says where it does
not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilewright.ir import to_text
from tilewright.ir.types import Array
from tilewright.machine.synchronisation import Synchronisation
from tilewright.simulate.events import Matched
from tilewright.tile.issued import unordered
from tilewright.tile.iteration import Order
from tilewright.tile.operations import BufferOp, Ordering, SignalOp, WaitOp
from tilewright.tile.queues import ROWS, Command, Entry, Queues, fills, is_ahead


@dataclass(frozen=True)
class Race:
    """An execution that may start before one that it depends on is done."""

    later: Command
    later_row: int
    earlier: Command
    earlier_row: int
    wait: str
    """The wait on ``later`` that would order them."""


@dataclass(frozen=True)
class _Dependence:
    """``row[i]`` is the execution of ``earlier`` that execution i of ``later`` needs; -1: none."""

    later: Command
    earlier: Command
    row: Array
    wait: str


Idle = frozenset[Ordering]
"""Signals, waits for them and barriers that are as if they were not there."""


@dataclass(frozen=True)
class Fault:
    """A signal or a wait that does not go with the others."""

    reason: str
    op: SignalOp | WaitOp
    row: int
    other: SignalOp | WaitOp | None = None
    other_row: int = 0


def _dependences(queues: Queues, buffers: list[BufferOp]) -> Iterator[_Dependence]:
    order, issued = queues.order, queues.order.program.issuer is not None
    for buffer in buffers:
        users = queues.users_of(buffer)
        name = buffer.symbol.data
        for later in users:
            for earlier in users:
                # What an issuer gives to one engine may end in any order.
                if not issued and (earlier is later or earlier.engine == later.engine):
                    continue
                if fills(later, buffer):
                    row = order.last_use(buffer, earlier, later, buffer.slot_count)
                    yield _Dependence(later, earlier, row, f"free {name}")
                if fills(earlier, buffer) and not fills(later, buffer):
                    row = (
                        order.last_use(buffer, earlier, later, 0)
                        if is_ahead(earlier)
                        else order.last_before(earlier, later)
                    )
                    yield _Dependence(later, earlier, row, f"ready {name}")
        for other in buffers:
            if other is not buffer and share_addresses(buffer, other):
                for later in (op for op in users if fills(op, buffer)):
                    for earlier in queues.users_of(other):
                        if issued or earlier.engine != later.engine:
                            row = order.last_before(earlier, later)
                            yield _Dependence(later, earlier, row, f"free {other.symbol.data}")


def share_addresses(buffer: BufferOp, other: BufferOp) -> bool:
    """Return True if two buffers were given the same addresses."""
    if buffer.memory != other.memory or buffer.address is None or other.address is None:
        return False
    first, second = buffer.address.value.data, other.address.value.data
    return first < second + other.get("bytes") * other.places and (
        second < first + buffer.get("bytes") * buffer.places
    )


class Proof:
    """The proof that a program's signals, waits and barriers order its dependences.

    It is asked again for the same program without some of these (``idle``), which share no id with
    others.
    """

    def __init__(self, order: Order, queues: Queues | None = None) -> None:
        self.order = order
        self.queues = queues or Queues(order)
        self._matches: dict[int | None, Matched] = {}
        self._clocks: dict[Idle, dict[str, dict[str, Array]]] = {}

    @cached_property
    def _entries(self) -> dict[str, list[tuple[Entry, Array, dict[str, Array]]]]:
        """Engine -> its operations, the place of each in the queue, and its waits."""
        queues = self.queues
        return {
            engine: [
                (op, queues.position(op, engine), queues.waits(op, engine, rows=False))
                for op in queues.operations(engine)
            ]
            for engine in queues.engines
        }

    @cached_property
    def _dependences(self) -> list[_Dependence]:
        return list(_dependences(self.queues, self.queues.buffers))

    def clocks(self, idle: Idle = frozenset()) -> dict[str, dict[str, Array]]:
        """engine -> other engine -> how many of its commands are done when each command starts."""
        if idle in self._clocks:
            return self._clocks[idle]
        engines = self.queues.engines
        known: dict[str, dict[str, Array]] = {}
        for engine in engines:
            count = len(self.queues.keys(engine))
            columns = {other: np.zeros(count, np.int64) for other in engines if other != engine}
            for op, position, waits in self._entries[engine]:
                for other, counts in () if op in idle else waits.items():
                    columns[other][position] = np.maximum(columns[other][position], counts)
            known[engine] = {other: np.maximum.accumulate(c) for other, c in columns.items()}
        # A chain of waits that comes back to an engine says nothing new, so it has few links.
        for _ in range(max(0, len(engines) - 2)):
            for engine in engines:
                for via, counts in known[engine].items():
                    waited = counts > 0
                    last = counts[waited] - 1
                    for other, column in known[engine].items():
                        if other != via and len(last):
                            column[waited] = np.maximum(column[waited], known[via][other][last])
                known[engine] = {o: np.maximum.accumulate(c) for o, c in known[engine].items()}
        self._clocks = {idle: known}
        return known

    def races(self, idle: Idle = frozenset()) -> list[Race]:
        """The first unordered execution of each unordered dependence, in the order of the text."""
        if self.order.program.issuer is not None:
            rows = [(each.later, each.earlier, each.row) for each in self._dependences]
            return [
                Race(rows[n][0], later, rows[n][1], earlier, self._dependences[n].wait)
                for n, later, earlier in unordered(self.order, self.queues, rows)
            ]
        known, conflicts = self.clocks(idle), list[Race]()
        for dependence in self._dependences:
            later, earlier = dependence.later, dependence.earlier
            verb, _, name = dependence.wait.partition(" ")
            if f"{verb} {ROWS}{name}" in later.wait_list:
                continue
            needs = np.flatnonzero(dependence.row >= 0)
            rows = dependence.row[needs]
            done = known[later.engine.data][earlier.engine.data]
            counts = done[self.queues.position(later)[needs]]
            missed = np.flatnonzero(counts <= self.queues.position(earlier)[rows])
            if len(missed):
                at = int(missed[0])
                wait = dependence.wait
                conflicts.append(Race(later, int(needs[at]), earlier, int(rows[at]), wait))
        return conflicts

    def _matched(self, depth: int | None) -> Matched:
        """Waits and signals of all ids; the same whichever are idle."""
        if depth not in self._matches:
            self._matches[depth] = self.queues.events.match(depth)
        return self._matches[depth]

    def faults(self, limits: Synchronisation, idle: Idle = frozenset()) -> list[Fault]:
        """The faults of the signals, apart from races: the first of each kind."""
        events = self.queues.events
        matched = self._matched(limits.limit)
        active = np.array([op not in idle for op in events.ops], np.bool_)[events.number]
        problems: list[Fault] = []
        if limits.style == "replies":
            owner: dict[int, tuple[str, str]] = {}
            for op in events.ops:
                pair = op.source_engine, op.target_engine
                for number in op.id_list:
                    if owner.setdefault(number, pair) != pair:
                        first, second = owner[number]
                        problems.append(Fault(f"word {number} is from {first} to {second}", op, 0))
        for bad, reason in (
            (matched.unanswered, "waits for ever: nothing before it signals this id so often"),
            (matched.unused, "sends a signal that nothing waits for"),
        ):
            if (bad := bad[active[bad]]).size:
                problems.append(Fault(reason, *events.executed(int(bad[0]))))
        given = active[matched.again]
        again, taken = matched.again[given], matched.taken[given]
        if not again.size:
            return problems
        if self.order.program.issuer is not None:
            # Transfers are given in the order of the text, and so are the waits.
            missed = np.flatnonzero(events.keys[again] <= events.keys[taken])
            for at in missed[:1]:
                op, row = events.executed(int(again[at]))
                other, other_row = events.executed(int(taken[at]))
                reason = f"counts up again what '{to_text(other)}' may not have seen yet"
                problems.append(Fault(reason, op, row, other, other_row))
            return problems
        known, ends, table = self.clocks(idle), self.queues.engines, events.table
        for source, target in {(int(e["source"]), int(e["target"])) for e in table[again]}:
            pair = (table["source"][again] == source) & (table["target"][again] == target)
            done = known[ends[source]][ends[target]][table["place"][again[pair]] - 1]
            missed = np.flatnonzero(done <= table["place"][taken[pair]])
            if missed.size:
                op, row = events.executed(int(again[pair][missed[0]]))
                other = events.executed(int(taken[pair][missed[0]]))
                reason = f"signals again what '{to_text(other[0])}' may not have taken yet"
                problems.append(Fault(reason, op, row, *other))
        return problems

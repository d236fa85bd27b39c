"""Order the engines by the fewest waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import Block, Operation, to_attribute
from tilewright.machine import Machine
from tilewright.tile.dialect import BufferOp, LoopOp, MoveOp, ProgramOp, enclosing_loops
from tilewright.tile.passes.base import TilePass
from tilewright.tile.passes.double_buffer import visits
from tilewright.tile.queues import Command, commands_of, fills, leader_of, users_of
from tilewright.tile.races import share_addresses


@dataclass(frozen=True)
class Synchronise(TilePass):
    """Puts on each move and compute what it must wait for; see the dialect for the words.

    An engine runs its commands in program order, so waits stand between engines only: whoever
    reads a buffer waits until it is ``ready``, whoever fills it until its slot is ``free``. A wait
    is left out when another one implies it:

    - of several fills by one engine, the latest is waited for;
    - a buffer that is filled no more often than it has slots is always free;
    - a fill that comes after another of the same engine, in the same block or further out, need
      not wait again for users that the other has waited for.

    Machines without synchronisation (``synchronisation = "none"``) get no waits.

    Before::

        tile.move %x to %x_nbin on "load"
        tile.move %w to %w_sb on "load"
        tile.compute "conv" on "compute" to %y_nbout {...}
        tile.move %y_nbout to %y on "store"

    After::

        tile.move %x to %x_nbin on "load" waits ["free x"]
        tile.move %w to %w_sb on "load"
        tile.compute "conv" on "compute" to %y_nbout waits ["ready w", "free y"] {...}
        tile.move %y_nbout to %y on "store" waits ["ready y"]
    """

    name = "synchronise"

    def run(self, program: ProgramOp, machine: Machine) -> None:
        """Set the waits of one program."""
        dependences = _Dependences(program)
        for op in dependences.commands:
            op.properties.pop("waits", None)
        if machine.synchronisation == "none":
            return
        for op in dependences.commands:
            if isinstance(op, MoveOp) and op.joined is not None:
                continue
            waits = [f"ready {buffer.symbol.data}" for buffer in dependences.ready(op)]
            waits += [f"free {buffer.symbol.data}" for buffer in dependences.free(op)]
            if waits:
                op.properties["waits"] = to_attribute(tuple(waits))


class _Dependences:
    def __init__(self, program: ProgramOp) -> None:
        self.commands = commands_of(program)
        self.buffers = [op for op in program.walk() if isinstance(op, BufferOp)]
        self.position: dict[Operation, int] = {op: i for i, op in enumerate(program.walk())}
        self.users = {buffer: users_of(buffer) for buffer in self.buffers}
        self.depth = {buffer: len(enclosing_loops(buffer)) for buffer in self.buffers}
        self.filled: dict[Command, list[BufferOp]] = {}
        for buffer, users in self.users.items():
            for op in users:
                if fills(op, buffer):
                    leader = leader_of(op) if isinstance(op, MoveOp) else op
                    self.filled.setdefault(leader, []).append(buffer)

    def ready(self, op: Command) -> list[BufferOp]:
        """The buffers for whose content an operation waits: of each other engine, the latest."""
        latest: dict[str, tuple[tuple[int, int], BufferOp]] = {}
        for buffer in self.buffers:
            users = self.users[buffer]
            if op not in users or fills(op, buffer):
                continue
            for other in users:
                if fills(other, buffer) and other.engine != op.engine:
                    # Of two fills that precede an operation, the one in the inner block, or
                    # later in the same block, is always executed last.
                    command = leader_of(other) if isinstance(other, MoveOp) else other
                    rank = (self.depth[buffer], self.position[command])
                    engine = other.engine.data
                    if engine not in latest or latest[engine][0] < rank:
                        latest[engine] = (rank, buffer)
        chosen = [buffer for _, buffer in latest.values()]
        return [buffer for buffer in self.buffers if buffer in chosen]

    def free(self, op: Command) -> list[BufferOp]:
        """The buffers whose users an operation waits for, because it fills their memory."""
        own = self.filled.get(op, [])
        waits: list[BufferOp] = []
        for number, buffer in enumerate(own):
            implied = any(
                self._covers(other, buffer) for other in own[:number]
            ) or self._is_implied(op, buffer)
            if self._must_free(op, buffer) and not implied:
                waits.append(buffer)
        for other in self.buffers:
            if other not in own and any(share_addresses(other, buffer) for buffer in own):
                foreign = any(user.engine != op.engine for user in self.users[other])
                if foreign and self._may_precede(other, op):
                    waits.append(other)
        return waits

    def _must_free(self, op: Command, buffer: BufferOp) -> bool:
        foreign = any(user.engine != op.engine for user in self.users[buffer])
        return foreign and visits(buffer) > buffer.slot_count

    def _may_precede(self, buffer: BufferOp, op: Command) -> bool:
        """Whether an execution of a buffer's users can come before one of ``op``."""
        shared = set(enclosing_loops(op)) & set(enclosing_loops(buffer))
        return bool(shared) or self.position[buffer] < self.position[op]

    def _engines(self, buffer: BufferOp, op: Command) -> set[str]:
        return {u.engine.data for u in self.users[buffer] if u.engine != op.engine}

    def _last(self, buffer: BufferOp) -> dict[str, int]:
        """Engine -> position of the last user of a buffer on it."""
        found: dict[str, int] = {}
        for user in self.users[buffer]:
            found[user.engine.data] = max(found.get(user.engine.data, 0), self.position[user])
        return found

    def _covers(self, other: BufferOp, buffer: BufferOp) -> bool:
        """Whether waiting for ``other``, filled at once or before, is waiting for ``buffer``."""
        if other.parent_block() is not buffer.parent_block():
            return False
        if other.slot_count > buffer.slot_count or visits(other) <= other.slot_count:
            return False
        return self._reaches(other, buffer)

    def _reaches(self, other: BufferOp, buffer: BufferOp) -> bool:
        """Whether in each visit the users of ``other`` end no earlier than those of ``buffer``."""
        lasts = self._last(other)
        filler = next(user for user in self.users[buffer] if fills(user, buffer))
        return all(
            lasts.get(engine, -1) >= position
            for engine, position in self._last(buffer).items()
            if engine != filler.engine.data
        )

    def _is_implied(self, op: Command, buffer: BufferOp) -> bool:
        for other_op, others in self.filled.items():
            if other_op is op or other_op.engine != op.engine:
                continue
            for other in others:
                before = self.position[other_op] < self.position[op]
                if before and self._covers(other, buffer):
                    return True
                if self._covers_from_within(other, buffer):
                    return True
        return False

    def _covers_from_within(self, other: BufferOp, buffer: BufferOp) -> bool:
        """Whether the fills of ``other``, further in, have waited for the users of ``buffer``.

        With two slots or more, the visit before this one lies between the users waited for and
        this fill. If ``other`` was filled more often in it than it has slots, its last fill waited
        for users of that visit, which come after those of the visit before.
        """
        if buffer.slot_count < 2 or not self._engines_cover(other, buffer):
            return False
        block = buffer.parent_block()
        return block is not None and fewest_visits(other, block) > other.slot_count

    def _engines_cover(self, other: BufferOp, buffer: BufferOp) -> bool:
        filler = next(user for user in self.users[buffer] if fills(user, buffer))
        return self._engines(buffer, filler) <= self._engines(other, filler)


def fewest_visits(buffer: BufferOp, block: Block) -> int:
    """How often a buffer is filled in one run of a block around it, at least; 0 if outside."""
    count = 1
    loops = enclosing_loops(buffer)
    inner: Sequence[LoopOp] = []
    for number, loop in enumerate(loops):
        if loop.parent_block() is block:
            inner = loops[number:]
    if not inner:
        return 0
    for number, loop in enumerate(inner):
        outer = loops[: len(loops) - len(inner) + number]
        if any(other.dim == loop.dim for other in outer):
            # The loop refines an interval that is shorter at the edge.
            count *= 1 if loop.lower_bound == 0 else 0
        else:
            count *= -(-(loop.upper_bound - loop.lower_bound) // loop.step_size)
    return count

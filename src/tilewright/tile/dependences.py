"""The commands that fill and use the buffers of a program, and how often each buffer is filled."""

from __future__ import annotations

from math import prod

from tilewright.ir import Operation
from tilewright.memory.alignment import ceil_div
from tilewright.tile.dialect import enclosing_loops, own_loops
from tilewright.tile.operations import BufferOp, LoopOp, MoveOp, ProgramOp
from tilewright.tile.queues import (
    Command,
    commands_of,
    fills,
    leader_of,
    users_of,
)


class Dependences:
    """The commands that fill and use each buffer of a program."""

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

    def foreign(self, buffer: BufferOp, engine: str) -> bool:
        """Return True if another engine uses a buffer."""
        return any(user.engine.data != engine for user in self.users[buffer])


def visits(buffer: BufferOp) -> int:
    """Return how often a buffer is filled, at most."""
    return prod(_trips(loop) for loop in enclosing_loops(buffer))


def visits_of_part(buffer: BufferOp) -> int:
    """Return how often a buffer is filled while a core computes one part, at most."""
    return prod(_trips(loop) for loop in own_loops(buffer))


def _trips(loop: LoopOp) -> int:
    return ceil_div(loop.upper_bound - loop.lower_bound, loop.step_size)

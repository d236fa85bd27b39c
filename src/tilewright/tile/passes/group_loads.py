"""Issue loads from memory on the chip after those from main memory beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import Block, Operation
from tilewright.machine import Machine
from tilewright.tile.dialect import BufferOp, DomainOp, LoopOp, MoveOp, ProgramOp
from tilewright.tile.passes.base import TilePass
from tilewright.tile.queues import leader_of


@dataclass(frozen=True)
class GroupLoads(TilePass):
    """Puts loads from one memory on the chip to another after the loads from main memory that stand
    among them.

    Where engines set flags for one another, of which there are few, one flag then hands on all that
    the loads from main memory have brought. No computation starts later for it: it needs all of
    the operands.

    Before::

        tile.move %x to %x_l1 on "mte2"
        tile.move %x_l1 to %x_l0a on "mte1"
        tile.move %w to %w_l1 on "mte2"
        tile.move %w_l1 to %w_l0b on "mte1"

    After::

        tile.move %x to %x_l1 on "mte2"
        tile.move %w to %w_l1 on "mte2"
        tile.move %x_l1 to %x_l0a on "mte1"
        tile.move %w_l1 to %w_l0b on "mte1"
    """

    name = "group-loads"

    def run(self, program: ProgramOp, machine: Machine) -> None:
        """Order the loads of every block of one program."""
        blocks = [op.body.block for op in program.walk() if isinstance(op, (LoopOp, DomainOp))]
        for block in (program.body.block, *blocks):
            _order(block)


def _order(block: Block) -> None:
    inner: list[MoveOp] = []
    for op in list(block.ops):
        if isinstance(op, MoveOp) and op.loads:
            if leader_of(op).buffer.outer_buffer is not None:
                inner.append(op)
        elif not isinstance(op, BufferOp):
            _put_before(inner, op)
            inner = []
    _put_before(inner, None)


def _put_before(moves: Sequence[MoveOp], place: Operation | None) -> None:
    """Put moves, in their order, before an operation of their block, or at its end."""
    for move in moves:
        block = move.parent_block()
        assert block is not None
        move.detach()
        if place is None:
            block.add_op(move)
        else:
            block.insert_op_before(move, place)

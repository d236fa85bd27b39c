"""Let loads that wait for their only slot stand behind the others of their tile."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import Block, StringAttr
from tilewright.machine import Machine
from tilewright.tile.dialect import BufferOp, ComputeOp, LoopOp, MoveOp, ProgramOp
from tilewright.tile.implied import visits
from tilewright.tile.iteration import LAST
from tilewright.tile.passes.base import TilePass


@dataclass(frozen=True)
class LateLoads(TilePass):
    """Marks loads into buffers of one slot: they come right before the compute.

    Such a slot is free when the tile before is done. In an in-order queue a load that waits for
    that holds up all loads behind it, whose own slots may be free. What is read behind sums alone
    comes with the last part of their reduction, when the tile before was done long ago.

    Before::

        tile.loop "ow" 0 to 49 step 17 {
          tile.move %r to %r_nbout on "load"
          tile.loop "ci" 0 to 512 step 112 {
            tile.move %x to %x_nbin on "load"
            tile.move %w to %w_sb on "load"
            tile.compute "conv" ...

    After::

          tile.move %r to %r_nbout on "load" late "last"
    """

    name = "late-loads"

    def run(self, program: ProgramOp, machine: Machine) -> None:
        """Mark the moves of one program."""
        moves = [op for op in program.walk() if isinstance(op, MoveOp)]
        for move in moves:
            buffer, block = move.buffer, move.parent_block()
            if not move.loads or move.joined is not None:
                continue
            if buffer.slot_count > 1 or visits(buffer) == 1:
                continue
            compute = None if block is None else _only_compute(block)
            if compute is None:
                continue
            behind = _is_reduced(move, program) and _is_behind_sums(buffer, compute)
            others = [op for op in _behind(move) if op.joined is None]
            if behind or any(op.loads and op.engine == move.engine for op in others):
                move.properties["late"] = StringAttr(LAST if behind else "first")


def _only_compute(block: Block) -> ComputeOp | None:
    """The compute of a block or of the loops within it, if each block has one of the two."""
    inner = [op for op in block.ops if isinstance(op, (ComputeOp, LoopOp))]
    if len(inner) != 1:
        return None
    (single,) = inner
    return _only_compute(single.body.block) if isinstance(single, LoopOp) else single


def _behind(move: MoveOp) -> list[MoveOp]:
    """The moves of a block behind one of them, those within its loops included."""
    moves: list[MoveOp] = []
    op = move.next_op
    while op is not None:
        moves += [inner for inner in op.walk() if isinstance(inner, MoveOp)]
        op = op.next_op
    return moves


def _is_reduced(move: MoveOp, program: ProgramOp) -> bool:
    """Return True if the outermost loop within a move's block runs through a reduction."""
    block = move.parent_block()
    loops = [] if block is None else [op for op in block.ops if isinstance(op, LoopOp)]
    return bool(loops) and loops[0].dim.data in program.reduction_dims


def _is_behind_sums(buffer: BufferOp, compute: ComputeOp) -> bool:
    """Return True if only the stages after the sums of a compute read a buffer."""
    return buffer.result not in compute.stages[0].inputs

"""Issue loads of a memory's next tile before the loops over the tiles within the present one."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import UnitAttr
from tilewright.machine import Machine
from tilewright.tile.dependences import visits
from tilewright.tile.dialect import BufferOp, ComputeOp, LoopOp, MoveOp, ProgramOp
from tilewright.tile.passes.base import TilePass


@dataclass(frozen=True)
class Prefetch(TilePass):
    """Marks loads of buffers on the way to the primitive's memory, of two slots or more, in blocks
    with loops: they are issued one run of the block earlier (swATOP, section 4.5.2).

    Commands are dispatched in program order, and each engine's queue holds few. The loops within a
    tile have more commands than that, so a load after them would be issued when they are nearly
    done, and their computes could not hide it.

    Where one engine gives the others their commands (``issuer``), in the order of the text, so are
    all loads of two slots or more, within a part: after a compute it comes to no load before that
    is done.

    Before::

        tile.loop "ow" 0 to 56 step 18 for "l1" {
          %x_l1 = tile.buffer "x.l1" of %x [n, ci, oh, ow] in "l1" slots 2
          tile.move %x to %x_l1 on "mte2"
          tile.loop "co" 0 to 256 step 96 for "l0a" {
            tile.move %x_l1 to %x_l0a on "mte1"

    After::

          tile.move %x to %x_l1 on "mte2" ahead
    """

    name = "prefetch"

    def run(self, program: ProgramOp, machine: Machine) -> None:
        """Mark the moves of one program."""
        for move in [op for op in program.walk() if isinstance(op, MoveOp)]:
            buffer, block = move.buffer, move.parent_block()
            if program.issuer is not None:
                if move.loads and buffer.slot_count > 1:
                    move.ahead = UnitAttr()
                continue
            inner = any(isinstance(use.operation, BufferOp) for use in buffer.result.uses)
            if block is None or not move.loads or not inner:
                continue
            outer = buffer.outer_buffer
            if outer is not None and outer.parent_block() is block:
                continue  # What is moved is made in the block itself.
            loops = [op for op in block.ops if isinstance(op, LoopOp)]
            computes = any(isinstance(op, ComputeOp) for op in block.ops)
            if len(loops) == 1 and not computes and buffer.slot_count > 1 and visits(buffer) > 1:
                move.ahead = UnitAttr()

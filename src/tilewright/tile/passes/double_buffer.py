"""Give buffers several slots, so that moves run ahead of the compute."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import integer
from tilewright.machine import Machine
from tilewright.tile.dependences import visits, visits_of_part
from tilewright.tile.dialect import BufferOp, MoveOp, ProgramOp
from tilewright.tile.passes.base import TilePass
from tilewright.tile.queues import leader_of, moves_of


@dataclass(frozen=True)
class DoubleBuffer(TilePass):
    """Sets the slots of each buffer to what the schedule asks for.

    This is the whole of prefetching. Engines are in-order queues that run side by side, and a
    move starts as soon as its waits hold. A buffer's visits take its slots in turn, and a load
    waits only until the slot's visit before (``slots`` visits ago) has been used: with one slot
    the next tile's load waits for this tile's compute, with two it runs during it. The address of
    the next tile needs no code of its own (as in swATOP, section 4.5.2): the window at the next
    iteration gives it, edge tiles and tiles of the next outer iteration included, and the load
    engine gets there by itself. The same holds for stores: with two slots the compute of the next
    tile starts while this one's result is written.

    Slots are asked for by the operand's name, for the buffer next to the primitive, and by a
    memory's name, too, for a buffer on the way there. A buffer that is visited n times gets n slots
    at most; visits in one part for a core count, and where one engine issues all commands, those in
    all parts of a buffer that is stored, whose store may go on in the next part. A joined buffer
    takes the slots of the one whose move it joins, since both are filled at once. ``operands`` and
    ``slots`` set the slots of the named operands instead of what the program asks for.

    Before::

        tile.program "k" on "m" [...] slots [["x", 2]] {
          ...
            %x_nbin = tile.buffer "x" of %x [n, ci, oh, ow] in "nbin" slots 1

    After::

            %x_nbin = tile.buffer "x" of %x [n, ci, oh, ow] in "nbin" slots 2
    """

    name = "double-buffer"
    operands: tuple[str, ...] = ()
    slots: int = 2

    def run(self, program: ProgramOp, machine: Machine) -> None:
        """Set the slots of one program's buffers."""
        asked: dict[tuple[str, str], int] = {}
        for operand, slots, *memory in program.get("slots", ()):
            asked[operand, memory[0] if memory else ""] = slots
        asked |= {(operand, ""): self.slots for operand in self.operands}
        leaders: dict[BufferOp, BufferOp] = {}
        buffers: list[BufferOp] = []
        for op in program.walk():
            if isinstance(op, MoveOp) and op.joined is not None:
                leaders[op.buffer] = leader_of(op).buffer
            elif isinstance(op, BufferOp):
                buffers.append(op)
        for buffer in buffers:
            leader = leaders.get(buffer, buffer)
            on_the_way = any(isinstance(use.operation, BufferOp) for use in leader.result.uses)
            key = leader.tensor_op.symbol.data, leader.memory if on_the_way else ""
            # Parts are other cores', or follow one another; then stores alone run on.
            loaded = any(op.loads for op in moves_of(buffer))
            follows = program.issuer is not None and not loaded
            count = visits(buffer) if follows else visits_of_part(buffer)
            slots = max(min(asked.get(key, 1), count), 1)
            if slots != buffer.slot_count:
                buffer.slots = integer(slots)

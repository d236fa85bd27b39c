"""Buffers of sums: where a reduction is cut into tiles, they stand outside of its loops."""

from __future__ import annotations

from collections.abc import Collection

from tilewright.errors import refuse
from tilewright.ir import UnitAttr
from tilewright.tile.dialect import enclosing_loops
from tilewright.tile.operations import BufferOp, ComputeOp
from tilewright.tile.queues import stores_of


def hold_sums(compute: ComputeOp, reduced: Collection[str], *, always: bool) -> None:
    """Move the output's buffers and their stores out of the outermost loop over a ``reduced`` dim.

    The accumulators must live through the whole reduction; this is part of the meaning, not a
    matter of speed, so it is done as a program is built and not in place-moves. The output's buffer
    holds accumulators where there is such a loop, or ``always``. Refuses (``schedule-invalid``) a
    result that stays and would have to: it has no room for them.
    """
    output = compute.output.owner
    if not isinstance(output, BufferOp):
        return
    loops = [loop for loop in enclosing_loops(compute) if loop.dim.data in reduced]
    if always or loops:
        if output.stays is not None:
            reason = f"{output.symbol.data} stays, and has no room for its sums"
            raise refuse("schedule-invalid", reason, output.symbol.data)
        output.accumulates = UnitAttr()
    outer = loops[0].parent_block() if loops else None
    if outer is None:
        return
    stores = stores_of(output)
    while stores and isinstance(buffer := stores[-1].target.owner, BufferOp):
        further = stores_of(buffer)
        if not further:
            break
        stores += further
    # From main memory inwards: a buffer stands after what it is of.
    for store in reversed(stores):
        store.detach()
        outer.insert_op_after(store, loops[0])
        store.buffer.detach()
        outer.insert_op_before(store.buffer, loops[0])

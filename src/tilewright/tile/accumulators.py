"""Buffers of sums: where a reduction is cut into tiles, they stand outside of its loops."""

from __future__ import annotations

from collections.abc import Collection

from tilewright.ir import UnitAttr
from tilewright.tile.dialect import enclosing_loops
from tilewright.tile.operations import BufferOp, ComputeOp, MoveOp


def hold_sums(compute: ComputeOp, reduced: Collection[str], *, always: bool) -> None:
    """Move the output's buffers and their stores out of the outermost loop over a ``reduced`` dim.

    The accumulators must live through the whole reduction; this is part of the meaning, not a
    matter of speed, so it is done as a program is built and not in place-moves. The output's buffer
    holds accumulators where there is such a loop, or ``always``.
    """
    output = compute.output.owner
    if not isinstance(output, BufferOp):
        return
    loops = [loop for loop in enclosing_loops(compute) if loop.dim.data in reduced]
    if always or loops:
        output.accumulates = UnitAttr()
    outer = loops[0].parent_block() if loops else None
    if outer is None:
        return
    stores = _stores(output)
    while stores and isinstance(buffer := stores[-1].target.owner, BufferOp):
        further = _stores(buffer)
        if not further:
            break
        stores += further
    # From main memory inwards: a buffer stands behind what it is of.
    for store in reversed(stores):
        store.detach()
        outer.insert_op_after(store, loops[0])
        store.buffer.detach()
        outer.insert_op_before(store.buffer, loops[0])


def _stores(buffer: BufferOp) -> list[MoveOp]:
    """The moves from a buffer to what it is of."""
    users = [use.operation for use in buffer.result.uses]
    return [op for op in users if isinstance(op, MoveOp) and op.buffer is buffer and not op.loads]

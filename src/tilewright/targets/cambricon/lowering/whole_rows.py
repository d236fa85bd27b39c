"""Images in the matrix scratchpad: whole rows, where windows leave the last few columns out.

Rows that lack a column are a transfer each, with its latency; whole ones are one transfer
together::

    54 columns, windows reach the first 53, 5 rows:   5 x (100 + 80) cycles
    all 54 columns of them:                                100 + 405 cycles
"""

from __future__ import annotations

from math import prod

from tilewright.machine import Move
from tilewright.targets.cambricon.lowering.nest import Nest
from tilewright.targets.cambricon.lowering.operands import Operand


def take_whole_rows(operand: Operand, nest: Nest, move: Move, room: int) -> None:
    """Let a buffer hold the whole of its first axis that is not, if that saves transfers.

    It lies at the start of its scratchpad then, whose ``room`` must take all slots.
    """
    shape, steps = operand.buffer.tensor_shape, {loop.dim.data for loop in nest.loops}
    inner = operand.element
    extents = nest.program.extents
    for axis in reversed(operand.order):
        affine = operand.buffer.window.data[axis]
        low, span = affine.interval({dim: (0, extents.get(dim, 1)) for dim in affine.dims})
        held = min(low + span, shape[axis]) - max(low, 0)
        stepped = not steps.isdisjoint(affine.dims)
        if held == shape[axis] and not stepped:
            inner *= shape[axis]
            continue
        outer = operand.order[: operand.order.index(axis)]
        if low > 0 or stepped or prod(shape[other] for other in outer) == 1:
            return
        more = (shape[axis] - held) * inner
        slot = -(-operand.slot_bytes * shape[axis] // held // 8) * 8
        if more < move.latency * move.bytes_per_cycle and operand.slots * slot <= room:
            operand.whole, operand.whole_bytes, operand.moved_to = axis, slot, 0
        return

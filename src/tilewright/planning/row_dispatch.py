"""What an in-order dispatcher costs where a move or a compute is an instruction for each row.

Loads of the next tile, computes of this one and its stores stand one behind the other in the
program. Of each, all but what its engine's queue holds have begun before the dispatcher comes to
the next: tiles of many rows make engines take turns, whatever their slots.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.machine import Move, parse_expression
from tilewright.planning.footprint import Floats, Ints, Use
from tilewright.planning.layout import Layout
from tilewright.planning.row_blocks import computed_at_once, row_dim
from tilewright.planning.space import Space


class RowDispatch:
    """The instructions of the tiles of a space's rows."""

    def __init__(self, space: Space) -> None:
        self.queues = {engine.name: engine.queue for engine in space.machine.engines}
        self.engine = space.primitive.engine
        self.transfers = {use.name: _lines(space, use) for use in space.uses if use.move}
        """Per row, the instructions of a transfer of each operand."""
        self.computes = _blocks(space)

    def turns(
        self, row: Ints, compute: Floats, moved: Sequence[tuple[Move, Floats, Floats]]
    ) -> Floats:
        """Cycles in which one engine at a time begins instructions, from a tile to the next.

        ``compute``: cycles of the tile; ``moved``: of each transfer, its move, instructions and bytes.
        """
        begun: dict[str, tuple[Floats, Floats]] = {self.engine: (self.computes[row], compute)}
        for move, lines, size in moved:
            flow = size / move.bytes_per_cycle
            busy = np.maximum(flow, (lines * move.latency + flow) / move.in_flight)
            before = begun.get(move.engine, (0.0, 0.0))
            begun[move.engine] = before[0] + lines, before[1] + busy
        total = np.zeros(len(row))
        for engine, (count, busy) in begun.items():
            total = total + busy * np.maximum(1 - self.queues[engine] / np.maximum(count, 1), 0)
        return total


def _lines(space: Space, use: Use) -> Floats:
    """Per row, the lengths of an operand's boxes along the axis of its rows: the outermost one in
    main memory that has more than one index."""
    operand = use.operand
    layout = Layout.parse(operand.layout, len(operand.shape))
    axis = next((f.axis for f in layout.factors[:-1] if operand.shape[f.axis] > 1), None)
    if axis is None:
        return np.ones(space.rows)
    table = space.tables[use.name][axis]
    length = table.largest[tuple(space.index[dim] for dim in table.dims)]
    return np.minimum(length, operand.shape[axis]).astype(np.float64)


def _blocks(space: Space) -> Floats:
    """Per row, the instructions of a tile's compute."""
    cycles, blocks = parse_expression(space.primitive.cycles), np.ones(space.rows)
    for dim in (row_dim(space.extents), "co"):
        if dim in space.index:
            blocks = blocks * -(-space.size(dim) // computed_at_once(cycles, space.extents, dim))
    return blocks


__all__ = ["RowDispatch"]

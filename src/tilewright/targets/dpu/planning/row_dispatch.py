"""The cost of an in-order dispatcher where a move or a compute is an instruction for each row.

Loads of the next tile, computes of this one and its stores stand one behind the other in the
program. Of each, all but what its engine's queue holds were issued before the dispatcher comes to
the next: tiles of many rows make engines take turns, whatever their slots, and main memory is idle
while no more than the loads in the queue are left.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.machine import Move, parse_expression
from tilewright.planning.cost.own import Dispatch, RowInstructions, Transfer
from tilewright.planning.cost.row_blocks import computed_at_once, row_dim
from tilewright.planning.domain import Operand
from tilewright.planning.layout import Layout
from tilewright.planning.space.cells import Cells
from tilewright.planning.space.footprint import Floats, Ints, Use
from tilewright.planning.space.tilings import Space


class RowDispatch(Dispatch):
    """The instructions of the tiles of a space's rows."""

    def __init__(self, space: Space, cells: Cells) -> None:
        self.queues = {engine.name: engine.queue for engine in space.machine.engines}
        self.engine = space.primitive.engine
        self.transfers = {u.name: _lines(space, cells, u) for u in space.uses if u.move}
        self.computes = _blocks(space)

    def further_latency(self, use: Use, size: Floats) -> Floats:
        """Per cell, the latencies of a transfer's rows that its bytes and the first do not hide."""
        assert use.move is not None
        return _latency(use.move, self.transfers[use.name], size) - use.move.latency

    def busy(self, use: Use, size: Floats) -> Floats:
        """Per cell, the time that a transfer's rows take of their engine, one after the other."""
        assert use.move is not None
        return _busy(use.move, self.transfers[use.name], size)

    def turns(self, row: Ints, compute: Floats, moved: Sequence[Transfer]) -> Floats:
        """Cycles from a tile to the next for which engines that take turns ask.

        ``compute``: cycles of the tile.
        """
        count, busy = self.computes[row], compute
        head = self._head(self.engine, count) * busy
        issued = {self.engine: (count, busy)}
        flows, left, ahead = (np.zeros(len(row)) for _ in range(3))
        for transfer in moved:
            move, lines = transfer.move, transfer.lines
            flow = transfer.size / move.bytes_per_cycle
            count, busy = issued.get(move.engine, (0.0, 0.0))
            longest = _busy(move, lines, transfer.size)
            issued[move.engine] = count + lines, busy + longest
            first = self._head(move.engine, lines) * flow
            flows, left = flows + flow, left + np.where(transfer.stores, flow - first, 0.0)
            ahead = ahead + np.where(transfer.stores, 0.0, first)
            head = head - np.where(transfer.stores, 0.0, flow - first)
        single = sum(self._head(engine, count) * busy for engine, (count, busy) in issued.items())
        # While computes wait to be dispatched, what flows are loads, and stores that loads which
        # were dispatched before have not given time to.
        head = head - np.maximum(left - ahead, 0.0)
        return np.maximum(single, flows + np.maximum(head, 0.0))

    def _head(self, engine: str, count: Floats) -> Floats:
        """The part of some instructions that was issued before the dispatcher goes on."""
        return np.maximum(1 - self.queues[engine] / np.maximum(count, 1), 0.0)


def _busy(move: Move, lines: Floats, size: Floats) -> Floats:
    flow = size / move.bytes_per_cycle
    return np.maximum(flow, (lines * move.latency + flow) / move.in_flight)


def _lines(space: Space, cells: Cells, use: Use) -> Floats:
    """Per cell, the mean length of an operand's boxes along the axis of its rows."""
    lines, axis = np.ones(len(cells.row)), _axis(use.operand)
    if axis is None:
        return lines
    table = space.tables[use.name][axis]
    for kind in np.unique(cells.kind):
        short = {dim for bit, dim in enumerate(cells.dims) if kind >> bit & 1}
        mean = table.mean[tuple(dim in short for dim in table.dims)]
        mine = np.flatnonzero(cells.kind == kind)
        lines[mine] = mean[tuple(space.index[dim][cells.row[mine]] for dim in table.dims)]
    return lines


def _blocks(space: Space) -> Floats:
    """Per row, the instructions of a tile's compute."""
    cycles, blocks = parse_expression(space.primitive.cycles), np.ones(space.rows)
    for dim in (row_dim(space.extents), "co"):
        if dim in space.index:
            blocks = blocks * -(-space.size(dim) // computed_at_once(cycles, space.extents, dim))
    return blocks


def _axis(operand: Operand) -> int | None:
    """The axis along which a move has an instruction for each index: the outermost one in main
    memory that has several."""
    factors = Layout.parse(operand.layout, len(operand.shape)).factors
    return next((f.axis for f in factors[:-1] if operand.shape[f.axis] > 1), None)


def _latency(move: Move, rows: Floats | Ints, size: Floats | Ints) -> Floats:
    """Latency of a transfer of so many rows and bytes, each of which has its own, beside the time
    in which its bytes flow."""
    flow = size / move.bytes_per_cycle
    return np.maximum(move.latency, (rows * move.latency + flow) / move.in_flight - flow)


class CoreInstructions(RowInstructions):
    """The instructions of the CNN core."""

    def dispatch(self, space: Space, cells: Cells) -> RowDispatch:
        """The dispatcher's cost of the tiles of a space."""
        return RowDispatch(space, cells)

    def axis(self, operand: Operand) -> int | None:
        """The axis of the rows of an operand's moves."""
        return _axis(operand)

    def latency(self, move: Move, rows: Ints, size: Ints) -> Floats:
        """Latency of a transfer, all of its rows considered."""
        return _latency(move, rows, size)


__all__ = ["CoreInstructions"]

"""Rows of an image that a tile shares with the one before it: copied on the chip, not loaded again.

Windows that overlap reach from one tile into the next. In the matrix scratchpad, whose unit copies
the square of the lanes in elements a cycle, what the tile at hand ends with becomes the begin of
the next one, in the other slot, and the load brings the rest::

    slot 1   0  1  2  3  4                 loaded
    slot 2               4  5  6  7  8     4 is copied, 5 to 8 are loaded
    slot 1                           8 ... 8 is copied

The copy stands behind that load in the queue: it waits for the load of the tile at hand.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.boxes import Box, Spans
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.operands import Operand
from tilewright.targets.cambricon.lowering.streams import Stream
from tilewright.targets.cambricon.lowering.tiles import Fill
from tilewright.tile.dialect import BufferOp

if TYPE_CHECKING:
    from tilewright.targets.cambricon.lowering.walk import Walk


def halo_of(walk: Walk, buffer: BufferOp, level: Register, load: Fill) -> Fill:
    """How a buffer is filled: by ``load``, or by what of it the tile at hand does not hold.

    The innermost loop around it must go down rows that its tiles share, and each tile have rows of
    its own.
    """
    depth, rows = walk.depth(buffer), walk.slides.get(buffer)
    if rows is None or rows.axis is None or buffer in walk.begun or rows.span <= rows.stride:
        return load
    if walk.loops[depth - 1].dim.data != rows.out:
        return load
    # The first window of the last tile, and the first row behind the window before it.
    first, left = 0, walk.extents[rows.out]
    for loop in walk.loops[:depth]:
        if loop.dim.data == rows.out:
            before = (left - 1) // loop.step_size * loop.step_size
            first, left = first + before, min(left - before, loop.step_size)
    behind = buffer.window.data[rows.axis].offset + (first - 1) * rows.stride + rows.span
    if behind >= buffer.tensor_shape[rows.axis]:
        return load
    return Halo(walk, rows.axis, depth - 1, level, load).fill


class Halo:
    """The loads of an image whose tiles share rows; ``level`` holds the loop that advances."""

    def __init__(self, walk: Walk, axis: int, number: int, level: Register, load: Fill) -> None:
        """Loop ``number`` goes down the rows, which are an ``axis`` of the image."""
        self.e, self.axis, self.number = walk.e, axis, number
        self.level, self.load = level, load
        self.end = self.e.variable(0)
        """The first row behind those of the tile that was loaded last."""
        self.behind = self.e.variable(0)
        """The address behind its last row."""

    def fill(
        self, operand: Operand, spans: Spans, base: Value, stream: Stream | None, box: Box | None
    ) -> None:
        """Load what the tile at hand does not hold of the next one, and copy what it does."""
        assert box is not None
        e, rows, step = self.e, box.axes[self.axis], box.strides[self.axis]
        same = e.equals(self.level, self.number)
        shared = e.multiply(same, e.subtract(self.end, rows.low))
        there = e.multiply(shared, step)
        source = e.subtract(self.behind, there)
        e.set(self.end, e.add(rows.low, rows.size))
        e.set(self.behind, e.add(base, e.multiply(rows.size, step)))
        rest = replace(rows, low=e.add(rows.low, shared), size=e.subtract(rows.size, shared))
        axes = (*box.axes[: self.axis], rest, *box.axes[self.axis + 1 :])
        self.load(operand, spans, e.add(base, there), stream, replace(box, axes=axes))
        elements = e.loaded(e.divide(there, operand.element))
        e.emit("MMOVE", e.loaded(base), elements, e.loaded(source))

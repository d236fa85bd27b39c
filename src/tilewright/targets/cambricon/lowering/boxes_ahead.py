"""The boxes of the next tile: what its buffers hold is kept for the code that computes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.boxes import Axis, Box, Spans
from tilewright.targets.cambricon.lowering.emitter import Emitter, registers_in, replaced
from tilewright.targets.cambricon.lowering.operands import Operand
from tilewright.tile.dialect import BufferOp

if TYPE_CHECKING:
    from tilewright.targets.cambricon.lowering.walk import Walk

KEPT = ("input",)
"""Roles of the operands whose boxes computes ask for."""


class BoxesAhead:
    """What a flat loop knows of the boxes with which it fills buffers."""

    e: Emitter
    walk: Walk
    next: list[Register]
    coming: dict[BufferOp, int]
    copies: list[tuple[Register, Register]]
    boxes: dict[BufferOp, Box]
    """What buffers hold that fill their other slot: first of the next tile, then of this."""
    axes: dict[BufferOp, dict[int, Axis]]
    """Axes of the next ones that only the outermost loops move."""

    def _box(self, buffer: BufferOp, depth: int) -> Box | None:
        """The box with which a buffer is filled, if it is kept for the tile that uses it."""
        e, walk = self.e, self.walk
        if not self._keeps_box(buffer):
            return None

        def coming_box() -> Box:
            spans, axes = self._coming(depth), self.axes.get(buffer)
            return walk.operands[buffer].box(e, spans, walk.extents, axes)

        self.boxes[buffer] = e.settled(coming_box)
        return self.boxes[buffer]

    def _settle_axes(self, depth: int) -> None:
        """Axes of boxes that only the outermost loops move: they stay until these advance."""
        walk = self.walk
        for buffer, within in self.coming.items():
            if depth >= within or not self._keeps_box(buffer):
                continue
            operand = walk.operands[buffer]
            for number, axis in enumerate(buffer.window.data):
                moves = [
                    n for n, loop in enumerate(walk.loops[:within], 1) if loop.dim.data in axis.dims
                ]
                if moves and max(moves) == depth:
                    self.axes.setdefault(buffer, {})[number] = self._axis(operand, number, depth)

    def _axis(self, operand: Operand, number: int, depth: int) -> Axis:
        walk = self.walk
        return self.e.settled(
            lambda: operand.axis(number, self.e, self._coming(depth), walk.extents)
        )

    def _coming(self, depth: int) -> Spans:
        """What is known of the next tile within so many loops."""
        return self.walk.spans(self.next, depth)

    def _keeps_box(self, buffer: BufferOp) -> bool:
        """Whether the box with which a buffer is filled is kept for the tile that uses it."""
        kept = buffer in self.coming and self.walk.operands[buffer].role in KEPT
        return kept and not self.walk.stepped(buffer)

    def _keep_boxes(self) -> None:
        """Registers for the boxes of the tile that is computed."""
        for buffer, box in self.boxes.items():
            copies = {register: self.e.register() for register in registers_in(box)}
            self.copies += [(now, coming) for coming, now in copies.items()]
            self.boxes[buffer] = replaced(box, copies)

"""Weights that load while all tiles of those before them are computed.

Where tiles of weights stay for several tiles of the image, the other slot is free as soon as the
first of these tiles begins: the next weights come then, not just before they are needed. Behind the
last of them the matrix scratchpad takes loads of a kernel that follows (early.py).

Weights that have one slot may have room beside it. The next ones lie so far behind those at hand,
and the ones behind them at the first place again::

    places      | tile 0, 2 ...            |
                |--shift--| tile 1, 3 ...            |

The part of the next weights that lies beside those at hand comes as soon as these are there, the
rest when they have been used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.boxes import Spans
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.tiles import Fill, Part
from tilewright.tile.dialect import BufferOp

if TYPE_CHECKING:
    from tilewright.targets.cambricon.lowering.walk import Walk


class WeightsAhead:
    """The loads of such weights in a flat loop."""

    def __init__(self, walk: Walk, buffer: BufferOp, fill: Fill, part: Part) -> None:
        self.walk, self.buffer, self.fill, self.part = walk, buffer, fill, part
        self.operand = walk.operands[buffer]
        self.depth = walk.depth(buffer)
        self.e = walk.e

    def begin(self) -> None:
        """Before all tiles: the first weights, unless an earlier kernel has begun their load."""
        if self.buffer not in self.walk.begun:
            spans = self.walk.spans([0] * len(self.walk.loops), self.depth)
            with self.e.scope():
                self.fill(self.operand, spans, self.operand.first, None, None)

    def taken(
        self, now: list[Register], current: Register, swap: Callable[[Register], None]
    ) -> None:
        """Behind the step to other weights, which lie at ``current``: load those behind them."""
        e, walk, depth = self.e, self.walk, self.depth
        load, done = e.label("ahead"), e.label("loading")
        if self.operand.shift:
            self._rest(now, current)
        with e.scope():
            coming = [e.variable(now[number]) for number in range(depth)]
            for number in range(depth - 1, -1, -1):
                at = coming[number]
                e.emit("SADD", at, at, walk.loops[number].step_size)
                with e.scope():
                    e.if_less(at, walk.end(number, coming), load)
                e.set(at, 0)
            walk.passing(True)
            e.jump(done)
            e.place(load)
            base = e.variable(current)
            swap(base)
            spans = e.settled(lambda: walk.spans([*coming, *now[depth:]], depth))
            if self.operand.shift:
                self.part(self.operand, spans, base, True)
            else:
                self.fill(self.operand, spans, base, None, None)
        e.place(done)

    def _rest(self, now: list[Register], current: Register) -> None:
        """What has not come of the weights at hand: of the first ones, all has."""
        e, there = self.e, self.e.label("whole")
        with e.scope():
            total: Value = 0
            for at in now[: self.depth]:
                total = e.add(total, at)
            e.if_positive(e.subtract(1, total), there)
        with e.scope():
            spans: Spans = e.settled(lambda: self.walk.spans(now, self.depth))
            self.part(self.operand, spans, current, False)
        e.place(there)

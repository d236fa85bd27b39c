"""Gradients of maxima: what is left of a gradient goes from value to value.

A value that is less than the greatest passes on what is left; the first other one takes it. Three
instructions a value, none for the last, and no place beside the result: what is left after a value
lies where the next one's gradient will.
"""

from __future__ import annotations

from tilewright.errors import refuse
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.context import Code, Context
from tilewright.targets.cambricon.lowering.nest import Tile
from tilewright.targets.cambricon.machine import lanes_of

UNROLLED = 9
"""Values whose instructions stand one after the other; more are a loop."""


class MaximumGradient(Code):
    """The code of one gradient of maxima."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        c = self.c
        self.x, _ = c.source(c.anchor, 0)
        self.values = c.nest.extent("j")
        self.stands_alone("nothing follows a maximum's gradient")
        if self.x.order != (0, 1, 2) or c.output.order != (0, 1, 2):
            raise refuse("lower-layout", "elements do not lie row by row", c.where)
        self.stays_whole(self.x, c.output)
        c.transfers.space_slots(3.0 * -(-c.nest.tile_size("p") // lanes_of(c.machine)))

    def emit(self, tile: Tile) -> None:
        """Emit the code of one tile."""
        e, c = self.e, self.c
        n = e.reg(tile.spans.of("p"))
        step = e.multiply(tile.spans.of("p"), 2)
        at = e.variable(tile.bases[self.x.buffer])
        to = e.variable(tile.bases[c.output.buffer])

        def row() -> None:
            greatest = e.register()
            e.emit("SADD", greatest, at, e.multiply(step, self.values))
            left = e.variable(e.add(greatest, step))
            if self.values == 1:
                e.emit("VMOVE", to, n, left)
            else:
                following = e.register()
                count = self.values - 1
                e.unrolled(count, UNROLLED - 1, lambda: value(greatest, left, following))
            # After the last value, the greatest and its gradient the next row begins.
            e.increase(at, e.multiply(step, 3))
            e.increase(to, step)

        def value(greatest: Register, left: Register, following: Register) -> None:
            e.emit("SADD", following, to, step)
            e.emit("VGT", following, n, greatest, at)
            e.emit("VMV", following, n, following, left)
            e.emit("VSV", to, n, left, following)
            e.set(left, following)
            e.set(to, following)
            e.increase(at, step)
            c.transfers.issue_slot()

        e.repeat(tile.spans.of("n"), row, least=1)

"""The gradient of local response normalisation, step by step as numerics.lrn_gradient states it."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.program.elements import elements, fraction
from tilewright.errors import refuse
from tilewright.numerics import lrn_gradient
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.context import Context
from tilewright.targets.cambricon.lowering.normalise import Lrn


class LrnGradient(Lrn):
    """Two powers of one base, and the sums of what the second one makes over windows.

    These lie between the same zeros as the squares did. All channels of a pixel fit temporaries.
    """

    passes = 19
    added = 3

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        c, values = self.c, self.c.anchor.parameters
        if self.part < self.channels:
            raise refuse("lower-temporaries", f"{self.channels} channels at once", c.where)
        (x, gradient), result_kind = elements(c.anchor)
        self.point = fraction(gradient)
        beta, bias = float(values["beta"]), float(values["bias"])
        points = (fraction(x), self.point, fraction(result_kind))
        alpha = float(values["alpha"])
        self.how = lrn_gradient.settle(self.window, alpha, beta, bias, points)
        self.steeper = self._powers(beta + 1, self.how.factor)
        self.ratio = c.temporaries.take(2 * self.channels)

    def _pixel(self, sources: Sequence[Register], y: Register) -> None:
        e, how, (x, gradient) = self.e, self.how, sources
        self._base(x, 0, self.channels)
        n, sums, ratio = (e.reg(v) for v in (self.channels, self.sums, self.ratio))
        down = _shift(self.point - self.points[1])
        e.emit(f"VDV.long1.table={self.table}{down}", y, n, gradient, sums)
        down = _shift(self.points[0] - how.ratio)
        e.emit(f"VDV.long1.table={self.steeper}{down}", ratio, n, x, sums)
        self._between(how.back, n, (ratio, gradient))
        self._add_up(self.channels, "wide")
        e.emit(f"VMV.long.wide0{_shift(how.last)}", sums, n, sums, x)
        e.emit("VSV.long1", y, n, y, sums)

    def _between(self, before: int, n: Register, factors: tuple[Register, Register]) -> None:
        """Products in the place of the squares; zeros where these lay and no product does."""
        e = self.e
        place = e.reg(self.squares + 4 * before)
        first, unit = (self.window - 1) // 2, e.reg(1)
        uneven = before != first
        if uneven:
            left = e.reg(self.squares + 4 * first)
            e.emit("VSV.wide.wide0.wide1", left, unit, left, left)
        e.emit(f"VMV.wide{_shift(self.how.spare)}", place, n, *factors)

    def _base(self, x: Register, first: int, count: int) -> None:
        e = self.e
        if self.how.back != (self.window - 1) // 2:
            unit, last = (
                e.reg(1),
                e.reg(self.squares + 4 * (self.how.back + self.channels - 1)),
            )
            e.emit("VSV.wide.wide0.wide1", last, unit, last, last)
        super()._base(x, first, count)


def _shift(number: int) -> str:
    return f".shift={number}" if number else ""

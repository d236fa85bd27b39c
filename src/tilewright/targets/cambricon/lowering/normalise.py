"""Local response normalisation and softmax, step by step as numerics.fixed states them."""

from __future__ import annotations

from tilewright.errors import refuse
from tilewright.numerics import fixed
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.context import Context
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.product import clear
from tilewright.targets.cambricon.lowering.walk import Tile
from tilewright.targets.generic.lowering.steps import elements, fraction


def _alone(c: Context) -> None:
    if len(c.compute.stages) > 1:
        raise refuse(
            "lower-epilogue", f"{c.anchor.operation.data} takes nothing behind it", c.where
        )


class Lrn:
    """The sum of squares of neighbouring channels, pixel by pixel.

    Squares lie between zeros, so that the window of the first and last channels needs no other
    code; they have 64 bits, as their sum may exceed 32.
    """

    def __init__(self, context: Context) -> None:
        c = self.c = context
        self.e = c.e
        _alone(c)
        self.x, _ = c.source(c.anchor, 0)
        if self.x.order[-1] != 1:
            raise refuse("lower-layout", "channels do not lie side by side", c.where)
        (kind, *_), made = elements(c.anchor)
        self.points = fraction(kind), fraction(made)
        values = c.anchor.parameters
        self.window = int(values["size"])
        self.constant = max(round(float(values["bias"]) * 2**20), 1)
        self.factor = round(float(values["alpha"]) / self.window * 2**30)
        self.channels = c.extent("c")
        t = self.c.temporaries
        self.squares = t.take(8 * (self.channels + self.window - 1))
        self.sums = t.take(8 * self.channels)
        self.factors = t.take(4 * self.channels)
        mantissas, powers, shifts = fixed.lrn_tables(float(values["beta"]))
        data = b"".join(part.astype("<u2").tobytes() for part in (mantissas, powers, shifts))
        self.table = c.table(data)

    def prologue(self) -> None:
        """Zeros around the squares, and a vector of the factor."""
        e, size = self.e, self.channels + self.window - 1
        with e.scope():
            at, n = e.held(self.squares), e.held(size)
            # Random numbers have 16 bits; their differences, of any width, are 0.
            e.emit("RV", at, n)
            e.emit("VSV.long", at, n, at, at)
            vector, m = e.held(self.factors), e.held(self.channels)
            e.emit("VAS.wide.long0", vector, m, at, e.held(self.factor))

    def emit(self, tile: Tile) -> None:
        """One tile."""
        e, c = self.e, self.c
        with e.scope():
            box = c.box(self.x, tile)
            pixels: Value = 1
            for axis in (0, 2, 3):
                pixels = e.multiply(pixels, box.axes[axis].size)
            x, y = e.variable(tile.bases[self.x.buffer]), e.variable(tile.bases[c.output.buffer])

            def each() -> None:
                self._pixel(x, y)
                c.hook()
                e.increase(x, 2 * self.channels)
                e.increase(y, 2 * self.channels)

            e.repeat(pixels, each, least=1)

    def _pixel(self, x: Register, y: Register) -> None:
        e, n = self.e, self.e.held(self.channels)
        before = (self.window - 1) // 2
        sums = e.held(self.sums)
        e.emit("VMV.long", e.held(self.squares + 8 * before), n, x, x)
        first = e.held(self.squares)
        if self.window > 1:
            second = e.held(self.squares + 8)
            e.emit("VAV.long.long0.long1", sums, n, first, second)
        else:
            e.emit("VMOVE.long.long0", sums, n, first)
        for j in range(2, self.window):
            e.emit("VAV.long.long0.long1", sums, n, sums, e.held(self.squares + 8 * j))
        shift = 2 * self.points[0] + 10
        scaled = "VMV.long.long0.wide1" + (f".shift={shift}" if shift else "")
        e.emit(scaled, sums, n, sums, e.held(self.factors))
        e.emit("VAS.long.long0", sums, n, sums, e.held(self.constant))
        distance = self.points[0] - self.points[1]
        text = f"VDV.long1.table={self.table}" + (f".shift={distance}" if distance else "")
        e.emit(text, y, n, x, sums)


class Softmax:
    """Rows along the innermost axis: maximum, exponentials, their sum, quotients."""

    def __init__(self, context: Context) -> None:
        c = self.c = context
        self.e = c.e
        _alone(c)
        self.x, access = c.source(c.anchor, 0)
        last = self.x.order[-1]
        # Axes behind the reduced one may be there if they have one element.
        inner = next(
            (a for a in reversed(self.x.order) if self.x.buffer.tensor_shape[a] != 1), last
        )
        size = self.size = c.extent("axis")
        if size > 1 and "axis" not in access[inner].dims:
            raise refuse("lower-layout", "the axis of softmax is not the innermost", c.where)
        (kind, *_), made = elements(c.anchor)
        self.points = fraction(kind), fraction(made)
        t = c.temporaries
        self.values = t.take(4 * size)
        self.part = min(size, t.left // 8 // 8 * 8)
        self.zeros = t.take(2 * self.part)
        self.ones = t.take(2 * self.part)
        self.totals = t.take(4 * self.part)

    def prologue(self) -> None:
        """Zeros and ones."""
        e = self.e
        clear(self.c, self.zeros, self.part)
        with e.scope():
            e.emit("VAS", e.held(self.ones), e.held(self.part), e.held(self.zeros), e.held(1))

    def emit(self, tile: Tile) -> None:
        """One tile."""
        e, c = self.e, self.c
        with e.scope():
            rows: Value = 1
            for dim in c.extents:
                if dim != "axis":
                    rows = e.multiply(rows, tile.spans.of(dim))
            x, y = e.variable(tile.bases[self.x.buffer]), e.variable(tile.bases[c.output.buffer])

            def each() -> None:
                self._row(x, y)
                e.increase(x, 2 * self.size)
                e.increase(y, 2 * self.size)

            e.repeat(rows, each, least=1)

    def _parts(self) -> list[tuple[int, int]]:
        return [(at, min(self.part, self.size - at)) for at in range(0, self.size, self.part)]

    def _row(self, x: Register, y: Register) -> None:
        e = self.e
        with e.scope():
            n, values = e.held(self.size), e.held(self.values)
            greatest, total = e.register(), e.register()
            zeros, ones, totals = (e.held(a) for a in (self.zeros, self.ones, self.totals))
            e.emit("VMAX", greatest, n, x)
            for at, count in self._parts():
                place = e.held(self.values + 4 * at)
                source = e.held(e.add(x, 2 * at))
                e.emit("VSV.wide", place, e.held(count), zeros, source)
            e.emit("VAS.wide.wide0", values, n, values, greatest)
            decay = f".shift={self.points[0]}" if self.points[0] else ""
            e.emit(f"VEXP.decay.wide.wide0{decay}", values, n, values)
            for number, (at, count) in enumerate(self._parts()):
                place = e.held(self.values + 4 * at)
                if number == 0:
                    e.emit("VDOT.wide0", total, e.held(count), place, ones)
                else:
                    e.emit("VDOT.acc.wide0", total, e.held(count), place, ones)
            part = e.held(self.part)
            e.emit("VAS.wide", totals, part, zeros, total)
            left = -self.points[1]
            text = "VDV.wide0.wide1" + (f".shift={left}" if left else "")
            for at, count in self._parts():
                place = e.held(self.values + 4 * at)
                e.emit(text, e.held(e.add(y, 2 * at)), e.held(count), place, totals)


__all__ = ["Lrn", "Softmax"]

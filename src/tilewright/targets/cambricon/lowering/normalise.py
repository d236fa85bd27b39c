"""Local response normalisation and softmax, step by step as numerics.fixed states them."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.program.elements import elements, fraction
from tilewright.errors import refuse
from tilewright.numerics import fixed
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.context import Code, Context
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.nest import Tile
from tilewright.targets.cambricon.lowering.temporaries import clear
from tilewright.targets.cambricon.machine import lanes_of


class Lrn(Code):
    """The sum of squares of neighbouring channels, pixel by pixel.

    Squares lie between zeros, so that the window of the first and last channels needs no other
    code. Their sums have 64 bits, as they may exceed 32. An addition takes two neighbours.
    """

    passes = 9
    """Cycles for a row of lanes beside those of the additions: the square, scale and constant at
    twice the time, the power at four times, as the description's primitive says."""
    added = 2
    """Cycles of an addition for a row of lanes."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        c = self.c
        self.stands_alone(f"{c.anchor.operation.data} takes no stage after it")
        self.inputs = [c.source(c.anchor, i)[0] for i in range(len(c.anchor.inputs))]
        self.x = self.inputs[0]
        if any(operand.order[-1] != 1 for operand in self.inputs):
            raise refuse("lower-layout", "channels do not lie side by side", c.where)
        (kind, *_), result_kind = elements(c.anchor)
        self.points = fraction(kind), fraction(result_kind)
        values = c.anchor.parameters
        self.window = int(values["size"])
        self.constant = max(round(float(values["bias"]) * 2**20), 1)
        self.factor = round(float(values["alpha"]) / self.window * 2**30)
        self.channels = c.nest.extent("c")
        t = self.c.temporaries
        around = self.window - 1
        # Channels at a time: squares and factors of 32 bits, sums of 64.
        self.part = min(self.channels, (t.left - 12 * around - 24) // 16 // 8 * 8)
        if self.part < 1:
            raise refuse("lower-temporaries", f"a window of {self.window} channels", c.where)
        self.squares = t.take(4 * (self.part + around))
        self.sums = t.take(8 * (self.part + around))
        self.factors = t.take(4 * self.part)
        self.table = self._powers(float(values["beta"]))
        rows = -(-self.channels // lanes_of(c.machine))
        c.transfers.space_slots(rows * (self.passes + self.added * min(self.window - 1, 3)))

    def _powers(self, beta: float, factor: float = 1.0) -> int:
        """The table of the power -beta, times a factor."""
        parts = fixed.lrn_tables(beta, factor)
        return self.c.tables.number(b"".join(part.astype("<u2").tobytes() for part in parts))

    def prologue(self) -> None:
        """Zeros around the squares, and a vector of the factor."""
        e, size = self.e, self.part + self.window - 1
        at, n = e.reg(self.squares), e.reg(size)
        # Random numbers have 16 bits; their differences, of any width, are 0.
        e.emit("RV", at, n)
        e.emit("VSV.wide", at, n, at, at)
        vector, m = e.reg(self.factors), e.reg(self.part)
        e.emit("VAS.wide.wide0", vector, m, at, e.reg(self.factor))

    def emit(self, tile: Tile) -> None:
        """Emit the code of one tile."""
        e, c = self.e, self.c
        box = c.nest.box(self.x, tile)
        pixels: Value = 1
        for axis in (0, 2, 3):
            pixels = e.multiply(pixels, box.axes[axis].size)
        sources = [e.variable(tile.bases[operand.buffer]) for operand in self.inputs]
        y = e.variable(tile.bases[c.output.buffer])

        def each() -> None:
            self._pixel(sources, y)
            c.transfers.issue_slot()
            for place in (*sources, y):
                e.increase(place, 2 * self.channels)

        e.repeat(pixels, each, least=1)

    def _pixel(self, sources: Sequence[Register], y: Register) -> None:
        for first in range(0, self.channels, self.part):
            self._channels(sources[0], y, first, min(self.part, self.channels - first))

    def _channels(self, x: Register, y: Register, first: int, count: int) -> None:
        """Some channels of a pixel, from the first one on."""
        e = self.e
        self._base(x, first, count)
        distance = self.points[0] - self.points[1]
        text = f"VDV.long1.table={self.table}" + (f".shift={distance}" if distance else "")
        result, operand = e.reg(e.add(y, 2 * first)), e.reg(e.add(x, 2 * first))
        e.emit(text, result, e.reg(count), operand, e.reg(self.sums))

    def _base(self, x: Register, first: int, count: int) -> None:
        """Emit the base that is raised to a power, of 64 bits with 20 fraction bits."""
        e, n = self.e, self.e.reg(count)
        before = (self.window - 1) // 2
        sums = e.reg(self.sums)
        # The neighbours that there are; the others' squares stay 0, or become 0 again.
        low = max(first - before, 0)
        high = min(first - before + count + self.window - 1, self.channels)
        start = low - (first - before)
        after = start + high - low
        if self.part < self.channels:
            for at, size in ((0, start), (after, count + self.window - 1 - after)):
                if size:
                    place = e.reg(self.squares + 4 * at)
                    e.emit("VSV.wide.wide0.wide1", place, e.reg(size), place, place)
        source = e.reg(e.add(x, 2 * low))
        target, in_register = e.reg(self.squares + 4 * start), e.reg(high - low)
        e.emit("VMV.wide", target, in_register, source, source)
        self._add_up(count, "long")
        shift = 2 * self.points[0] + 10
        scaled = "VMV.long.long0.wide1" + (f".shift={shift}" if shift else "")
        e.emit(scaled, sums, n, sums, e.reg(self.factors))
        e.emit("VAS.long.long0", sums, n, sums, e.reg(self.constant))

    def _add_up(self, count: int, kind: str) -> None:
        """Sums over windows of what lies between zeros, of 64 bits (``long``) or 32 (``wide``)."""
        e, n, sums = self.e, self.e.reg(count), self.e.reg(self.sums)
        if self.window == 1:
            e.emit(f"VMOVE.{kind}.wide0", sums, n, e.reg(self.squares))
            return
        for first in range(0, self.window - 1, 2):
            two = (e.reg(self.squares + 4 * at) for at in (first, first + 1))
            again = ".acc" if first else ""
            e.emit(f"VAV.{kind}{again}.wide0.wide1", sums, n, *two)
        if self.window % 2:
            last = e.reg(self.squares + 4 * (self.window - 1))
            e.emit(f"VAV.{kind}.{kind}0.wide1", sums, n, sums, last)


class Softmax(Code):
    """Rows along the innermost axis: maximum, exponentials, their sum, quotients."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        c = self.c
        self.stands_alone(f"{c.anchor.operation.data} takes no stage after it")
        self.x, access = c.source(c.anchor, 0)
        last = self.x.order[-1]
        # Axes after the reduced one may be there if they have one element.
        inner = next(
            (a for a in reversed(self.x.order) if self.x.buffer.tensor_shape[a] != 1), last
        )
        size = self.size = c.nest.extent("axis")
        if size > 1 and "axis" not in access[inner].dims:
            raise refuse("lower-layout", "the axis of softmax is not the innermost", c.where)
        (kind, *_), result_kind = elements(c.anchor)
        self.points = fraction(kind), fraction(result_kind)
        t = c.temporaries
        # Elements at a time: the exponentials, the total's copies, zeros and ones.
        self.part = min(size, t.left // 12 // 8 * 8)
        self.values = t.take(4 * self.part)
        self.zeros = t.take(2 * self.part)
        self.ones = t.take(2 * self.part)
        self.totals = t.take(4 * self.part)

    def prologue(self) -> None:
        """Emit the vectors of zeros and ones."""
        e = self.e
        clear(self.e, self.zeros, self.part)
        e.emit(
            "VAS",
            e.reg(self.ones),
            e.reg(self.part),
            e.reg(self.zeros),
            e.reg(1),
        )

    def emit(self, tile: Tile) -> None:
        """Emit the code of one tile."""
        e, c = self.e, self.c
        rows: Value = 1
        for dim in c.nest.extents:
            if dim != "axis":
                rows = e.multiply(rows, tile.spans.of(dim))
        x, y = e.variable(tile.bases[self.x.buffer]), e.variable(tile.bases[c.output.buffer])

        def each() -> None:
            self._row(x, y)
            e.increase(x, 2 * self.size)
            e.increase(y, 2 * self.size)

        e.repeat(rows, each, least=1)

    def _row(self, x: Register, y: Register) -> None:
        """The exponentials of a row that does not fit are computed twice: added, then divided."""
        e = self.e
        values = e.reg(self.values)
        greatest, total = e.register(), e.register()
        zeros, ones, totals = (e.reg(a) for a in (self.zeros, self.ones, self.totals))
        e.emit("VMAX", greatest, e.reg(self.size), x)
        parts = [(at, min(self.part, self.size - at)) for at in range(0, self.size, self.part)]
        for number, (at, count) in enumerate(parts):
            self._exponentials(x, at, count, greatest)
            dot = "VDOT.acc.wide0" if number else "VDOT.wide0"
            e.emit(dot, total, e.reg(count), values, ones)
        e.emit("VAS.wide", totals, e.reg(self.part), zeros, total)
        left = -self.points[1]
        text = "VDV.wide0.wide1" + (f".shift={left}" if left else "")
        for at, count in parts:
            if len(parts) > 1:
                self._exponentials(x, at, count, greatest)
            e.emit(text, e.reg(e.add(y, 2 * at)), e.reg(count), values, totals)

    def _exponentials(self, x: Register, at: int, count: int, greatest: Register) -> None:
        """Emit the exponentials of elements' distances from the greatest."""
        e = self.e
        values, n = e.reg(self.values), e.reg(count)
        e.emit("VSV.wide", values, n, e.reg(self.zeros), e.reg(e.add(x, 2 * at)))
        e.emit("VAS.wide.wide0", values, n, values, greatest)
        decay = f".shift={self.points[0]}" if self.points[0] else ""
        e.emit(f"VEXP.decay.wide.wide0{decay}", values, n, values)

"""Windows sliding over an image in VSM: rows of the result, and runs of pixels alike.

The part of a window that reaches beyond the image is left out. Along a row of the result, the
pixels whose windows lie wholly in the image are one run; each other pixel is a run of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.boxes import Axis, Box
from tilewright.targets.cambricon.lowering.emitter import Emitter, Value
from tilewright.targets.cambricon.lowering.sliding import Sliding

UNROLLED = 8
"""Kernel rows up to which code for whole windows is apart from that for windows cut off."""

VARIANTS = 3
"""Numbers of kernel rows in windows cut off up to which each has code of its own."""


@dataclass(frozen=True)
class Run:
    """Pixels of one row of the result whose windows meet the same positions of the kernel."""

    at: Register
    """Address of the first window's first element that is in the image."""
    pixels: Value
    skipped_rows: Value
    """Rows of the kernel before the image."""
    rows: Value
    """Rows of the kernel that meet it."""
    skipped: Value
    """Positions of a row of the kernel before the image; a register may be overwritten."""
    width: Value
    """Positions that meet it; a register may be overwritten."""
    y: Value | None
    """Row of the window's first position, from the first row in the buffer; None where the
    window lies wholly in the image."""
    x: Value | None


Body = Callable[[Run], None]


@dataclass
class Windows:
    """The windows of one tile."""

    e: Emitter
    rows: Sliding
    columns: Sliding
    box: Box
    base: Value
    height: Value
    """Rows of the result."""
    width: Value
    parts: tuple[Value, Value, Value] = (0, 0, 0)
    """Pixels of a row cut off at the left, whole ones, and those cut off at the right."""
    first: Value = 0
    """Column of the first whole window, from the first column in the buffer."""
    offset: Value = 0
    """Bytes from the first column in the buffer to that column."""
    cut: Value | None = None
    """Rows of the kernel in a tile that has not all of them."""
    each_row: Callable[[Windows, Run, Body], None] | None = None
    """Function that emits the pixels of a row instead, from an empty run at its begin on; nothing
    along it may depend on the tile."""

    def emit(self, body: Body) -> None:
        """Emits ``body`` for every kind of run; it runs in the order of the result."""
        e, axis = self.e, self.rows.along(self.box)
        down = self.rows.stride_in(self.box)
        self.begin()
        if not axis.padded:
            row = e.variable(self.base)
            kernel = self.rows.kernel if self.cut is None else self.cut

            def whole() -> None:
                self._columns(row, 0, kernel, None, body)
                e.increase(row, e.multiply(down, self.rows.stride))

            e.repeat(self.height, whole, least=1)
            return
        y = e.variable(e.subtract(0, axis.before))
        row = e.variable(e.add(self.base, e.multiply(y, down)))
        forward = e.multiply(down, self.rows.stride)
        last = e.subtract(axis.size, self.rows.span)

        def clipped() -> None:
            self._clipped(axis, down, y, row, last, body)
            e.increase(y, self.rows.stride)
            e.increase(row, forward)

        e.repeat(self.height, clipped, least=1)

    def begin(self) -> None:
        """Find the pixels of a row that are cut off."""
        self.parts = self._split()
        self.first, self.offset = self._first_whole()

    def emit_row(self, row: Register, body: Body) -> None:
        """The runs of one row of the result by one row of the kernel, which meets the image's row
        at address ``row``."""
        self._columns(row, 0, 1, None, body)

    def _clipped(
        self, axis: Axis, down: Value, y: Register, begin: Register, last: Value, body: Body
    ) -> None:
        """A row of the result whose windows may reach beyond the image.

        They begin at row ``y`` of the buffer, whose address is ``begin``. Windows that lie wholly
        in the image begin at row 0 to ``last``.
        """
        e, d, kernel = self.e, self.rows.dilation, self.rows.kernel

        def clip() -> tuple[Value, Value, Register]:
            before = e.maximum(e.subtract(0, y), 0)
            skipped = e.divide(e.add(before, d - 1), d)
            reach = e.add(e.subtract(axis.size, y), d - 1)
            count = e.subtract(e.minimum(e.divide(reach, d), kernel), skipped)
            further = e.multiply(e.multiply(skipped, d), down)
            return skipped, count, e.variable(e.add(begin, further))

        def partly() -> None:
            skipped, count, row = clip()
            known = kernel <= UNROLLED and 0 < len(self.rows.cut) <= VARIANTS
            self._variants(row, skipped, count, y, body, self.rows.cut if known else ())

        if kernel > UNROLLED:
            partly()
            return
        cut, done = e.label("partly"), e.label("row")
        e.if_less(y, 0, cut)
        e.if_less(last, y, cut)
        self._columns(begin, 0, kernel, y, body)
        e.place(done)
        with e.outlined():
            e.place(cut)
            partly()
            e.jump(done)

    def _variants(
        self,
        row: Register,
        skipped: Value,
        count: Value,
        y: Register,
        body: Body,
        known: tuple[int, ...],
    ) -> None:
        """A row whose windows are cut off: code for each number of rows that they may have."""
        e, done = self.e, self.e.label("cut")
        if not known or isinstance(count, int):
            self._columns(row, skipped, count, y, body)
            return
        for number in known:
            other = e.label("more")
            if number != known[-1]:
                e.if_less(number, count, other)
            self._columns(row, skipped, number, y, body)
            if number != known[-1]:
                e.jump(done)
                e.place(other)
        e.place(done)

    def _columns(
        self, row: Register, skipped: Value, rows: Value, y: Value | None, body: Body
    ) -> None:
        """One row of the result: pixels cut off at the left, whole ones, those cut at the right.

        Where tiles are not cut along the row, all of this is known now.
        """
        e, slide = self.e, self.columns
        axis = slide.along(self.box)
        if self.each_row is not None:
            self.each_row(self, Run(row, 0, skipped, rows, 0, 0, y, 0), body)
            return
        if not axis.padded:
            body(Run(e.variable(row), self.width, skipped, rows, 0, slide.kernel, y, None))
            return
        # No pixels yet, at the begin of the row.
        run = Run(row, 0, skipped, rows, 0, 0, y, 0)
        left, whole, right = self.parts
        self._cut_off(run, left, lambda: e.subtract(0, axis.before), body)
        self._whole(run, body)
        self._cut_off(run, right, lambda: e.add(self.first, e.multiply(whole, slide.stride)), body)

    def _whole(self, run: Run, body: Body) -> None:
        """The pixels of a row whose windows have all columns."""
        e, slide, count = self.e, self.columns, self.parts[1]
        if count == 0:
            return
        end = e.label("parted")
        if isinstance(count, Register):
            # There mostly are some.
            e.if_positive(e.subtract(1, count), end)
        at = e.variable(e.add(run.at, self.offset))
        body(replace(run, at=at, pixels=count, width=slide.kernel, x=self.first))
        e.place(end)

    def _cut_off(self, run: Run, count: Value, begin: Callable[[], Value], body: Body) -> None:
        """Pixels of a row that reach beyond the image, from column ``begin`` of the buffer on."""
        e, slide = self.e, self.columns
        if isinstance(count, Register):

            def pixels() -> None:
                x = e.variable(begin())

                def pixel() -> None:
                    self._cut(run, x, body)
                    e.increase(x, slide.stride)

                e.repeat(count, pixel, least=1)

            e.aside(count, pixels)
            return
        first = begin()
        for number in range(count):
            self._cut(run, e.add(first, number * slide.stride), body)

    def _first(self, left: Value) -> Value:
        """Column of a row's first whole window, from the first column in the buffer."""
        e, slide = self.e, self.columns
        before = slide.along(self.box).before
        return (
            0
            if left == before and slide.stride == 1
            else e.subtract(e.multiply(left, slide.stride), before)
        )

    def _first_whole(self) -> tuple[Value, Value]:
        """Return the start of the first whole pixel's window: its column, and in bytes."""
        e, slide = self.e, self.columns
        axis = slide.along(self.box)
        if not axis.padded:
            return 0, 0
        first = self._first(self.parts[0])
        return first, e.multiply(first, slide.stride_in(self.box))

    def _cut(self, run: Run, x: Value, body: Body) -> None:
        """One pixel whose window may reach beyond the image on both sides."""
        e, slide = self.e, self.columns
        d, axis = slide.dilation, slide.along(self.box)

        def place() -> tuple[Value, Value, Register]:
            before = e.maximum(e.subtract(0, x), 0)
            out = e.divide(e.add(before, d - 1), d)
            reach = e.add(e.subtract(axis.size, x), d - 1)
            met = e.subtract(e.minimum(e.divide(reach, d), slide.kernel), out)
            first = e.add(x, e.multiply(out, d))
            at = e.variable(e.add(run.at, e.multiply(first, slide.stride_in(self.box))))
            # The code of a run may overwrite these registers.
            return self._own(out), self._own(met), at

        out, met, at = place()
        body(replace(run, at=at, pixels=1, skipped=out, width=met, x=x))

    def _own(self, value: Value) -> Value:
        return self.e.variable(value) if isinstance(value, Register) else value

    def _split(self) -> tuple[Value, Value, Value]:
        """Pixels of a row cut off at the left, whole ones, and those cut off at the right."""
        e, slide = self.e, self.columns
        axis = slide.along(self.box)
        if not axis.padded:
            return 0, self.width, 0
        s = slide.stride
        left = e.minimum(e.divide(e.add(axis.before, s - 1), s), self.width)
        first = self._first(left)
        # The last window that lies in the image begins at size - span.
        room = e.add(e.subtract(e.subtract(axis.size, first), slide.span), s)
        rest = e.subtract(self.width, left)
        whole = e.minimum(e.divide(e.maximum(room, 0), s), rest)
        return left, whole, e.subtract(rest, whole)

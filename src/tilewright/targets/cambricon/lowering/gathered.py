"""Gathered pixels: the channels of one group side by side, where others lie between.

The channels of a pixel's groups lie one after the other, so the pixels below a row of one group's
kernel are no vector, and products of one position each leave lanes empty: 48 channels take two
blocks of 32, five positions of them eight instead of ten. So the vector unit, which is idle, copies
the group's channels of one column of the image after the other into a ring, one for each row of
the kernel, while products go on. A ring has place for a window and the column that comes; all of
it is there twice, one after the other, so that every window is one piece::

    columns      5 6 7 3 4 | 5 6 7 3 4      kernels of 3, and 7 was the last to come ...
    window 4..6          4   5 6
    window 5..7  5 6 7
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.context import Context
from tilewright.targets.cambricon.lowering.emitter import Emitter, Value
from tilewright.targets.cambricon.lowering.operands import Operand
from tilewright.targets.cambricon.lowering.sliding import Sliding
from tilewright.targets.cambricon.lowering.windows import UNROLLED, VARIANTS, Run, Windows
from tilewright.targets.cambricon.machine import lanes_of


def ring_bytes(c: Context, x: Operand, rows: Sliding, columns: Sliding) -> int:
    """Bytes of the rings of a kernel; 0 where gathering does not pay or is not written."""
    known = not {"ci", "kh", "kw", "ow"} & c.nest.looped and columns.out == "ow"
    if (
        c.nest.inside(x) != frozenset({"g"})
        or not known
        or rows.kernel > UNROLLED
        or len(rows.cut) > VARIANTS
    ):
        return 0
    if (columns.stride, columns.dilation, rows.dilation) != (1, 1, 1) or columns.axis is None:
        return 0
    ci, lanes = c.nest.extent("ci"), lanes_of(c.machine)
    if -(-columns.kernel * ci // lanes) >= columns.kernel * -(-ci // lanes):
        return 0
    return rows.kernel * 2 * (columns.kernel + 1) * 2 * ci


@dataclass
class Gathered:
    """The rings of one tile; ``row`` emits a row of the result."""

    e: Emitter
    address: int
    channels: int
    """Channels of one group."""
    columns: Sliding
    image_row: Value
    image_pixel: Value
    """Bytes from one row of the image to the next, and from one pixel."""
    next_source: Register | None = None
    """Address in the image of the next column to gather; None after the last."""
    put: Register | None = None
    """Address in the first ring to which that column is gathered."""
    rows: int = 0
    """Rows of the kernel that lie in the image."""
    moves: bool = False
    """True if the next window begins one column further."""

    @property
    def column(self) -> int:
        """Bytes of a column in a ring."""
        return 2 * self.channels

    @property
    def ring(self) -> int:
        """Bytes of a ring, there once."""
        return (self.columns.kernel + 1) * self.column

    @property
    def pitch(self) -> int:
        """Bytes from one row's ring to the next one's."""
        return 2 * self.ring

    def row(self, windows: Windows, row: Run, body: Callable[[Run], None]) -> None:
        """The pixels of a row of the result: those cut off at the left, whole, cut at the right."""
        e, kernel, axis = self.e, self.columns.kernel, self.columns.along(windows.box)
        known = axis.before, axis.size, *windows.parts, row.rows
        before, size, cut_left, whole, cut_right, self.rows = (
            number for number in known if isinstance(number, int)
        )
        at = e.variable(self.address)
        first = min(kernel - before, size)
        self._first_columns(row.at, first)
        self.put = e.variable(self.address + first * self.column)
        next_source = e.variable(e.add(row.at, e.multiply(self.image_pixel, first)))
        left = size - first
        x = -before

        def pixels(count: int, gather: bool, skipped: int, width: int) -> None:
            self.next_source, self.moves = next_source if gather else None, skipped == 0
            body(Run(at, count, row.skipped_rows, row.rows, skipped, width, row.y, x))

        for number in range(cut_left):
            skipped = before - number
            pixels(1, number < left, skipped, min(kernel - skipped, size))
        x += cut_left
        more = min(max(left - cut_left, 0), whole)
        for count, gather in ((more, True), (whole - more, False)):
            if count:
                pixels(count, gather, 0, kernel)
        x += whole
        for _ in range(cut_right):
            pixels(1, False, 0, size - x)
            x += 1
        self.next_source = None

    def _first_columns(self, at: Value, count: int) -> None:
        """The columns of a row's first window; no later window finds them in the second half."""
        e = self.e
        n, source, to = e.reg(self.channels), e.variable(at), e.variable(self.address)
        back = e.subtract(self.image_row, e.multiply(self.image_pixel, count))
        for _ in range(self.rows):
            for _ in range(count):
                e.emit("VMOVE", to, n, source)
                e.increase(source, self.image_pixel)
                e.increase(to, self.column)
            e.increase(source, back)
            e.increase(to, self.pitch - count * self.column)

    def steps(self) -> list[Callable[[], None]]:
        """Copies of the column that comes, to stand between a pixel's products."""
        e, next_source, put = self.e, self.next_source, self.put
        if next_source is None or put is None:
            return []
        n = e.reg(self.channels)
        source, first, second = (e.register() for _ in range(3))

        def begin() -> None:
            e.set(source, next_source)
            e.set(first, put)
            e.emit("SADD", second, put, self.ring)
            e.emit("VMOVE", first, n, source)

        def further() -> None:
            e.increase(source, self.image_row)
            for place in (first, second):
                e.increase(place, self.pitch)
            e.emit("VMOVE", first, n, source)

        def again() -> None:
            e.emit("VMOVE", second, n, source)

        return [begin, again, *([further, again] * (self.rows - 1))]

    def forward(self, at: Register) -> None:
        """After a pixel: to the next window, and the next column."""
        if self.moves:
            self._round(at)
        if self.next_source is not None and self.put is not None:
            self.e.increase(self.next_source, self.image_pixel)
            self._round(self.put)

    def _round(self, place: Register) -> None:
        """The next column's place in a ring."""
        e = self.e
        over = e.register()
        e.increase(place, self.column)
        e.emit("SGT", over, place, self.address + self.ring - self.column)
        e.emit("SMUL", over, over, self.ring)
        e.emit("SSUB", place, place, over)

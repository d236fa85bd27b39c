"""Maximum pooling of images in the matrix scratchpad: its unit compares what a window holds.

The matrix unit takes the square of the lanes in elements a cycle where the vector unit takes the
lanes, and its scratchpad holds enough rows for transfers to be few. It has no maximum, but results
of 16 bits saturate: with K = -2**15 in every element,

    s = a - r + K      saturates at K where a < r
    r = s - K + r      is max(a, r)

exactly, as sums have 32 bits before they are written. The rows of many windows are compared at
once; then what is left is compared with itself, moved by a pixel, once for each further column::

    a b c d e      ab bc cd de e      abc bcd cde de e      windows of 3: abc, cde

Windows that are cut off have fewer columns, and are compared by themselves. Each result is copied
to VSM by a product with a vector of a single one; at a stride of 1 they lie side by side.
"""

from __future__ import annotations

from tilewright.errors import refuse
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.pooling import Pool
from tilewright.targets.cambricon.lowering.temporaries import clear, fill
from tilewright.targets.cambricon.lowering.windows import Run
from tilewright.targets.cambricon.machine import lanes_of

LEAST = -(1 << 15)

UNROLLED = 4
"""Comparisons, and copies of results, up to which instructions are written out."""


class MatrixPool(Pool):
    """The code of one maximum over windows of an image in the matrix scratchpad."""

    def _reserve(self) -> None:
        """Temporaries of the matrix scratchpad for the columns of as many pixels as fit them."""
        c, slide, lanes = self.c, self.columns, lanes_of(self.c.machine)
        if self.average:
            raise refuse("lower-operand", "means are not made in the matrix scratchpad", c.where)
        channels, width = c.nest.tile_size("c"), c.nest.tile_size("ow")
        self.ones = c.temporaries.take(2 * lanes)
        # Whole rows of lanes: the least numbers are made as an outer product.
        vectors = c.matrix_temporaries.left // 6 // lanes
        span = slide.span
        most = (vectors * lanes // channels - span) // slide.stride + 1
        if self.relu:
            most = min(most, (c.temporaries.left - 2 * vectors) // (2 * channels))
        if most < 1:
            raise refuse("lower-temporaries", "the columns of a window do not fit", c.where)
        self.batch = -(-width // -(-width // min(most, width)))
        self.vectors = -(-((self.batch - 1) * slide.stride + span) * channels // lanes)
        self.size = self.batch * channels
        self.zeros = c.temporaries.take(2 * self.size) if self.relu else 0
        self.low = c.temporaries.take(2 * self.vectors)
        take, size = c.matrix_temporaries.take, 2 * self.vectors * lanes
        self.least, self.greatest, self.over = take(size), take(size), take(size)

    def prologue(self) -> None:
        """Emit the code that runs before all tiles."""
        e, lanes = self.e, lanes_of(self.c.machine)
        if self.relu:
            clear(e, self.zeros, self.size)
        fill(e, self.ones, lanes, 1)
        fill(e, self.low, self.vectors, LEAST)
        low, n = e.reg(self.low), e.reg(self.vectors)
        e.emit("OP", e.reg(self.least), low, n, e.reg(self.ones), e.reg(lanes))

    def _batch(self, run: Run, at: Register, pixels: Value, count: Value | None) -> None:
        """Emit a batch of pixels whose windows have the same number of columns."""
        e, slide = self.e, self.columns
        reach = e.multiply(e.subtract(run.width, 1), slide.dilation)
        columns = e.add(e.add(e.multiply(e.subtract(pixels, 1), slide.stride), reach), 1)
        self._down(run, at, e.reg(e.multiply(columns, self.channels)))
        less = e.multiply(e.subtract(columns, slide.dilation), self.channels)
        size, item = e.reg(less), 2 * self.c.nest.tile_size("c")
        # Another column of all windows, as far from the one before as the dilation says.
        place = self.greatest + slide.dilation * item
        e.unrolled(e.subtract(run.width, 1), UNROLLED, lambda: self._compare(e.reg(place), size))
        self._copy(pixels)
        e.increase(at, e.multiply(e.multiply(pixels, self.pixel), slide.stride))
        self._finish(e.multiply(pixels, self.channels))

    def _compare(self, others: Register, size: Register) -> None:
        """The greater ones of elements, and of what is the greatest so far."""
        e = self.e
        greatest, over, least = (
            e.reg(self.greatest),
            e.reg(self.over),
            e.reg(self.least),
        )
        e.emit("MMOVE", over, size, least)
        e.emit("MSM.acc", over, size, others, greatest)
        e.emit("MSM.acc", greatest, size, over, least)

    def _down(self, run: Run, at: Register, elements: Value) -> None:
        """The rows of the windows, column by column."""
        e, step = self.e, self.e.multiply(self.row, self.rows.dilation)
        row, size = e.variable(at), e.reg(elements)
        e.emit("MMOVE", e.reg(self.greatest), size, row)

        def further() -> None:
            e.increase(row, step)
            self._compare(row, size)

        e.unrolled(e.subtract(run.rows, 1), UNROLLED, further)

    def _copy(self, count: Value) -> None:
        """Copy the results of ``count`` pixels to VSM."""
        e, item, stride = self.e, 2 * self.c.nest.tile_size("c"), self.columns.stride
        ones, unit = e.reg(self.ones), e.reg(1)
        to = e.variable(self.result)
        at = e.variable(self.greatest)
        if stride == 1:
            e.emit("VMM", to, e.reg(e.multiply(count, item // 2)), at, ones, unit)
            return
        size = e.reg(item // 2)

        def each() -> None:
            e.emit("VMM", to, size, at, ones, unit)
            e.increase(at, item * stride)
            e.increase(to, item)

        if not isinstance(count, int):
            e.repeat(count, each, least=1)
            return
        e.repeat(count // UNROLLED, lambda: e.unrolled(UNROLLED, UNROLLED, each))
        e.unrolled(count % UNROLLED, UNROLLED, each)

    def _finish(self, total: Value) -> None:
        """Emit what follows a batch's results."""
        e = self.e
        self.c.transfers.issue_slot()
        if self.relu:
            e.emit("VGTM", self.result, e.reg(total), self.result, e.reg(self.zeros))
        e.increase(self.result, e.multiply(total, 2))

"""Maximum pooling of images in the matrix scratchpad: its unit compares the rows of the windows.

The matrix unit takes the square of the lanes in elements a cycle where the vector unit takes the
lanes, and its scratchpad holds so many rows that transfers are few. It has no maximum, but results
of 16 bits saturate: with K = -2**15 in every element,

    s = a - r + K      saturates at K where a < r
    r = s - K + r      is max(a, r)

exactly, as sums have 32 bits before they are written. What is left of the windows' rows is copied
to VSM by a product with a vector of a single one, for as many outputs as there are elements.
"""

from __future__ import annotations

from tilewright.errors import refuse
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.pooling import Pool
from tilewright.targets.cambricon.lowering.temporaries import fill
from tilewright.targets.cambricon.lowering.windows import Run
from tilewright.targets.cambricon.machine import lanes_of

LEAST = -(1 << 15)

UNROLLED = 3
"""Further rows up to which their instructions are written out."""

PARTS, PART = 2, 8
"""Parts in which elements are copied, where they take more cycles than that."""


class MatrixPool(Pool):
    """The code of one maximum over windows of an image in the matrix scratchpad."""

    def _reserve_first(self) -> None:
        if self.average:
            raise refuse(
                "lower-operand", "means are not made in the matrix scratchpad", self.c.where
            )
        self.ones = self.c.temporaries.take(2 * lanes_of(self.c.machine))

    def _reserve(self) -> None:
        super()._reserve()
        if self.direct:
            raise refuse("lower-temporaries", "the columns of a window do not fit", self.c.where)
        c, one = self.c, self.columns
        columns = (self.batch - 1) * one.stride + (one.kernel - 1) * one.dilation + 1
        # Whole rows of lanes: the least numbers are made as an outer product.
        lanes = lanes_of(c.machine)
        self.vectors = -(-columns * c.tile_size("c") // lanes)
        size = 2 * self.vectors * lanes
        t = c.matrix_temporaries
        self.least, self.greatest, self.over = t.take(size), t.take(size), t.take(size)

    def prologue(self) -> None:
        """What stands before all tiles."""
        super().prologue()
        e = self.e
        fill(e, self.ones, lanes_of(self.c.machine), 1)
        fill(e, self.down, self.vectors, LEAST)
        with e.scope():
            n, lanes = e.loaded(self.vectors), e.loaded(lanes_of(self.c.machine))
            e.emit("OP", e.held(self.least), e.loaded(self.down), n, e.held(self.ones), lanes)

    def _down(self, run: Run, at: Register, elements: Value) -> None:
        """The rows of the windows, column by column: compared, then copied to temporaries."""
        e = self.e
        step = e.multiply(self.row, self.rows.dilation)
        with e.scope():
            row, size = e.variable(at), e.held(elements)
            greatest, over, least = e.held(self.greatest), e.held(self.over), e.held(self.least)

            def further() -> None:
                e.increase(row, step)
                e.emit("MMOVE", over, size, least)
                e.emit("MSM.acc", over, size, row, greatest)
                e.emit("MSM.acc", greatest, size, over, least)

            if run.rows == 1:
                self._copy(row, elements)
                return
            e.emit("MMOVE", greatest, size, row)
            more = e.subtract(run.rows, 1)
            for _ in range(more) if isinstance(more, int) and more <= UNROLLED else ():
                further()
            if not isinstance(more, int) or more > UNROLLED:
                e.repeat(more, further)
            self._copy(self.greatest, elements)

    def _copy(self, source: Value, n: Value) -> None:
        """Copy elements to VSM; windows of the first part are compared while the second follows."""
        e = self.e
        parts = [(0, n)]
        if isinstance(n, int) and n > PART * lanes_of(self.c.machine):
            parts = [(n * k // PARTS, n * (k + 1) // PARTS - n * k // PARTS) for k in range(PARTS)]
        ones, one = e.held(self.ones), e.held(1)
        for first, size in parts:
            with e.scope():
                to, place = e.held(self.down + 2 * first), e.held(e.add(source, 2 * first))
                e.emit("VMM", to, e.held(size), place, ones, one)

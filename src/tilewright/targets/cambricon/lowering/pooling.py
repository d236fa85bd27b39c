"""Pooling: first down the rows of a window, for many columns at once, then along its row.

In a channels-last image a row of pixels is one vector, so the elements of a few neighbouring
windows are compared (or added) row by row in as many instructions as the kernel has rows; what is
left for each pixel is one instruction for each further position of its row.
"""

from __future__ import annotations

from tilewright.errors import refuse
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.boxes import Box
from tilewright.targets.cambricon.lowering.context import Context
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.epilogue import epilogue_of
from tilewright.targets.cambricon.lowering.temporaries import clear
from tilewright.targets.cambricon.lowering.walk import Tile
from tilewright.targets.cambricon.lowering.windows import Run, Windows, sliding, windows_box


class Pool:
    """The code of one pooling operation."""

    def __init__(self, context: Context) -> None:
        c = self.c = context
        self.e = c.e
        self.x, access = c.source(c.anchor, 0)
        self.average = c.anchor.operation.data == "average_pool"
        self.epilogue = epilogue_of(c.compute.stages, c.where)
        self.rows = sliding(c, access, self.x, "oh", "kh")
        self.columns = sliding(c, access, self.x, "ow", "kw")
        if self.average and (self.rows.dilation, self.columns.dilation) != (1, 1):
            raise refuse("lower-window", "the mean of a window with dilation", c.where)
        if len(c.compute.stages) > 1:
            raise refuse("lower-epilogue", "pooling takes nothing behind it", c.where)
        if self.x.order[-1] != 1:
            raise refuse("lower-layout", "channels do not lie side by side", c.where)
        self._reserve()

    def _reserve(self) -> None:
        """Temporaries for the columns of as many pixels as fit them."""
        c, t = self.c, self.c.temporaries
        channels, one = c.tile_size("c"), self.columns
        item = 4 if self.average else 2
        span, width = (one.kernel - 1) * one.dilation + 1, c.tile_size("ow")
        # Per pixel of a batch: its columns; for a mean the sum, the divisor and zeros.
        extra = 4 + 2 + 2 if self.average else 0
        room = t.left // channels - (span - one.stride) * item
        most = max(room // (one.stride * item + extra), 1)
        self.batch = -(-width // -(-width // min(most, width)))
        columns = (self.batch - 1) * one.stride + span
        size = self.size = self.batch * channels
        # Without room for the columns of one window, its positions are taken one by one.
        self.direct = size * (8 if self.average else 0) + columns * channels * item > t.left
        self.down = 0 if self.direct else t.take(columns * channels * item)
        self.sums = t.take(4 * size) if self.average else 0
        self.zeros = t.take(2 * size) if self.average else 0
        self.counts = t.take(2 * size) if self.average else 0

    def prologue(self) -> None:
        """What stands before all tiles."""
        if self.average:
            clear(self.e, self.zeros, self.size)

    def emit(self, tile: Tile) -> None:
        """One tile."""
        e, c = self.e, self.c
        with e.scope():
            box = e.settled(lambda: windows_box(c.box(self.x, tile), self.rows, self.columns))
            self.channels = tile.spans.of("c")
            self.pixel, self.row = self.columns.stride_in(box), self.rows.stride_in(box)
            self.result = e.variable(tile.bases[c.output.buffer])
            self.tile_box = box
            windows = Windows(
                e,
                self.rows,
                self.columns,
                box,
                tile.bases[self.x.buffer],
                tile.spans.of("oh"),
                tile.spans.of("ow"),
            )
            windows.emit(self._run)

    def _run(self, run: Run) -> None:
        e = self.e
        with e.scope():
            count: Value | None = self._count(run, self.tile_box) if self.average else None
            at = run.at
            if isinstance(run.pixels, int) and run.pixels % self.batch == 0:
                e.repeat(run.pixels // self.batch, lambda: self._batch(run, at, self.batch, count))
                return
            left = e.variable(run.pixels)
            again = e.label("batch")
            e.place(again)
            with e.scope():
                pixels = e.minimum(left, self.batch)
                self._batch(run, at, pixels, count)
                e.emit("SSUB", left, left, pixels)
            e.emit("CB", left, again)

    def _count(self, run: Run, box: Box) -> Value:
        """How many elements the windows of a run have."""
        e = self.e
        counted = self.c.anchor.parameters.get("counted", (0, 0, 0, 0))
        found: Value = 1
        for number, (one, first) in enumerate(((self.rows, run.y), (self.columns, run.x))):
            if first is None or one.axis is None:
                found = e.multiply(found, one.kernel)
                continue
            extent = self.x.buffer.tensor_shape[one.axis]
            place = e.add(first, box.axes[one.axis].low)
            end = e.minimum(e.subtract(extent + counted[number + 2], place), one.kernel)
            begin = e.maximum(e.subtract(-counted[number], place), 0)
            found = e.multiply(found, e.subtract(end, begin))
        return found

    def _batch(self, run: Run, at: Register, pixels: Value, count: Value | None) -> None:
        e, one = self.e, self.columns
        with e.scope():
            further = e.multiply(e.subtract(pixels, 1), one.stride)
            reach = e.multiply(e.subtract(run.width, 1), one.dilation)
            columns = e.add(e.add(further, reach), 1)
            n = e.held(e.multiply(columns, self.channels))
            total = e.multiply(pixels, self.channels)
            if self.average:
                assert count is not None
                counts, zeros = e.held(self.counts), e.held(self.zeros)
                e.emit("VAS", counts, e.held(total), zeros, e.held(count))
            if self.direct:
                self._directly(run, at, pixels)
            else:
                self._down(run, at, n)
                self._along(run, pixels)
            self.c.hook()
            if self.average:
                out, sums = self.result, e.held(self.sums)
                e.emit("VDV.wide0", out, e.held(total), sums, e.held(self.counts))
            e.increase(at, e.multiply(e.multiply(pixels, self.pixel), one.stride))
            e.increase(self.result, e.multiply(total, 2))

    def _directly(self, run: Run, at: Register, pixels: Value) -> None:
        """The positions of each window one by one."""
        e = self.e
        n = e.held(self.channels)
        with e.scope():
            window = e.variable(at)
            to = e.variable(self.sums if self.average else self.result)
            across = e.multiply(self.pixel, self.columns.dilation)
            down = e.multiply(self.row, self.rows.dilation)
            back = e.subtract(down, e.multiply(across, run.width))

            def each() -> None:
                with e.scope():
                    place = e.variable(window)
                    e.emit("VMOVE.wide" if self.average else "VMOVE", to, n, place)

                    def position() -> None:
                        e.emit("VAV.wide.wide0" if self.average else "VGTM", to, n, to, place)
                        e.increase(place, across)

                    if self.average:
                        # Sums begin with nothing; a maximum may take the first element twice.
                        e.emit("VSV.wide.wide0.wide1", to, n, to, to)

                    def row() -> None:
                        e.repeat(run.width, position, least=1)
                        e.increase(place, back)

                    e.repeat(run.rows, row, least=1)
                e.increase(window, e.multiply(self.pixel, self.columns.stride))
                e.increase(to, e.multiply(self.channels, 4 if self.average else 2))

            e.repeat(pixels, each, least=1)

    def _down(self, run: Run, at: Register, n: Register) -> None:
        """The rows of the windows, column by column, into temporaries."""
        e = self.e
        text = "VAV.wide.wide0" if self.average else "VGTM"
        begin = "VMOVE.wide" if self.average else "VMOVE"
        step = e.multiply(self.row, self.rows.dilation)
        with e.scope():
            to, row = e.held(self.down), e.variable(at)

            def further() -> None:
                e.increase(row, step)
                e.emit(text, to, n, to, row)

            rows = run.rows
            if isinstance(rows, int) and rows > 1:
                first = e.register()
                e.emit("SADD", first, row, step)
                e.emit("VAV.wide" if self.average else text, to, n, row, first)
                e.set(row, first)
                e.repeat(rows - 2, further)
                return
            e.emit(begin, to, n, row)
            e.repeat(e.subtract(rows, 1), further)

    def _along(self, run: Run, pixels: Value) -> None:
        """The positions of each window's row, pixel by pixel."""
        e, one = self.e, self.columns
        item = 4 if self.average else 2
        text = "VAV.wide.wide0.wide1" if self.average else "VGTM"
        begin = "VMOVE.wide.wide0" if self.average else "VMOVE"
        n = e.held(self.channels)
        apart = e.multiply(self.channels, one.dilation * item)
        with e.scope():
            column = e.variable(self.down)
            to = e.variable(self.sums if self.average else self.result)

            def each() -> None:
                with e.scope():
                    place = e.variable(column)

                    def further() -> None:
                        e.increase(place, apart)
                        e.emit(text, to, n, to, place)

                    if isinstance(run.width, int) and run.width > 1:
                        e.emit("SADD", place, place, apart)
                        e.emit(text, to, n, column, place)
                        for _ in range(run.width - 2) if run.width <= 4 else ():
                            further()
                        if run.width > 4:
                            e.repeat(run.width - 2, further)
                    else:
                        e.emit(begin, to, n, place)
                        e.repeat(e.subtract(run.width, 1), further)
                e.increase(column, e.multiply(self.channels, one.stride * item))
                e.increase(to, e.multiply(self.channels, item))

            e.repeat(pixels, each, least=1)

"""Pooling: first down the rows of a window, for many columns at once, then along its row.

In a channels-last image a row of pixels is one vector, so the elements of a few neighbouring
windows are compared (or added) row by row in as many instructions as the kernel has rows; what is
left for each pixel is one instruction for each further position of its row. Where windows lie in
the image, the columns of a few pixels have fixed places, whose addresses stay in registers.
"""

from __future__ import annotations

from tilewright.errors import refuse
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.boxes import Box
from tilewright.targets.cambricon.lowering.context import Context
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.epilogue import epilogue_of
from tilewright.targets.cambricon.lowering.temporaries import clear
from tilewright.targets.cambricon.lowering.tiles import Tile
from tilewright.targets.cambricon.lowering.windows import Run, Windows, sliding, windows_box
from tilewright.targets.cambricon.machine import lanes_of

ADDRESSES = 27
"""Registers that the columns and the results of a batch may take."""


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
        if [one.operation.data for one in c.compute.stages[1:]] not in ([], ["relu"]):
            raise refuse("lower-epilogue", "pooling takes ReLU alone behind it", c.where)
        self.relu = self.epilogue.relu
        self.area = self.rows.kernel * self.columns.kernel
        if self.x.order[-1] != 1:
            raise refuse("lower-layout", "channels do not lie side by side", c.where)
        self._reserve()

    def _reserve(self) -> None:
        """Temporaries for the columns of as many pixels as fit them."""
        c, t = self.c, self.c.temporaries
        self._reserve_first()
        channels, one = c.tile_size("c"), self.columns
        item = 4 if self.average else 2
        span, width = (one.kernel - 1) * one.dilation + 1, c.tile_size("ow")
        # Per pixel of a batch: its columns; for a mean the sum, two divisors and zeros.
        extra = 4 + 2 + 2 + 2 if self.average else 2 + 2 * self.relu
        room = t.left // channels - (span - one.stride) * item
        most = max(room // (one.stride * item + extra), 1)
        self.unrolled = max(min((ADDRESSES - span + one.stride) // (one.stride + 1), most), 0)
        if c.thrifty:
            self.unrolled = 0
        if self.unrolled:
            most = self.unrolled
        width = self._whole(width)
        self.batch = -(-width // -(-width // min(most, width)))
        columns = (self.batch - 1) * one.stride + span
        size = self.size = self.batch * channels
        # Without room for the columns of one window, its positions are taken one by one.
        self.direct = size * extra + columns * channels * item > t.left
        self.unrolled = 0 if self.direct else self.unrolled
        self.down = 0 if self.direct else t.take(columns * channels * item)
        self.sums = t.take(4 * size) if self.average else 0
        self.zeros = t.take(2 * size) if self.average or self.relu else 0
        self.counts = t.take(2 * size) if self.average else 0
        self.areas = t.take(2 * size) if self.average else 0
        self.out = 0 if self.average or self.direct else t.take(2 * size)
        self.places: list[Register] = []
        self.targets: list[Register] = []
        self.staged = True

    def _reserve_first(self) -> None:
        """Temporaries that do not depend on how many pixels there are."""

    def _whole(self, width: int) -> int:
        """Pixels of a row whose windows lie in the image, where that is known; 1 at least."""
        c, one = self.c, self.columns
        if "ow" in c.looped or one.axis is None:
            return width
        access = c.source(c.anchor, 0)[1][one.axis]
        last = self.x.buffer.tensor_shape[one.axis] - (one.kernel - 1) * one.dilation
        starts = [access.offset + pixel * one.stride for pixel in range(width)]
        return max(sum(0 <= start < last for start in starts), 1)

    def prologue(self) -> None:
        """What stands before all tiles."""
        e, c = self.e, self.c
        if self.average or self.relu:
            clear(e, self.zeros, self.size)
        if self.average:
            with e.scope():
                areas, size = e.loaded(self.areas), e.loaded(self.size)
                e.emit("VAS", areas, size, e.loaded(self.zeros), e.loaded(self.area))
        if self.unrolled and not {"c"} & c.looped:
            # The columns of a batch and its results lie at the same places throughout.
            one, channels = self.columns, c.tile_size("c")
            item = 4 if self.average else 2
            columns = (self.batch - 1) * one.stride + (one.kernel - 1) * one.dilation + 1
            first = self.sums if self.average else self.out
            self.places = [
                e.variable(self.down + number * channels * item) for number in range(columns)
            ]
            self.targets = [
                e.variable(first + number * channels * item) for number in range(self.batch)
            ]
            # Addresses in the result are computed while the rows are compared; where pixels are
            # short, that would take longer than a copy of all.
            self.staged = self.average or channels < lanes_of(c.machine)

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
            if self._fits(run):
                assert isinstance(run.pixels, int)
                left = run.pixels % self.batch
                e.repeat(run.pixels // self.batch, lambda: self._unrolled(run, at, count))
                if left:
                    # The last batch begins among the pixels of the one before it.
                    again = self.batch - left
                    step = e.multiply(self.pixel, -again * self.columns.stride)
                    e.increase(at, step)
                    e.increase(self.result, -2 * again * self.c.tile_size("c"))
                    self._unrolled(run, at, count)
                return
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
        places = (self.rows, run.y, run.rows), (self.columns, run.x, run.width)
        for number, (one, first, met) in enumerate(places):
            inside = isinstance(met, int) and met == one.kernel
            if first is None or one.axis is None or inside:
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
            counts = self._counts(count, total)
            if self.direct:
                self._directly(run, at, pixels)
            else:
                self._down(run, at, n)
                self._along(run, pixels)
            self.c.hook()
            if counts is not None:
                out, sums = self.result, e.held(self.sums)
                e.emit("VDV.wide0", out, e.held(total), sums, counts)
            if self.relu:
                e.emit("VGTM", self.result, e.held(total), self.result, e.held(self.zeros))
            e.increase(at, e.multiply(e.multiply(pixels, self.pixel), one.stride))
            e.increase(self.result, e.multiply(total, 2))

    def _counts(self, count: Value | None, total: Value) -> Register | None:
        """The vector of the windows' numbers of elements; None for a maximum."""
        e = self.e
        if count is None:
            return None
        if isinstance(count, int) and count == self.area:
            return e.held(self.areas)
        counts = e.held(self.counts)
        e.emit("VAS", counts, e.held(total), e.held(self.zeros), e.held(count))
        return counts

    def _fits(self, run: Run) -> bool:
        """Whether a run is batches of whole windows whose places are in registers."""
        return (
            bool(self.places)
            and isinstance(run.pixels, int)
            and run.pixels >= self.batch
            and isinstance(run.width, int)
            and run.width == self.columns.kernel
        )

    def _unrolled(self, run: Run, at: Register, count: Value | None) -> None:
        """A batch whose columns and results have fixed places: one instruction for each."""
        e, one, channels = self.e, self.columns, self.c.tile_size("c")
        total = self.batch * channels
        with e.scope():
            counts = self._counts(count, total)
            self._down(run, at, e.held(len(self.places) * channels))
            if not self.staged:
                for number, to in enumerate(self.targets):
                    e.emit("SADD", to, self.result, 2 * number * channels)
            e.increase(at, e.multiply(e.multiply(self.batch, self.pixel), one.stride))
            n = e.held(channels)
            text = "VAV.wide.wide0.wide1" if self.average else "VGTM"
            begin = "VMOVE.wide.wide0" if self.average else "VMOVE"
            for pixel, to in enumerate(self.targets):
                first, *others = (
                    self.places[pixel * one.stride + position * one.dilation]
                    for position in range(one.kernel)
                )
                if not others:
                    e.emit(begin, to, n, first)
                for number, place in enumerate(others):
                    e.emit(text, to, n, first if number == 0 else to, place)
            self.c.hook()
            size = e.held(total)
            last = self.result
            if counts is not None:
                e.emit("VDV.wide0", last, size, e.held(self.sums), counts)
            elif self.staged:
                last = e.held(self.out)
                if not self.relu:
                    e.emit("VMOVE", self.result, size, last)
            if self.relu:
                e.emit("VGTM", self.result, size, last, e.held(self.zeros))
            e.increase(self.result, 2 * total)

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

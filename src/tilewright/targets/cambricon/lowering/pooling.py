"""Pooling: first down the rows of a window, for many columns at once, then along its row.

In a channels-last image a row of pixels is one vector, so the elements of a few neighbouring
windows are compared (or added) row by row in as many instructions as the kernel has rows; what is
left for each pixel is one instruction for each further position of its row. Where windows lie in
the image, the columns of a few pixels have fixed places, whose addresses stay in registers.
"""

from __future__ import annotations

from tilewright.errors import refuse
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.context import Code, Context
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.epilogue import epilogue_of
from tilewright.targets.cambricon.lowering.nest import Tile
from tilewright.targets.cambricon.lowering.sliding import Sliding, sliding, windows_box
from tilewright.targets.cambricon.lowering.temporaries import clear
from tilewright.targets.cambricon.lowering.windows import Run, Windows
from tilewright.targets.cambricon.machine import lanes_of

MOST_ELEMENTS = 1 << 17
"""Most elements of a window whose mean is exact; larger ones only if they are a power of two."""


def check_area(area: int, where: str) -> None:
    """Refuse (``lower-window``) the mean of a window by whose size no vector can be divided."""
    if area > MOST_ELEMENTS and area & (area - 1):
        raise refuse(
            "lower-window",
            f"the mean of {area} elements: at most {MOST_ELEMENTS}, or a power of two",
            where,
            "pool in two steps",
        )


class Pool(Code):
    """The code of one pooling operation."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        c = self.c
        self.x, access = c.source(c.anchor, 0)
        self.average = c.anchor.operation.data == "average_pool"
        self.epilogue = epilogue_of(c.compute.stages, c.where)
        self.rows = sliding(c, access, self.x, "oh", "kh")
        self.columns = sliding(c, access, self.x, "ow", "kw")
        if self.average and (self.rows.dilation, self.columns.dilation) != (1, 1):
            raise refuse("lower-window", "the mean of a window with dilation", c.where)
        if [stage.operation.data for stage in c.compute.stages[1:]] not in ([], ["relu"]):
            raise refuse("lower-epilogue", "only ReLU may follow pooling", c.where)
        self.relu = self.epilogue.relu
        self.area = self.rows.kernel * self.columns.kernel
        if self.average:
            check_area(self.area, c.where)
        if self.x.order[-1] != 1:
            raise refuse("lower-layout", "channels do not lie side by side", c.where)
        if c.nest.inside(self.x) or not c.nest.inside(c.output) <= {"n", "oh"}:
            # Of a result that stays while images come, whole rows may be stepped.
            raise refuse("lower-nest", "loops step through a resident tile", c.where)
        self.places: list[Register] = []
        self.targets: list[Register] = []
        """Addresses of a batch's columns and of its results, where registers hold them."""
        self.staged = True
        self._reserve()

    def _reserve(self) -> None:
        """Temporaries for the columns of as many pixels as fit them."""
        c, t = self.c, self.c.temporaries
        channels, slide = c.nest.tile_size("c"), self.columns
        item = 4 if self.average else 2
        span, width = slide.span, c.nest.tile_size("ow")
        # Per pixel of a batch: its columns; for a mean the sum, two divisors and zeros.
        extra = 4 + 2 + 2 + 2 if self.average else 2 + 2 * self.relu
        room = t.left // channels - (span - slide.stride) * item
        most = max(room // (slide.stride * item + extra), 1)
        addresses = c.addresses
        self.unrolled = max(min((addresses - span + slide.stride) // (slide.stride + 1), most), 0)
        if self.unrolled:
            most = self.unrolled
        self.batch = -(-width // -(-width // min(most, width)))
        columns = (self.batch - 1) * slide.stride + span
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

    def prologue(self) -> None:
        """Emit the code that runs before all tiles."""
        e, c = self.e, self.c
        if self.average or self.relu:
            clear(e, self.zeros, self.size)
        if self.average:
            areas, size = e.reg(self.areas), e.reg(self.size)
            e.emit("VAS", areas, size, e.reg(self.zeros), e.reg(self.area))
        if self.unrolled and not {"c"} & c.nest.looped:
            # The columns of a batch and its results lie at the same places throughout.
            slide, channels = self.columns, c.nest.tile_size("c")
            item = 4 if self.average else 2
            columns = (self.batch - 1) * slide.stride + slide.span
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
        """Emit the code of one tile."""
        e, c = self.e, self.c
        box = windows_box(c.nest.box(self.x, tile), self.rows, self.columns)
        self.channels = tile.spans.of("c")
        self.pixel, self.row = self.columns.stride_in(box), self.rows.stride_in(box)
        self.result = e.variable(c.nest.base(c.output, tile))
        self.tile_box = box
        base, height, width = (tile.bases[self.x.buffer], *map(tile.spans.of, ("oh", "ow")))
        windows = Windows(e, self.rows, self.columns, box, base, height, width)
        windows.emit(self._run)

    def _run(self, run: Run) -> None:
        """Pixels whose windows have as many rows and columns."""
        e, at = self.e, run.at
        count = self._counted(run) if self.average else None
        if isinstance(run.pixels, int):
            body = self._unrolled if self._fits(run) else self._batch
            e.repeat(run.pixels // self.batch, lambda: body(run, at, self.batch, count))
            if rest := run.pixels % self.batch:
                body(run, at, rest, count)
            return
        e.in_parts(
            "batch", run.pixels, self.batch, lambda pixels: self._batch(run, at, pixels, count)
        )

    def _batch(self, run: Run, at: Register, pixels: Value, count: Value | None) -> None:
        e, slide = self.e, self.columns
        further = e.multiply(e.subtract(pixels, 1), slide.stride)
        reach = e.multiply(e.subtract(run.width, 1), slide.dilation)
        columns = e.add(e.add(further, reach), 1)
        n = e.multiply(columns, self.channels)
        total = e.multiply(pixels, self.channels)
        counts = self._counts(count, total)
        if self.direct:
            self._directly(run, at, pixels)
        else:
            self._down(run, at, n)
            self._along(run, pixels)
        self.c.transfers.issue_slot()
        if counts is not None:
            out, sums = self.result, e.reg(self.sums)
            e.emit("VDV.wide0", out, e.reg(total), sums, counts)
        if self.relu:
            e.emit("VGTM", self.result, e.reg(total), self.result, e.reg(self.zeros))
        e.increase(at, e.multiply(e.multiply(pixels, self.pixel), slide.stride))
        e.increase(self.result, e.multiply(total, 2))

    def _fits(self, run: Run) -> bool:
        """Return True if windows are whole ones whose places are in registers."""
        return bool(self.places) and run.width == self.columns.kernel

    def _unrolled(self, run: Run, at: Register, pixels: int, count: Value | None) -> None:
        """A batch whose columns and results have fixed places: one instruction for each."""
        e, slide, channels = self.e, self.columns, self.c.nest.tile_size("c")
        columns = (pixels - 1) * slide.stride + slide.span
        self._down(run, at, columns * channels)
        targets = self.targets[:pixels]
        if not self.staged:
            for number, to in enumerate(targets):
                e.emit("SADD", to, self.result, 2 * number * channels)
        e.increase(at, e.multiply(self.pixel, pixels * slide.stride))
        n = e.reg(channels)
        text = "VAV.wide.wide0.wide1" if self.average else "VGTM"
        begin = "VMOVE.wide.wide0" if self.average else "VMOVE"
        for number, to in enumerate(targets):
            window = self.places[number * slide.stride :][: slide.span : slide.dilation]
            if slide.kernel == 1:
                e.emit(begin, to, n, window[0])
            for place, other in enumerate(window[1:]):
                e.emit(text, to, n, to if place else window[0], other)
        self.c.transfers.issue_slot()
        size = e.reg(pixels * channels)
        last = self.result
        if (counts := self._counts(count, pixels * channels)) is not None:
            e.emit("VDV.wide0", self.result, size, e.reg(self.sums), counts)
        elif self.staged:
            last = e.reg(self.out)
            if not self.relu:
                e.emit("VMOVE", self.result, size, last)
        if self.relu:
            e.emit("VGTM", self.result, size, last, e.reg(self.zeros))
        e.increase(self.result, 2 * pixels * channels)

    def _directly(self, run: Run, at: Register, pixels: Value) -> None:
        """The positions of each window one by one."""
        e = self.e
        n = e.reg(self.channels)
        window = e.variable(at)
        to = e.variable(self.sums if self.average else self.result)
        across = e.multiply(self.pixel, self.columns.dilation)
        down = e.multiply(self.row, self.rows.dilation)
        back = e.subtract(down, e.multiply(across, run.width))

        def each() -> None:
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

    def _down(self, run: Run, at: Register, elements: Value) -> None:
        """The rows of the windows, column by column, into temporaries."""
        e, n = self.e, self.e.reg(elements)
        text = "VAV.wide.wide0" if self.average else "VGTM"
        begin = "VMOVE.wide" if self.average else "VMOVE"
        step = e.multiply(self.row, self.rows.dilation)
        to, row = e.reg(self.down), e.variable(at)

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
        e, slide = self.e, self.columns
        item = 4 if self.average else 2
        text = "VAV.wide.wide0.wide1" if self.average else "VGTM"
        begin = "VMOVE.wide.wide0" if self.average else "VMOVE"
        n = e.reg(self.channels)
        apart = e.multiply(self.channels, slide.dilation * item)
        column = e.variable(self.down)
        to = e.variable(self.sums if self.average else self.result)

        def each() -> None:
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
            e.increase(column, e.multiply(self.channels, slide.stride * item))
            e.increase(to, e.multiply(self.channels, item))

        e.repeat(pixels, each, least=1)

    def _counted(self, run: Run) -> Value:
        """The elements that a mean counts in the windows of a run."""
        e = self.e
        rows = self._counted_along(self.rows, 0, run.y, run.rows)
        return e.multiply(rows, self._counted_along(self.columns, 1, run.x, run.width))

    def _counted_along(self, slide: Sliding, number: int, first: Value | None, met: Value) -> Value:
        """The rows (number 0) or columns that a mean counts of windows that begin at ``first`` in
        the buffer, ``met`` of which are in the image."""
        e = self.e
        if first is None or slide.axis is None or (isinstance(met, int) and met == slide.kernel):
            return slide.kernel
        padding = self.c.anchor.parameters.get("counted", (0, 0, 0, 0))
        extent = self.x.buffer.tensor_shape[slide.axis]
        place = e.add(first, slide.along(self.tile_box).low)
        end = e.minimum(e.subtract(extent + padding[number + 2], place), slide.kernel)
        begin = e.maximum(e.subtract(-padding[number], place), 0)
        return e.subtract(end, begin)

    def _counts(self, count: Value | None, total: Value) -> Register | None:
        """The vector of the windows' numbers of elements; None for a maximum."""
        e = self.e
        if count is None:
            return None
        if isinstance(count, int) and count == self.area:
            return e.reg(self.areas)
        counts = e.reg(self.counts)
        e.emit("VAS", counts, e.reg(total), e.reg(self.zeros), e.reg(count))
        return counts

"""Depthwise convolution: a window's positions one by one, many channels and pixels at once.

The vector unit multiplies the channels of a pixel with their weights at one position of the kernel,
and adds that to the sums. Where windows lie side by side (a stride of 1), the pixels below one
position are one vector, too: several are computed at once, with the weights repeated for each.
"""

from __future__ import annotations

from tilewright.errors import refuse
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.context import Code, Context
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.epilogue import epilogue_of
from tilewright.targets.cambricon.lowering.nest import Tile
from tilewright.targets.cambricon.lowering.operands import Operand
from tilewright.targets.cambricon.lowering.sliding import sliding, windows_box
from tilewright.targets.cambricon.lowering.windows import UNROLLED, Run, Windows
from tilewright.targets.cambricon.machine import lanes_of

LONG = 8
"""Blocks of lanes from which on longer vectors gain little."""


class Depthwise(Code):
    """The code of one depthwise convolution and what follows it."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        c = self.c
        self.x, access = c.source(c.anchor, 0)
        self.w, _ = c.source(c.anchor, 1)
        self.bias: Operand | None = None
        if len(c.anchor.inputs) == 3:
            self.bias, _ = c.source(c.anchor, 2)
        self.epilogue = epilogue_of(c.compute.stages, c.where)
        self.rows = sliding(c, access, self.x, "oh", "kh")
        self.columns = sliding(c, access, self.x, "ow", "kw")
        if self.x.order[-1] != 1:
            raise refuse("lower-layout", "channels do not lie side by side", c.where)
        if not c.transfers.by_segment(self.w):
            raise refuse("lower-weights", "weights are computed, or cut by rows", c.where)
        self._reserve()
        positions = self.rows.kernel * self.columns.kernel
        if self.weights:
            c.transfers.on_refill(
                self.w, lambda tile: self._repeat(self.w, tile, self.weights, 2, positions)
            )
        bias = self.bias
        if bias is not None and self.biases:
            c.transfers.on_refill(bias, lambda tile: self._repeat(bias, tile, self.biases, 4, 1))

    def _reserve(self) -> None:
        """Temporaries for as many pixels as fit them, or as make vectors long."""
        c, t = self.c, self.c.temporaries
        channels = self.most = c.nest.tile_size("c")
        positions = self.rows.kernel * self.columns.kernel
        width, lanes = c.nest.tile_size("ow"), lanes_of(c.machine)
        each = 4 + 4 * (self.bias is not None) + self.epilogue.bytes
        repeated = self.columns.stride == 1
        room = t.left // channels // (each + 2 * positions * repeated)
        # Without room to repeat weights, pixels are computed one by one.
        repeated = repeated and room > 1
        if not repeated:
            room = t.left // channels // each
        wanted = -(-LONG * lanes // channels)
        most = max(min(room, width, wanted), 1)
        self.batch = -(-width // -(-width // most))
        size = self.size = self.batch * channels
        self.epilogue = self.epilogue.placed(t, size, c.tables)
        self.sums = t.take(4 * size)
        self.biases = t.take(4 * size) if self.bias is not None and self.batch > 1 else 0
        self.weights = t.take(2 * size * positions) if repeated and self.batch > 1 else 0

    def prologue(self) -> None:
        """Emit the code that runs before all tiles."""
        self.epilogue.prologue(self.e, self.size)

    def emit(self, tile: Tile) -> None:
        """Emit the code of one tile."""
        e, c = self.e, self.c
        box = windows_box(c.nest.box(self.x, tile), self.rows, self.columns)
        self.channels = tile.spans.of("c")
        self.pixel, self.row = self.columns.stride_in(box), self.rows.stride_in(box)
        self.result = e.variable(tile.bases[c.output.buffer])
        self.added: Register | None = None
        if self.epilogue.residual is not None:
            self.added = e.variable(tile.bases[self.epilogue.residual.buffer])
        self.kernel = self.weights or tile.bases[self.w.buffer]
        self.bias_at = None
        if self.bias is not None:
            self.bias_at = self.biases or tile.bases[self.bias.buffer]
        self.step = 2 * self.batch if self.weights else 2
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

    def _repeat(self, operand: Operand, tile: Tile, place: int, element: int, vectors: int) -> None:
        """Vectors of channels, each repeated for every pixel of a batch."""
        e, base, channels = self.e, tile.bases[operand.buffer], tile.spans.of("c")
        text = "VMOVE.wide.wide0" if element == 4 else "VMOVE"
        at, source = e.variable(place), e.variable(base)
        n, step = e.reg(channels), e.multiply(channels, element)

        def vector() -> None:
            def copy() -> None:
                e.emit(text, at, n, source)
                e.increase(at, step)

            e.repeat(self.batch, copy)
            e.increase(source, step)

        e.repeat(vectors, vector)

    def _run(self, run: Run) -> None:
        """Pixels whose windows lie alike."""
        e = self.e
        skipped = e.multiply(run.skipped_rows, self.columns.kernel)
        first = e.multiply(e.add(skipped, run.skipped), e.multiply(self.channels, self.step))
        kernel = e.reg(e.add(first, self.kernel))
        if isinstance(run.pixels, int) and run.pixels <= self.batch:
            self._batch(run, kernel, run.pixels)
            return
        if isinstance(run.pixels, int) and run.pixels % self.batch == 0:
            number = run.pixels // self.batch
            e.repeat(number, lambda: self._batch(run, kernel, self.batch))
            return
        e.in_parts("batch", run.pixels, self.batch, lambda pixels: self._batch(run, kernel, pixels))

    def _batch(self, run: Run, kernel: Register, pixels: Value) -> None:
        """Sums of a few pixels, and what follows them."""
        e, c = self.e, self.c
        total = e.reg(e.multiply(pixels, self.channels))
        sums = e.variable(self.sums)
        if self.weights:
            self._sums(run, run.at, kernel, sums, total)
        else:
            at = e.variable(run.at)

            def pixel() -> None:
                self._sums(run, at, kernel, sums, e.reg(self.channels))
                e.increase(at, e.multiply(self.pixel, self.columns.stride))
                e.increase(sums, e.multiply(self.channels, 4))

            e.repeat(pixels, pixel, least=1)
        c.transfers.issue_slot()
        bias, residual = self.bias_at, self.added
        self.epilogue.emit(e, self.sums, self.result, total, bias=bias, residual=residual)
        e.increase(self.result, e.multiply(total, c.output.element))
        if self.added is not None and self.epilogue.residual is not None:
            size = 4 if self.epilogue.residual.wide else 2
            e.increase(self.added, e.multiply(total, size))
        e.increase(run.at, e.multiply(e.multiply(pixels, self.pixel), self.columns.stride))

    def _sums(self, run: Run, at: Register, kernel: Register, sums: Register, n: Register) -> None:
        """The products of all positions that meet the image, added up."""
        e = self.e
        across = e.multiply(self.pixel, self.columns.dilation)
        down = e.multiply(self.row, self.rows.dilation)
        step = e.multiply(self.channels, self.step)
        x, w = e.variable(at), e.variable(kernel)
        # Past the positions of a row that were met, to the first of the next one.
        back = e.subtract(down, e.multiply(across, run.width))
        on = e.multiply(e.subtract(self.columns.kernel, run.width), step)

        def position(text: str = "VMV.acc.wide") -> None:
            e.emit(text, sums, n, x, w)
            e.increase(x, across)
            e.increase(w, step)

        def row() -> None:
            e.repeat(run.width, position, least=1)
            e.increase(x, back)
            e.increase(w, on)

        known = isinstance(run.rows, int) and isinstance(run.width, int)
        if known and run.rows <= UNROLLED and run.width <= UNROLLED:  # pyright: ignore
            for r in range(run.rows):  # pyright: ignore
                for k in range(run.width):  # pyright: ignore
                    position("VMV.wide" if (r, k) == (0, 0) else "VMV.acc.wide")
                e.increase(x, back)
                e.increase(w, on)
            return
        # Sums begin with nothing: numbers less themselves, whatever they are.
        e.emit("VMV.wide", sums, n, x, w)
        e.emit("VSV.wide.wide0.wide1", sums, n, sums, sums)
        e.repeat(run.rows, row, least=1)

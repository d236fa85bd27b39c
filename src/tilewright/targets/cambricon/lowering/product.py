"""Convolutions and matrix products: a product of one kernel row with the pixels below it.

In a channels-last image the pixels that a row of a kernel covers are one vector, and the weights of
that row, position by position and input channel by input channel, one matrix of rows that belong
to one input each. ``VMM`` multiplies them. A window that reaches into the padding takes fewer rows
of the matrix, which still lie one after the other: padding costs nothing and is never stored.

Sums of a few pixels lie side by side; the vector unit takes them together (epilogue.py) while the
matrix unit works on the next ones. Where a reduction is cut into tiles, sums stay in the result's
buffer with 32 bits until the last tile.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.errors import refuse
from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.bands import banded
from tilewright.targets.cambricon.lowering.boxes import Box
from tilewright.targets.cambricon.lowering.context import Context
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.epilogue import epilogue_of
from tilewright.targets.cambricon.lowering.operands import Operand
from tilewright.targets.cambricon.lowering.tables import table_of
from tilewright.targets.cambricon.lowering.temporaries import clear
from tilewright.targets.cambricon.lowering.walk import Tile
from tilewright.targets.cambricon.lowering.windows import (
    UNROLLED,
    Run,
    Windows,
    sliding,
    windows_box,
)
from tilewright.targets.cambricon.machine import lanes_of

LONG = 90
"""Cycles of a pixel, or of a row of its kernel, from which on other moves go on behind each one,
not behind every few: about as long as a transfer takes."""


class Product:
    """The code of one product; ``emit`` for each place where a tile is computed."""

    def __init__(self, context: Context) -> None:
        c = self.c = context
        self.e = c.e
        self.x, access = c.source(c.anchor, 0)
        self.w, _ = c.source(c.anchor, 1)
        self.bias: Operand | None = None
        if len(c.anchor.inputs) == 3:
            self.bias, over = c.source(c.anchor, 2)
            if any(name not in ("co", "g") for axis in over for name in axis.dims):
                raise refuse("lower-bias", "the bias differs from row to row", c.where)
        self.epilogue = epilogue_of(c.compute.stages, c.where)
        columns = next((d for d in ("m", "n") if d in c.extents and "ow" not in c.extents), "ow")
        self.rows = sliding(c, access, self.x, "oh", "kh")
        self.columns = sliding(c, access, self.x, columns, "kw")
        inner = [a for a, axis in enumerate(access) if "ci" in axis.dims]
        if self.x.order[-1] not in inner and c.extent("ci") > 1:
            raise refuse("lower-layout", "input channels do not lie side by side", c.where)
        self.split = c.output.buffer.accumulates is not None
        self.columns, self.band = banded(c, self.w, self.rows, self.columns)
        self.multiply = "VMM"
        if self.w.buffer.tensor_op not in c.segmented:
            self._plain_weights()
        self.grouped = c.tile_size("g") > 1
        # Whether the pixels below a row of the kernel are one vector.
        self.dense = self.columns.dilation == 1 and not self.grouped
        cycles = self._pixel_cycles()
        self.hooks = self.split or cycles >= LONG
        self.row_hooks = self.dense and cycles >= LONG * self.rows.kernel
        self._reserve()

    def _pixel_cycles(self) -> int:
        """Cycles of the matrix unit for one pixel of a whole tile."""
        c, lanes = self.c, lanes_of(self.c.machine)
        row = self.columns.kernel * c.tile_size("ci")
        blocks = -(-c.tile_size("co") // lanes) * -(-row // lanes)
        return self.rows.kernel * blocks * c.tile_size("g")

    def _plain_weights(self) -> None:
        """Weights as they lie in main memory: matrices of one position each."""
        c, w = self.c, self.w
        windows = [axis.dims for axis in w.buffer.window.data]
        rows = [windows[axis] for axis in w.order if w.buffer.tensor_shape[axis] != 1]
        if c.extent("kh") * c.extent("kw") != 1:
            raise refuse("lower-weights", "two kernels share the weights of a window", c.where)
        if rows and "ci" in rows[-1]:
            self.multiply = "MMV"

    def _reserve(self) -> None:
        """Temporaries for as many pixels as fit them."""
        c, t = self.c, self.c.temporaries
        most = c.tile_size("co") * c.tile_size("g") * self.band
        pixels = c.tile_size(self.columns.out) * c.tile_size("oh")
        each = most * (4 * (self.bias is not None) + 2 * (self.needs_zeros) + 8 * (not self.split))
        room = max(t.left // max(each, 1), 1)
        width = c.tile_size(self.columns.out) // self.band
        if self.split:
            self.batch = min(room, pixels)
        else:
            # As many batches of a row as are needed, all alike.
            self.batch = -(-width // -(-width // min(room, width)))
        size = self.batch * most
        self.zeros = t.take(2 * size) if self.needs_zeros else 0
        self.biases = (
            t.take(4 * size) if self.bias is not None and self.batch * self.band > 1 else 0
        )
        self.sums = 0 if self.split else t.take(4 * size)
        self.other_sums = 0 if self.split else t.take(4 * size)
        self.size = size
        self.table = table_of(self.epilogue.table, c) if self.epilogue.table else 0

    @property
    def needs_zeros(self) -> bool:
        """Whether ReLU, or the start of sums without a bias, needs zeros."""
        return self.epilogue.reads_zeros or (self.split and self.bias is None)

    def prologue(self) -> None:
        """What stands before all tiles."""
        if self.needs_zeros:
            clear(self.e, self.zeros, self.size)

    def emit(self, tile: Tile) -> None:
        """One tile."""
        e, c = self.e, self.c
        with e.scope():
            box = e.settled(lambda: windows_box(c.box(self.x, tile), self.rows, self.columns))
            self.co, self.ci = tile.spans.of("co"), tile.spans.of("ci")
            self.groups = tile.spans.of("g")
            single = e.held(e.multiply(self.co, self.groups))
            self.co = e.multiply(self.co, self.band)
            self.channels = e.multiply(self.co, self.groups)
            self.co_register = e.held(self.co)
            self.pixel = self.columns.stride_in(box)
            self.row = self.rows.stride_in(box)
            self.position = e.settled(lambda: e.multiply(e.multiply(self.ci, self.co), 2))
            self.matrix_row = e.multiply(self.position, self.columns.kernel)
            self.result = e.variable(tile.bases[c.output.buffer])
            self.added: Register | None = None
            if self.epilogue.residual is not None:
                self.added = e.variable(tile.bases[self.epilogue.residual.buffer])
            self.bias_at = self._replicate(tile, single)
            if self.split:
                self._split(tile, box)
                return
            self.base, self.at = e.variable(self.sums), e.variable(self.sums)
            self.pending = e.variable(0)
            self.halves = e.held(self.sums + self.other_sums)
            self._image(tile, box, tile.bases[self.x.buffer])
            self._flush()

    def _replicate(self, tile: Tile, single: Register) -> Value | None:
        """The biases of as many pixels as are finished together."""
        e = self.e
        if self.bias is None:
            return None
        base = tile.bases[self.bias.buffer]
        if self.batch * self.band == 1:
            return base
        with e.scope():
            at = e.variable(self.biases)
            source, step = e.loaded(base), e.multiply(single, 4)

            def body() -> None:
                e.emit("VMOVE.wide.wide0", at, single, source)
                e.increase(at, step)

            e.repeat(self.batch * self.band, body)
        return self.biases

    # Sums in the result's buffer.

    def _split(self, tile: Tile, box: Box) -> None:
        e, c = self.e, self.c
        before, after = c.reduced(tile)
        total = e.multiply(
            e.multiply(tile.spans.of("oh"), tile.spans.of(self.columns.out)), self.channels
        )
        begun, partial = e.label("begun"), e.label("partial")
        base = tile.bases[c.output.buffer]
        e.if_positive(before, begun)
        self._chunks(base, total, 4, self._start)
        e.place(begun)
        self.at = e.variable(base)
        self._image(tile, box, tile.bases[self.x.buffer])
        with e.scope():
            e.if_positive(after, partial)
        self._chunks(base, total, 4, self._finish)
        e.place(partial)

    def _chunks(
        self, base: Value, total: Value, spacing: int, body: Callable[[Register, Value], None]
    ) -> None:
        """Runs a body for parts of the sums: as many elements as temporaries have."""
        e = self.e
        whole = e.multiply(self.channels, self.batch)
        with e.scope():
            if isinstance(total, int) and isinstance(whole, int) and total == whole:
                body(e.held(base), total)
                return
            at, left = e.variable(base), e.variable(total)
            again = e.label("part")
            e.place(again)
            with e.scope():
                part = e.minimum(left, whole)
                body(at, part)
                e.increase(at, e.multiply(part, spacing))
                e.emit("SSUB", left, left, part)
            e.emit("CB", left, again)

    def _start(self, at: Register, count: Value) -> None:
        """Sums begin with the bias, or with nothing."""
        e = self.e
        n = e.held(count)
        if self.bias_at is None:
            e.emit("VMOVE.wide", at, n, e.loaded(self.zeros))
        else:
            e.emit("VMOVE.wide.wide0", at, n, e.held(self.bias_at))

    def _finish(self, at: Register, count: Value) -> None:
        e = self.e
        self._epilogue(at, count, None)
        e.increase(self.result, e.multiply(count, self.c.output.element))
        if self.added is not None:
            e.increase(self.added, e.multiply(count, self._residual_bytes))

    @property
    def _residual_bytes(self) -> int:
        one = self.epilogue.residual
        assert one is not None
        return 4 if one.wide else 2

    def _epilogue(self, at: Value, count: Value, bias: Value | None) -> None:
        self.epilogue.emit(
            self.e,
            at,
            self.result,
            count,
            bias=bias,
            residual=self.added,
            zeros=self.zeros,
            table=self.table,
        )

    # Runs of pixels, batches, pixels, kernel rows.

    def _image(self, tile: Tile, box: Box, base: Value) -> None:
        height = tile.spans.of("oh")
        width = self.e.divide(tile.spans.of(self.columns.out), self.band)
        # Copies for bands begin their scratchpad: nothing else lies there.
        matrix = tile.bases[self.w.buffer] if self.band == 1 else 0
        windows = Windows(self.e, self.rows, self.columns, box, base, height, width)
        if "kh" in self.c.looped:
            windows.cut = tile.spans.of("kh")
        windows.emit(lambda run: self._run(run, matrix))

    def _run(self, run: Run, base: Value) -> None:
        """Pixels whose windows lie alike."""
        e = self.e
        at, width, pixels, kernel = run.at, run.width, run.pixels, run.rows
        with e.scope():
            matrices = [self._first_row(run, base)]
            if isinstance(kernel, int) and kernel <= UNROLLED and self.dense:
                for _ in range(1, kernel):
                    matrices.append(e.held(e.add(matrices[-1], self.matrix_row)))
            if isinstance(width, Register) and self.dense:
                e.emit("SMUL", width, width, self.ci)
            if self.split:
                e.repeat(pixels, self._pixel(at, matrices, width, kernel), least=1)
                return
            if isinstance(pixels, int) and pixels % self.batch == 0:
                e.repeat(
                    pixels // self.batch,
                    lambda: self._batch(at, matrices, width, self.batch, kernel),
                )
                return
            left = e.variable(pixels)
            again = e.label("batch")
            e.place(again)
            with e.scope():
                count = e.minimum(left, self.batch)
                self._batch(at, matrices, width, count, kernel)
                e.emit("SSUB", left, left, count)
            e.emit("CB", left, again)

    def _first_row(self, run: Run, base: Value) -> Register:
        """The matrix that belongs to the first element of a run's windows."""
        e, place = self.e, run.skipped
        if not isinstance(place, Register):
            rows = e.multiply(run.skipped_rows, self.matrix_row)
            return e.held(e.add(e.add(base, rows), e.multiply(place, self.position)))
        e.emit("SMUL", place, place, self.position)
        e.increase(place, base)
        with e.scope():
            e.increase(place, e.multiply(run.skipped_rows, self.matrix_row))
        return place

    def _batch(
        self, at: Register, matrices: list[Register], width: Value, count: Value, kernel: Value
    ) -> None:
        """A few pixels, and what follows the sums of those before them.

        The vector unit's instructions stand between pixels, so that none of them waits in the
        queue, and all behind it, for the one before.
        """
        e = self.e
        with e.scope():
            each = self._pixel(at, matrices, width, kernel)
            steps = self._pending_steps()
            if isinstance(count, int):
                apart = min(count, len(steps))
                for number, step in enumerate(steps):
                    if number < apart:
                        each()
                    step()
                if not self.hooks and apart < count:
                    self.c.hook()
                e.repeat(count - apart, each)
            else:
                each()
                for step in steps:
                    step()
                e.repeat(e.subtract(count, 1), each)
            self._advance()
            with e.scope():
                e.set(self.pending, e.multiply(self.channels, count))
                # These sums are the pending ones now; the next pixels' lie in the other half.
                e.emit("SSUB", self.base, self.halves, self.base)
            e.set(self.at, self.base)
            if not self.hooks:
                self.c.hook()

    def _pending_steps(self) -> list[Callable[[], None]]:
        """What follows the pending sums."""
        e = self.e
        sums = e.register()
        e.emit("SSUB", sums, self.halves, self.base)
        parts: dict[str, Value | None] = {
            "bias": self.bias_at,
            "residual": self.added,
            "zeros": self.zeros if self.needs_zeros else None,
        }
        others = {name: None if at is None else e.held(at) for name, at in parts.items()}
        return self.epilogue.steps(e, sums, self.result, self.pending, others, table=self.table)

    def _advance(self) -> None:
        """Past the pending pixels in the result and the residual."""
        e = self.e
        with e.scope():
            e.increase(self.result, e.multiply(self.pending, self.c.output.element))
            if self.added is not None:
                e.increase(self.added, e.multiply(self.pending, self._residual_bytes))

    def _flush(self) -> None:
        """Finish the last pending sums of a tile."""
        with self.e.scope():
            for step in self._pending_steps():
                step()

    def _pixel(
        self, at: Register, matrices: list[Register], width: Value, kernel: Value
    ) -> Callable[[], None]:
        """Emits one pixel's products, and steps to the next pixel."""
        e = self.e
        step = e.multiply(self.pixel, self.columns.stride)
        sums = e.multiply(self.co, 4)
        down = e.multiply(self.row, self.rows.dilation)
        dense = self.dense
        if dense and isinstance(width, Register):
            size = width  # In elements already; see _run.
        else:
            size = e.held(e.multiply(self.ci, width) if dense else self.ci)

        def group(place: Register, matrix: Register) -> None:
            self._rolled(place, matrix, size, width, kernel, down, False)
            e.increase(place, e.multiply(self.ci, 2))
            e.increase(matrix, e.multiply(self.matrix_row, self.rows.kernel))
            e.increase(self.at, sums)

        def each() -> None:
            if self.grouped:
                with e.scope():
                    place, matrix = e.variable(at), e.variable(matrices[0])
                    e.repeat(self.groups, lambda: group(place, matrix), least=1)
            elif isinstance(kernel, int) and kernel <= UNROLLED and dense:
                self._written_out(at, matrices, size, down)
            else:
                self._rolled(at, matrices[0], size, width, kernel, down, dense)
            e.increase(at, step)
            if not self.grouped:
                e.increase(self.at, sums)
            if self.hooks and not self.row_hooks:
                self.c.hook()

        return each

    def _text(self, first: bool) -> str:
        return f"{self.multiply}.wide" if first and not self.split else f"{self.multiply}.acc.wide"

    def _written_out(
        self, at: Register, matrices: list[Register], size: Register, down: Value
    ) -> None:
        """One product for each kernel row."""
        e, co = self.e, self.co_register
        if len(matrices) == 1:
            e.emit(self._text(True), self.at, co, matrices[0], at, size)
            if self.row_hooks:
                self.c.hook()
            return
        with e.scope():
            place = at
            for number, matrix in enumerate(matrices):
                e.emit(self._text(number == 0), self.at, co, matrix, place, size)
                if self.row_hooks:
                    self.c.hook()
                if number + 1 < len(matrices):
                    further = e.register() if number == 0 else place
                    e.emit("SADD", further, place, down)
                    place = further

    def _rolled(
        self,
        at: Register,
        matrix: Register,
        size: Register,
        width: Value,
        kernel: Value,
        down: Value,
        dense: bool,
    ) -> None:
        """A loop over kernel rows, and over their positions where those lie apart."""
        e, co = self.e, self.co_register
        with e.scope():
            place, rows = e.variable(at), e.variable(matrix)
            if not self.split and dense:
                e.emit(self._text(True), self.at, co, rows, place, size)
                e.increase(place, down)
                e.increase(rows, self.matrix_row)
                kernel = e.subtract(kernel, 1)

            def row(fresh: bool = False) -> None:
                if dense:
                    e.emit(f"{self.multiply}.acc.wide", self.at, co, rows, place, size)
                    if self.row_hooks:
                        self.c.hook()
                else:
                    with e.scope():
                        x, m = e.variable(place), e.variable(rows)
                        apart = e.multiply(self.pixel, self.columns.dilation)

                        def position(text: str) -> None:
                            e.emit(text, self.at, co, m, x, size)
                            e.increase(x, apart)
                            e.increase(m, self.position)

                        more = f"{self.multiply}.acc.wide"
                        if fresh:
                            position(self._text(True))
                        left = e.subtract(width, int(fresh))
                        e.repeat(left, lambda: position(more), least=1 - int(fresh))
                e.increase(place, down)
                e.increase(rows, self.matrix_row)

            if not dense and not self.split:
                row(fresh=True)
                kernel = e.subtract(kernel, 1)
            e.repeat(kernel, row)

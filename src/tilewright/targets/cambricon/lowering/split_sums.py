"""Sums in the result's buffer, with 32 bits, where a reduction is cut into tiles.

The first tile of a reduction begins them, the last one makes results of them, which lie at the
begin of the same buffer: half as long, so that none is written over sums that are still needed.

Where loops within the reduction step through rows of pixels, a tile has a part of the sums. So one
row of the kernel may meet all pixels before the next one does: weights are those of one row, and
of the image each tile has one row for each row of pixels, without those between.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.batches import Batches
from tilewright.targets.cambricon.lowering.boxes import Box
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.nest import Tile
from tilewright.targets.cambricon.lowering.windows import Windows


class SplitSums(Batches):
    """The code around the products of a tile of a reduction."""

    def split_tile(self, tile: Tile, box: Box) -> None:
        """One tile of a reduction: all sums begin before its products, and end after them."""
        e, c = self.e, self.c
        before, after = c.nest.reduced(tile)
        total = e.multiply(
            e.multiply(tile.spans.of("oh"), tile.spans.of(self.columns.out)), self.co
        )
        first = tile.bases[c.output.buffer]
        # After the sums of rows before; results are half as long.
        further = e.subtract(c.nest.base(c.output, tile), first)
        scale = c.output.spacing // c.output.element
        base = e.reg(e.add(first, e.multiply(further, scale)))
        added, partial = e.label("started"), e.label("partial")
        e.if_positive(before, added)
        self._chunks(base, total, 4, self._start)
        e.place(added)
        self.at = e.variable(base)
        self._image(tile, box, tile.bases[self.x.buffer])
        e.if_positive(after, partial)
        self._chunks(base, total, 4, self._finish)
        e.place(partial)
        if self.split_load is not None:
            self.split_load.wait(e)

    def _chunks(
        self, base: Value, total: Value, spacing: int, body: Callable[[Register, Value], None]
    ) -> None:
        """Runs a body for parts of the sums: as many elements as temporaries have."""
        e = self.e
        whole = e.multiply(self.co, self.batch)
        if isinstance(total, int) and isinstance(whole, int) and total == whole:
            body(e.reg(base), total)
            return
        at = e.variable(base)

        def chunk(part: Value) -> None:
            body(at, part)
            e.increase(at, e.multiply(part, spacing))

        e.in_parts("part", total, whole, chunk)

    def _start(self, at: Register, count: Value) -> None:
        """Sums begin with the bias, or with nothing."""
        e = self.e
        n = e.reg(count)
        if self.bias_at is None:
            e.emit("VMOVE.wide", at, n, e.reg(self.epilogue.zeros))
        else:
            e.emit("VMOVE.wide.wide0", at, n, e.reg(self.bias_at))

    def _finish(self, at: Register, count: Value) -> None:
        e = self.e
        self.epilogue.emit(e, at, self.result, count, residual=self.added)
        e.increase(self.result, e.multiply(count, self.c.output.element))
        if self.added is not None:
            e.increase(self.added, e.multiply(count, self._residual_bytes))

    def image_by_rows(self, tile: Tile, box: Box, base: Value, matrix: Value) -> None:
        """The products with a row of the kernel, which some rows of pixels may not meet."""
        e, width = self.e, tile.spans.of(self.columns.out)
        windows = Windows(e, self.rows, self.columns, box, base, tile.spans.of("oh"), width)
        windows.begin()
        axis, s, height = self.rows.along(box), self.rows.stride, tile.spans.of("oh")
        first, end = (
            e.minimum(e.divide(e.add(place, s - 1), s), height)
            for place in (axis.before, e.add(axis.before, axis.size))
        )
        at = e.subtract(e.multiply(first, s), axis.before)
        row = e.variable(e.add(base, e.multiply(at, self.row)))
        line = e.multiply(width, e.multiply(self.co, 4))
        e.increase(self.at, e.multiply(first, line))

        def row_body() -> None:
            windows.emit_row(row, lambda run: self._run(run, matrix))
            e.increase(row, e.multiply(self.row, s))

        e.repeat(e.subtract(end, first), row_body)

    def _image(self, tile: Tile, box: Box, base: Value) -> None:
        height = tile.spans.of("oh")
        width = self.e.divide(tile.spans.of(self.columns.out), self.band)
        matrix = tile.bases[self.w.buffer]
        if "kh" in self.c.nest.looped and self.rows.along(box).padded:
            self.image_by_rows(tile, box, base, matrix)
            return
        windows = Windows(self.e, self.rows, self.columns, box, base, height, width)
        if "kh" in self.c.nest.looped:
            windows.cut = tile.spans.of("kh")
        if self.gathered is not None:
            windows.each_row = self.gathered.row
        windows.emit(lambda run: self._run(run, matrix))

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
        first, count, least = rows_met(windows)
        before = self.rows.along(box).before
        at = e.subtract(e.multiply(first, self.rows.stride), before)
        row = e.variable(e.add(base, e.multiply(at, self.row)))
        line = e.multiply(width, e.multiply(self.co, 4))
        e.increase(self.at, e.multiply(first, line))

        def row_body() -> None:
            windows.emit_row(row, lambda run: self._run(run, matrix))
            e.increase(row, e.multiply(self.row, self.rows.stride))

        e.repeat(count, row_body, least=least)

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


def rows_met(windows: Windows) -> tuple[Value, Value, int]:
    """The rows of the result whose windows meet the image in the kernel's only row: the first of
    them, how many, and their least number in any tile.

    Bounds that hold in all tiles take no instruction.
    """
    e, rows, height = windows.e, windows.rows, windows.height
    axis, s = rows.along(windows.box), rows.stride
    kinds: list[tuple[int, int, int]] = []
    for before, size, count in rows.tiles:
        first = min(max(-(-before // s), 0), count)
        after = max(min((size - 1 + before) // s + 1, count), 0)
        kinds.append((first, after, count))
    first: Value = 0
    if any(first for first, _, _ in kinds):
        first = e.divide(e.add(axis.before, s - 1), s)
        if any(before + s - 1 < 0 for before, _, _ in rows.tiles):
            first = e.maximum(first, 0)
        if any((before + s - 1) // s > count for before, _, count in rows.tiles):
            first = e.minimum(first, height)
    after = height
    if any(after < count for _, after, count in kinds):
        reach = e.add(e.add(axis.size, axis.before), s - 1)
        after = e.divide(reach, s)
        if any((n + before + s - 1) // s > count for before, n, count in rows.tiles):
            after = e.minimum(after, height)
        if any(n + before + s - 1 < 0 for before, n, _ in rows.tiles):
            after = e.maximum(after, 0)
    least = min(after - first for first, after, _ in kinds)
    return first, e.subtract(after, first), least

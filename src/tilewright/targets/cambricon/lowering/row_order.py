"""A tile's products row by row of the kernel: all of its pixels by one row before the next.

The last row comes first: tiles at the top of an image are short of the first row, tiles at the
bottom of the last one, and weights change between the two.

Sums of all pixels wait in VSM meanwhile. So the weights of a row are not needed behind its products
in the last tile that takes them, and the next ones come into their place (weight_ring.py). Pixels
are finished as they are where a pixel's products stand together: each one behind the last product
of the one behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tilewright.targets.cambricon.isa import Register
from tilewright.targets.cambricon.lowering.batches import Batches
from tilewright.targets.cambricon.lowering.boxes import Box
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.sliding import Sliding
from tilewright.targets.cambricon.lowering.tiles import Tile
from tilewright.targets.cambricon.lowering.windows import Run, Windows


@dataclass(frozen=True)
class Met:
    """The rows of a tile's result that a row of the kernel meets the image in."""

    first: Value
    count: Value
    least: int
    """What the count is known to be at least."""


def met_in(windows: Windows, number: int) -> Met:
    """Those of row ``number`` of the kernel; what holds of all tiles is not computed."""
    e, rows, height = windows.e, windows.rows, windows.height
    axis, s, further = rows.along(windows.box), rows.stride, number * rows.dilation
    if not axis.padded:
        return Met(0, height, 1)
    kinds: list[tuple[int, int, int]] = []
    for before, size, count in rows.tiles:
        first = min(max(-(-(before - further) // s), 0), count)
        behind = max(min((size - 1 - further + before) // s + 1, count), 0)
        kinds.append((first, behind, count))
    first: Value = 0
    if any(first for first, _, _ in kinds):
        first = e.divide(e.add(axis.before, s - 1 - further), s)
        if any(before - further + s - 1 < 0 for before, _, _ in rows.tiles):
            first = e.maximum(first, 0)
        if any((before - further + s - 1) // s > count for before, _, count in rows.tiles):
            first = e.minimum(first, height)
    behind = height
    if any(behind < count for _, behind, count in kinds):
        reach = e.add(e.add(axis.size, axis.before), s - 1 - further)
        behind = e.divide(reach, s)
        if any((n + before + s - 1 - further) // s > count for before, n, count in rows.tiles):
            behind = e.minimum(behind, height)
        if any(n + before + s - 1 < further for before, n, _ in rows.tiles):
            behind = e.maximum(behind, 0)
    least = min(behind - first for first, behind, _ in kinds)
    return Met(first, e.subtract(behind, first), least)


class RowWindows(Windows):
    """The windows of one row of the kernel in one tile."""

    def begin(self) -> None:
        """Find the pixels of a row that are cut off."""
        self.parts = self.e.settled(self._split)
        self.first, self.offset = self.e.settled(self._first_whole)

    def emit_row(self, row: Register, body: Callable[[Run], None]) -> None:
        """The runs of one row of the result, whose row of the image begins at ``row``."""
        self._columns(row, 0, 1, None, body)


class RowOrder(Batches):
    """The products of a tile by rows of the kernel."""

    rows: Sliding
    columns: Sliding

    def row_order(self, tile: Tile, box: Box, base: Value, width: Value, matrix: Register) -> None:
        """One tile; ``matrix`` holds the address of the first row's weights."""
        e, down = self.e, self.row
        with e.scope():
            windows = RowWindows(e, self.rows, self.columns, box, base, tile.spans.of("oh"), width)
            windows.begin()
            line = e.settled(lambda: e.multiply(width, 4 * self.parts[0]))
            weights = e.variable(matrix)
            for number in reversed(range(self.rows.kernel)):
                begins, ends = number == self.rows.kernel - 1, number == 0
                with e.scope():
                    met = e.settled(lambda number=number: met_in(windows, number))
                    come = self.rows.kernel - 1 - number
                    if met.least:
                        self.c.row_begins(come)
                    # The row of the image that the first of them meets.
                    before = self.rows.along(box).before
                    at = e.multiply(met.first, self.rows.stride)
                    at = e.subtract(e.add(at, number * self.rows.dilation), before)
                    row = e.variable(e.add(base, e.multiply(at, down)))
                    if begins:
                        self._clear(e.subtract(windows.height, met.count), met.count, line, width)
                    first = 0 if ends else met.first
                    self.at = e.variable(e.add(e.multiply(first, line), self.sums))
                    if ends:
                        self._finish_others(met.first, width)

                    def row_body(
                        number: int = number,
                        row: Register = row,
                        awaited: bool = met.least > 0,
                        come: int = come,
                    ) -> None:
                        if not awaited:
                            # Where none is met, the weights may come later.
                            self.c.row_begins(come)
                        windows.emit_row(row, lambda run: self._products(run, weights, number))
                        e.increase(row, e.multiply(down, self.rows.stride))

                    e.repeat(met.count, row_body, least=met.least)
                    if ends:
                        sums = e.register()
                        e.emit("SADD", sums, self.at, -4 * self.parts[0])
                        for step in self.steps_of(sums):
                            step()
                self.c.row_ends()
                if not ends:
                    self.c.next_row(weights)

    def _clear(self, rows: Value, behind: Value, line: Value, width: Value) -> None:
        """Sums of pixels that the last row of the kernel does not meet begin with zeros."""
        e, channels = self.e, self.parts[0]
        if rows == 0:
            return

        def begin() -> Value:
            return e.add(e.multiply(behind, line), self.sums)

        at, count = e.register(), e.settled(lambda: e.multiply(rows, width))

        def pixel() -> None:
            with e.scope():
                e.emit("VMOVE.wide", at, e.loaded(channels), e.loaded(self.zeros))
            e.increase(at, 4 * channels)

        if isinstance(count, Register):
            e.seldom(count, pixel, lambda: e.set(at, begin()))
        else:
            e.set(at, begin())
            e.repeat(count, pixel)

    def _products(self, run: Run, weights: Register, number: int) -> None:
        """The pixels of a run by one row of the kernel."""
        e, co = self.e, self.co_register
        with e.scope():
            self._measure(run)
            matrix = e.held(self._first_row(replace(run, skipped_rows=0), weights))
            if isinstance(run.width, Register):
                e.emit("SMUL", run.width, run.width, self.ci)
                size = run.width
            else:
                size = e.held(e.multiply(self.ci, run.width))
            forward = e.multiply(self.pixel, self.columns.stride)
            fresh = number == self.rows.kernel - 1
            text = f"{self.multiply}{'' if fresh else '.acc'}.wide"
            turns = self.full and fresh and run.pixels != 1

            def pixel() -> None:
                with e.scope():
                    steps: list[Callable[[], None]] = []
                    if not number:
                        steps = self._finishing_before()
                    e.emit(text, self.at, co, matrix, run.at, size)
                    for step in steps:
                        step()
                    if steps:
                        self._pass(1)
                    if turns:
                        self.c.turn()
                    e.increase(run.at, forward)
                    e.increase(self.at, 4 * self.parts[0])
                    self._hook(self.product)

            e.repeat(run.pixels, pixel, least=1)

    def _finishing_before(self) -> list[Callable[[], None]]:
        """What follows the sums of the pixel before the one at hand."""
        sums = self.e.register()
        self.e.emit("SADD", sums, self.at, -4 * self.parts[0])
        return self.steps_of(sums)

    def _finish_others(self, rows: Value, width: Value) -> None:
        """Pixels that the first row of the kernel does not meet."""
        e = self.e
        if rows == 0:
            return

        def pixel() -> None:
            with e.scope():
                for step in self._finishing_before():
                    step()
                self._pass(1)
                e.increase(self.at, 4 * self.parts[0])

        count = e.settled(lambda: e.multiply(rows, width))
        if isinstance(count, Register):
            e.seldom(count, pixel, lambda: None)
        else:
            e.repeat(count, pixel)

"""Convolutions as products of each tap of the window and each row of results.

In main memory images are [n][h][w][c] and weights [kh][kw][ci][co]. Each row of an image's tile
lies in L1 as a matrix of pixels by channels; with strides along the row, the pixels from 0 by the
stride are one matrix, those from 1 the next. So the pixels that one tap reads for one row of
results are rows of a matrix, from a place that the tap gives: a left operand of ``mmadL1``. What
lies outside of the image is zero: memory is filled where a tile reaches over an edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.codegen.nest.value import Value, greatest, least
from tilewright.memory.alignment import ceil_div
from tilewright.targets.ascend.hivm.views import View
from tilewright.targets.ascend.hivm.windows import Home, Spans, Windows
from tilewright.targets.ascend.machine import CUBE
from tilewright.tile.dialect import StageOp


@dataclass(frozen=True)
class _Rows:
    """The arrangement of the rows of an image's tile in L1."""

    rows: int
    phases: int
    """Matrices of a row: 1 where taps read no pixels between those that a stride apart lie."""
    pixels: int
    """The pixels of a matrix, in whole blocks."""
    channels: int
    """The number of blocks of channels."""

    @property
    def matrix(self) -> int:
        """Elements of a matrix."""
        return self.pixels * self.channels * CUBE

    @property
    def elements(self) -> int:
        """Elements of all; a block more, as a matrix that begins at a later pixel ends later."""
        return self.rows * self.phases * self.matrix + CUBE * CUBE


class Convolution(Windows):
    """A convolution's moves and computes."""

    space = "cbuf"
    nested = ("oh",)

    def allocated(self, hint: str, role: str, spans: Spans, slots: int, element: str) -> View:
        """Memory for a tile of an image, of weights or of results."""
        most = {dim: span.most for dim, span in spans.items()}
        if role == "input":
            sizes = [self._rows(spans).elements]
        elif role == "weight":
            sizes = [
                most["kh"],
                most["kw"],
                ceil_div(most["co"], CUBE),
                ceil_div(most["ci"], CUBE),
                CUBE,
                CUBE,
            ]
        else:
            sizes = [most["oh"], ceil_div(most["co"], CUBE), ceil_div(most["ow"], CUBE), CUBE, CUBE]
        space = "cc" if role == "output" else "cbuf"
        return self.body.allocated(hint, sizes, element, space, slots)

    def image_bytes(self, spans: Spans) -> int:
        """Bytes of a tile of an image, padding included."""
        return self._rows(spans).elements * 2

    def _rows(self, spans: Spans) -> _Rows:
        """From the largest sizes."""
        (_, sw), (_, dw) = self.strides, self.dilations
        ow, kw, ci = (spans[dim].most for dim in ("ow", "kw", "ci"))
        apart = any(tap * dw % sw for tap in range(kw))
        return _Rows(
            rows=self.largest(spans, 0),
            phases=sw if apart else 1,
            pixels=ceil_div(ow + (kw - 1) * dw // sw, CUBE) * CUBE,
            channels=ceil_div(ci, CUBE),
        )

    def _matrix(self, image: View, rows: _Rows, row: Value, phase: Value, pixel: Value) -> View:
        """A row of an image in L1, from a pixel on: [channels / 16, pixels / 16, 16, 16]."""
        place = (row * rows.phases + phase) * rows.matrix + pixel * CUBE
        return self.body.laid(image, place, [rows.channels, rows.pixels // CUBE, CUBE, CUBE])

    def load(self, role: str, tensor: View, home: Home) -> None:
        """A tile of an image, or of weights."""
        if role == "weight":
            self._load_weights(tensor, home)
        else:
            self._load_image(tensor, home)

    def _load_image(self, tensor: View, home: Home) -> None:
        """Rows of an image's tile from main memory, and zeros around the image."""
        body, spans = self.body, home.spans
        (_, sw), (_, dw), (_, left, _, _) = self.strides, self.dilations, self.pads
        _, height, width, _ = tensor.sizes
        assert isinstance(height, int) and isinstance(width, int)
        rows, reach = self._rows(spans), self.reach(spans, 0, height)
        missing = reach.needed - (reach.high - reach.low)
        runs: list[tuple[Value, Value, Value, bool]] = []
        along, taps = spans["ow"], spans["kw"]
        for phase in range(rows.phases):
            column = along.start * sw + taps.start * dw + (phase - left)
            pixels = along.size + ((taps.size - 1) * dw - phase) // sw
            lead: Value = 0
            if not self.begins_inside(1):
                lead = greatest(0, (sw - 1 - column) // sw)
            end = pixels
            if not self.ends_inside(1, width):
                end = least(pixels, (width + (sw - 1) - column) // sw)
            count = end - lead
            if lead != 0 or end != pixels:
                count = greatest(0, count)
            missing = missing + (pixels - count)
            column = column + lead * sw
            runs.append((lead, count, column, lead == 0 and end == pixels))
        self.filled(home.whole, body.number(0.0, home.whole.element), missing)
        with body.loop("h", reach.low, reach.high) as row:
            for phase, (lead, count, column, all_inside) in enumerate(runs):
                if count == 0:
                    continue
                with body.if_positive(1 if all_inside else count):
                    places = [spans["n"].start, reach.first + row, column, spans["ci"].start]
                    boxes = [1, 1, count, spans["ci"].size]
                    source = body.part(tensor, places, boxes, (2, 3), (1, 1, sw, 1))
                    target = self._matrix(home.whole, rows, row, phase, lead)
                    body.instruction("nd2nz {dst_continuous}", [source], target)

    def _load_weights(self, tensor: View, home: Home) -> None:
        """Load the matrix of each tap of the window."""
        kh, kw, ci, co = (home.spans[dim] for dim in ("kh", "kw", "ci", "co"))
        with self.body.loop("y", 0, kh.size) as row, self.body.loop("x", 0, kw.size) as column:
            places = [kh.start + row, kw.start + column, ci.start, co.start]
            source = self.body.part(tensor, places, [1, 1, ci.size, co.size], (2, 3))
            target = self._at(home.whole, row, column)
            self.body.instruction("nd2nz {dst_continuous}", [source], target)

    def _at(self, whole: View, *places: Value) -> View:
        """The last axes of a view, at these places of the first ones."""
        left = len(whole.sizes) - len(places)
        kept = range(len(places), len(whole.sizes))
        sizes = [*[1] * len(places), *whole.sizes[len(places) :]]
        return self.body.part(whole, [*places, *[0] * left], sizes, kept)

    def store(self, tensor: View, home: Home, move: str) -> None:
        """Rows of results to main memory."""
        n, oh, ow, co = (home.spans[dim] for dim in ("n", "oh", "ow", "co"))
        with self.body.loop("r", 0, oh.size) as row:
            source = self._at(home.whole, row)
            places = [n.start, oh.start + row, ow.start, co.start]
            target = self.body.part(tensor, places, [1, 1, ow.size, co.size], (2, 3))
            self.body.instruction(move, [source], target)

    def compute(
        self, inputs: list[Home], target: Home, sum_steps: list[Value], after: Sequence[StageOp]
    ) -> None:
        """A product for each row of results and each tap; the bias joins the first one. What
        follows comes with the results' move."""
        image, weights, *bias = inputs
        body = self.body
        (sh, sw), (dh, dw) = self.strides, self.dilations
        rows = self._rows(image.spans)
        part = image.spans["oh"].start - target.spans["oh"].start
        oh, ow, kh, kw, ci, co = (
            image.spans[dim].size if dim != "co" else weights.spans[dim].size
            for dim in ("oh", "ow", "kh", "kw", "ci", "co")
        )
        with (
            body.loop("r", 0, oh) as row,
            body.loop("y", 0, kh) as tap_row,
            body.loop("x", 0, kw) as tap,
        ):
            line, column = row * sh + tap_row * dh, tap * dw
            phase = column % sw if rows.phases > 1 else 0
            left = self._matrix(image.whole, rows, line, phase, column // sw)
            right = self._at(weights.whole, tap_row, tap)
            first = body.first([*sum_steps, tap_row, tap])
            sizes = [body.index(n) for n in (ow, ci, co)]
            result = self._at(target.whole, part + row)
            operands = [left, right, *(row_of_bias.whole for row_of_bias in bias)]
            body.product(operands, first, sizes, result)

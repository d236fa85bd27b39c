"""Pools: vector operations on strided views of an image's tile in UB, one for each tap.

A tile lies in UB as [h][w][c], channels in whole blocks, with what is around the image: the least
half for maxima, zeros for means. Sums are floats. Where padding does not count, a second tile that
has ones in the image is summed alike, and divides.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tilewright.ir import SSAValue
from tilewright.targets.ascend.hivm.tiles import Home, Spans
from tilewright.targets.ascend.hivm.views import Size, Text, View
from tilewright.targets.ascend.hivm.windows import Windows
from tilewright.targets.ascend.machine import CUBE
from tilewright.tile.dialect import StageOp

LOWEST = "0xFC00"
"""Minus infinity, as MLIR writes a half."""


class Pool(Windows):
    """A pool's moves and computes."""

    def __init__(self, body: Text, stage: StageOp, extents: Mapping[str, int]) -> None:
        super().__init__(body, stage, extents)
        values = stage.parameters
        self.largest_of = stage.operation.data == "max_pool"
        self.counted = [int(n) for n in values.get("counted", (0, 0, 0, 0))]
        self.uneven = not self.largest_of and self.counted != self.pads
        """Whether windows differ in how many elements they count."""
        self.counts: dict[SSAValue, View] = {}

    def allocated(self, hint: str, role: str, spans: Spans, slots: int, element: str) -> View:
        """Memory for a tile of an image or of results."""
        sizes = self._image(spans) if role == "input" else self._results(spans)
        return self.body.allocated(hint, sizes, element, self.space, slots)

    def _image(self, spans: Spans) -> list[int]:
        return [self.largest(spans, 0), self.largest(spans, 1), _whole(spans["c"][2])]

    def _results(self, spans: Spans) -> list[int]:
        return [spans["oh"][2], spans["ow"][2], _whole(spans["c"][2])]

    def image_bytes(self, spans: Spans) -> int:
        """Bytes of a tile of an image, padding included."""
        return 2 * prod(self._image(spans))

    def temporary_bytes(self, spans: Spans) -> int:
        """Of sums: two tiles of floats; of counts another image and another tile."""
        if self.largest_of:
            return 0
        tile = 4 * prod(self._results(spans))
        return 2 * tile + (tile + self.image_bytes(spans) if self.uneven else 0)

    def load(self, role: str, tensor: View, home: Home) -> None:
        """A tile of an image from main memory, and what is around the image."""
        numbers, body, spans = self.numbers, self.body, home.spans
        _, height, width, _ = tensor.sizes
        assert isinstance(height, int) and isinstance(width, int)
        rows, columns = self.reach(spans, 0, height), self.reach(spans, 1, width)
        missing: Size = 0
        for reach in (rows, columns):
            around = numbers.minus(reach.needed, numbers.minus(reach.high, reach.low))
            missing = numbers.plus(missing, around)
        value = (
            body.constant("lowest", f"{LOWEST} : {tensor.element}")
            if self.largest_of
            else body.number(0.0, tensor.element)
        )
        self.filled(home.whole, value, missing)
        start, channels, _ = spans["c"]
        sizes = [*(numbers.minus(reach.high, reach.low) for reach in (rows, columns)), channels]
        places = [numbers.plus(reach.first, reach.low) for reach in (rows, columns)]
        source = body.part(tensor, [spans["n"][0], *places, start], [1, *sizes], (1, 2, 3))
        self.moved("load", source, body.part(home.whole, [rows.low, columns.low, 0], sizes))
        if self.uneven:
            self._count(home, height, width)

    def _count(self, home: Home, height: int, width: int) -> None:
        """Ones where elements count, zeros around."""
        top, left, bottom, right = self.counted
        rows = self.reach(home.spans, 0, height, top, bottom)
        columns = self.reach(home.spans, 1, width, left, right)
        numbers, body, image = self.numbers, self.body, home.whole
        sizes = [numbers.minus(reach.high, reach.low) for reach in (rows, columns)]
        whole = body.allocated("ones", self._image(home.spans), image.element, self.space)
        self.filled(whole, body.number(0.0, whole.element))
        sizes.append(self._image(home.spans)[-1])
        inside = body.part(whole, [rows.low, columns.low, 0], sizes)
        self.filled(inside, body.number(1.0, whole.element))
        self.counts[home.tensor] = whole

    def store(self, tensor: View, home: Home, move: str) -> None:
        """A tile of results to main memory."""
        starts = [home.spans[dim][0] for dim in ("n", "oh", "ow", "c")]
        sizes = [home.spans[dim][1] for dim in ("oh", "ow", "c")]
        target = self.body.part(tensor, starts, [1, *sizes], (1, 2, 3))
        self.moved(move, self.body.part(home.whole, [0, 0, 0], sizes), target)

    def compute(self, inputs: list[Home], target: Home, begun: list[Size]) -> None:
        """Every tap's elements, one after the other."""
        body, (image,) = self.body, inputs
        sizes = [target.spans[dim][1] for dim in ("oh", "ow", "c")]
        result = body.part(target.whole, [0, 0, 0], sizes)
        if self.largest_of:
            self.filled(result, body.constant("lowest", f"{LOWEST} : {result.element}"))
            self._fold("vmax", image, image.whole, result, None)
            return
        most = self._results(image.spans)
        sums, wide = (
            body.part(body.allocated("t", most, "f32", self.space), [0, 0, 0], sizes)
            for _ in range(2)
        )
        self.filled(sums, body.number(0.0, "f32"))
        self._fold("vadd", image, image.whole, sums, wide)
        if self.uneven:
            count = body.part(body.allocated("t", most, "f32", self.space), [0, 0, 0], sizes)
            self.filled(count, body.number(0.0, "f32"))
            self._fold("vadd", image, self.counts[image.tensor], count, wide)
            self._line("vdiv", [sums, count], sums)
        else:
            taps = body.number(1.0 / (image.spans["kh"][2] * image.spans["kw"][2]), "f32")
            body.line(
                f"hivm.hir.vmul ins({sums.name}, {taps} : {sums.type}, f32) "
                f"outs({sums.name} : {sums.type})"
            )
        self._line("vcast", [sums], result, " round_mode = #hivm.round_mode<rint>")

    def _fold(self, name: str, home: Home, image: View, target: View, wide: View | None) -> None:
        """Each tap of an image's tile into what is there; through floats where ``wide`` is."""
        numbers, body, spans = self.numbers, self.body, home.spans
        (dh, dw), (_, rows, _), (_, columns, _) = self.dilations, spans["kh"], spans["kw"]
        with body.loop("y", 0, rows) as row, body.loop("x", 0, columns) as column:
            places = [numbers.times(row, dh), numbers.times(column, dw), 0]
            tap = body.part(image, places, target.sizes, None, (*self.strides, 1))
            if wide is not None:
                self._line("vcast", [tap], wide, " round_mode = #hivm.round_mode<rint>")
                tap = wide
            self._line(name, [target, tap], target)

    def _line(self, name: str, inputs: list[View], target: View, end: str = "") -> None:
        names, types = ", ".join(v.name for v in inputs), ", ".join(v.type for v in inputs)
        self.body.line(
            f"hivm.hir.{name} ins({names} : {types}) outs({target.name} : {target.type}){end}"
        )


def _whole(extent: int) -> int:
    """An extent in whole blocks."""
    return -(-extent // CUBE) * CUBE

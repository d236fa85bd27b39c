"""Pools: vector operations on strided views of an image's tile in UB, one for each tap.

Around the image is the least half for maxima, zeros for means. Sums are floats. Where padding does
not count, a second tile that has ones in the image is summed alike, and divides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tilewright.codegen.nest.value import Value
from tilewright.ir import SSAValue
from tilewright.targets.ascend.hivm.views import Text, View
from tilewright.targets.ascend.hivm.windows import ROUNDED, Home, Spans, Windows
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
        """True if windows differ in how many elements they count."""
        self.counts: dict[SSAValue, View] = {}

    def temporary_bytes(self, spans: Spans) -> int:
        """Return the bytes of temporaries: for sums two tiles of floats; for counts another image
        and another tile."""
        if self.largest_of:
            return 0
        tile = 4 * prod(self.results(spans))
        return 2 * tile + (tile + self.image_bytes(spans) if self.uneven else 0)

    def load(self, role: str, tensor: View, home: Home) -> None:
        """A tile of an image from main memory, and what is around the image."""
        _, height, width, _ = tensor.sizes
        assert isinstance(height, int) and isinstance(width, int)
        lowest = self.body.constant("lowest", f"{LOWEST} : {tensor.element}")
        zero = self.body.number(0.0, tensor.element)
        self.load_image(tensor, home, lowest if self.largest_of else zero)
        if self.uneven:
            self._count(home, height, width)

    def _count(self, home: Home, height: int, width: int) -> None:
        """Ones where elements count, zeros around."""
        top, left, bottom, right = self.counted
        rows = self.reach(home.spans, 0, height, top, bottom)
        columns = self.reach(home.spans, 1, width, left, right)
        body, image = self.body, home.whole
        sizes = [reach.high - reach.low for reach in (rows, columns)]
        whole = body.allocated("ones", self.image(home.spans), image.element, self.space)
        self.filled(whole, body.number(0.0, whole.element))
        sizes.append(self.image(home.spans)[-1])
        inside = body.part(whole, [rows.low, columns.low, 0], sizes)
        self.filled(inside, body.number(1.0, whole.element))
        self.counts[home.tensor] = whole

    def compute(
        self, inputs: list[Home], target: Home, sum_steps: list[Value], after: Sequence[StageOp]
    ) -> None:
        """Every tap's elements, one after the other."""
        body, (image,) = self.body, inputs
        sizes = [target.spans[dim].size for dim in ("oh", "ow", "c")]
        result = body.part(target.whole, [0, 0, 0], sizes)
        if self.largest_of:
            self.filled(result, body.constant("lowest", f"{LOWEST} : {result.element}"))
            self._fold("vmax", image, image.whole, result, None)
            return
        sums, wide = self.space_like(target), self.space_like(target)
        self.filled(sums, body.number(0.0, "f32"))
        self._fold("vadd", image, image.whole, sums, wide)
        if self.uneven:
            count = self.space_like(target)
            self.filled(count, body.number(0.0, "f32"))
            self._fold("vadd", image, self.counts[image.tensor], count, wide)
            body.instruction("vdiv", [sums, count], sums)
        else:
            taps = body.number(1.0 / (image.spans["kh"].most * image.spans["kw"].most), "f32")
            body.instruction("vmul", [sums, taps], sums)
        body.instruction("vcast", [sums], result, ROUNDED)

    def _fold(self, name: str, home: Home, image: View, target: View, wide: View | None) -> None:
        """Each tap of an image's tile into what is there; through floats where ``wide`` is."""
        rows, columns = (home.spans[dim].size for dim in ("kh", "kw"))
        with self.body.loop("y", 0, rows) as row, self.body.loop("x", 0, columns) as column:
            tap = self.tap(image, row, column, target.sizes)
            if wide is not None:
                self.body.instruction("vcast", [tap], wide, ROUNDED)
                tap = wide
            self.body.instruction(name, [target, tap], target)

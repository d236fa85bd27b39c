"""Images in UB: tiles as [h][w][c], channels in whole blocks, with what is around the image."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.codegen.nest.value import Value
from tilewright.targets.ascend.hivm.views import View
from tilewright.targets.ascend.hivm.windows import Home, Spans, Windows
from tilewright.targets.ascend.machine import CUBE

ROUNDED = " round_mode = #hivm.round_mode<rint>"
"""The attribute that ends a conversion."""


def in_blocks(extent: int) -> int:
    """An extent in whole blocks."""
    return -(-extent // CUBE) * CUBE


class UbImages(Windows):
    """The base of vector operations on windows in UB."""

    def allocated(self, hint: str, role: str, spans: Spans, slots: int, element: str) -> View:
        """Memory for a tile of an image or of results."""
        sizes = self.image(spans) if role == "input" else self.results(spans)
        return self.body.allocated(hint, sizes, element, self.space, slots)

    def image(self, spans: Spans) -> list[int]:
        """Largest sizes of an image's tile, padding included."""
        return [self.largest(spans, 0), self.largest(spans, 1), in_blocks(spans["c"].most)]

    def results(self, spans: Spans) -> list[int]:
        """Largest sizes of a tile of results."""
        return [spans["oh"].most, spans["ow"].most, in_blocks(spans["c"].most)]

    def image_bytes(self, spans: Spans) -> int:
        """Bytes of a tile of an image, padding included."""
        return 2 * prod(self.image(spans))

    def load_image(self, tensor: View, home: Home, around: str) -> None:
        """A tile of an image from main memory, and a constant around the image."""
        body, spans = self.body, home.spans
        _, height, width, _ = tensor.sizes
        assert isinstance(height, int) and isinstance(width, int)
        reaches = self.reach(spans, 0, height), self.reach(spans, 1, width)
        inside = [reach.high - reach.low for reach in reaches]
        missing = sum(reach.needed - size for reach, size in zip(reaches, inside, strict=True))
        self.filled(home.whole, around, missing)
        sizes = [*inside, spans["c"].size]
        places = [spans["n"].start, *(reach.first + reach.low for reach in reaches)]
        source = body.part(tensor, [*places, spans["c"].start], [1, *sizes], (1, 2, 3))
        lows = [reach.low for reach in reaches]
        body.instruction("load", [source], body.part(home.whole, [*lows, 0], sizes))

    def store(self, tensor: View, home: Home, move: str) -> None:
        """A tile of results to main memory."""
        starts = [home.spans[dim].start for dim in ("n", "oh", "ow", "c")]
        sizes = [home.spans[dim].size for dim in ("oh", "ow", "c")]
        target = self.body.part(tensor, starts, [1, *sizes], (1, 2, 3))
        self.body.instruction(move, [self.body.part(home.whole, [0, 0, 0], sizes)], target)

    def space_like(self, home: Home) -> View:
        """Memory for floats, as large as a tile of results."""
        sizes = [home.spans[dim].size for dim in ("oh", "ow", "c")]
        whole = self.body.allocated("t", self.results(home.spans), "f32", self.space)
        return self.body.part(whole, [0, 0, 0], sizes)

    def tap(self, image: View, row: Value, column: Value, sizes: Sequence[Value]) -> View:
        """The elements that one tap of all windows reads."""
        dh, dw = self.dilations
        places = [row * dh, column * dw, 0]
        return self.body.part(image, places, sizes, None, (*self.strides, 1))

"""Tiles of images on their way into HIVM, and which part of a tile lies in the image.

In UB tiles are [h][w][c], channels in whole blocks, with what is around the image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tilewright.codegen.nest.span import Span
from tilewright.codegen.nest.value import Value, greatest, least
from tilewright.ir import SSAValue
from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.hivm.views import Text, View
from tilewright.tile.dialect import StageOp

ROUNDED = " round_mode = #hivm.round_mode<rint>"
"""The attribute that ends a conversion."""

Spans = Mapping[str, Span]
"""Dim -> where its tile lies."""


@dataclass
class Home:
    """A buffer: its memory, and the tile that it holds."""

    tensor: SSAValue
    whole: View
    spans: Spans
    frame: tuple[str, ...] = ()
    """Dims of its axes in UB, which are the result's, perhaps with the last and another one
    exchanged, as rows of main memory stay rows."""


@dataclass(frozen=True)
class Reach:
    """The places of an image that a tile's windows read, along one axis."""

    first: Value
    """The tile's first index in the image; below 0 in the padding."""
    needed: Value
    """Places that the windows read."""
    low: Value
    """The first of them in the image."""
    high: Value
    """The first index after those in the image, or after all of them."""


class Windows:
    """The base of emitters for the moves and computes of an operation on windows. Operands are
    images in UB, unless a subclass says otherwise."""

    space = "ub"
    """The memory of operands."""

    nested: tuple[str, ...] = ()
    """Dims along which a tile of results may be computed in several parts."""

    def __init__(self, body: Text, stage: StageOp, extents: Mapping[str, int]) -> None:
        self.body = body
        self.extents = extents
        """The extents of the whole operation, by dim."""
        values = stage.parameters
        self.strides = [int(n) for n in values.get("strides", (1, 1))]
        self.pads = [int(n) for n in values.get("pads", (0, 0, 0, 0))]
        self.dilations = [int(n) for n in values.get("dilations", (1, 1))]

    def allocated(self, hint: str, role: str, spans: Spans, slots: int, element: str) -> View:
        """Memory for a tile of an operand or of results."""
        sizes = self.image(spans) if role == "input" else self.results(spans)
        return self.body.allocated(hint, sizes, element, self.space, slots)

    def image(self, spans: Spans) -> list[int]:
        """Largest sizes of an image's tile, padding included."""
        return [self.largest(spans, 0), self.largest(spans, 1), padded(spans["c"].most)]

    def results(self, spans: Spans) -> list[int]:
        """Largest sizes of a tile of results."""
        return [spans["oh"].most, spans["ow"].most, padded(spans["c"].most)]

    def image_bytes(self, spans: Spans) -> int:
        """Bytes of a tile of an image, padding included."""
        return 2 * prod(self.image(spans))

    def temporary_bytes(self, spans: Spans) -> int:
        """Bytes of values between operations, in the operands' memory."""
        return 0

    def load(self, role: str, tensor: View, home: Home) -> None:
        """A tile from main memory."""
        raise NotImplementedError

    def compute(
        self, inputs: list[Home], target: Home, sum_steps: list[Value], after: Sequence[StageOp]
    ) -> None:
        """Write the results of a tile. ``sum_steps`` are 0 in the first step of their sums, and
        ``after`` are the stages that follow."""
        raise NotImplementedError

    def reach(self, spans: Spans, axis: int, extent: int, before: int = 0, after: int = 0) -> Reach:
        """Along rows (0) or columns (1); ``before`` and ``after`` count with the image."""
        stride, dilation = self.strides[axis], self.dilations[axis]
        results, taps = (spans[dim] for dim in (("oh", "kh"), ("ow", "kw"))[axis])
        first = results.start * stride + taps.start * dilation - self.pads[axis]
        needed = (results.size - 1) * stride + (taps.size - 1) * dilation + 1
        low = 0 if self.begins_inside(axis, before) else greatest(0, -before - first)
        high = needed
        if not self.ends_inside(axis, extent + after):
            high = least(needed, extent + after - first)
        return Reach(first, needed, low, high)

    def begins_inside(self, axis: int, before: int = 0) -> bool:
        """Return True if no window begins before the image, or before what counts as part of it."""
        return self.pads[axis] <= before

    def ends_inside(self, axis: int, extent: int) -> bool:
        """Return True if no window ends after the image."""
        results, taps = (self.extents[dim] for dim in (("oh", "kh"), ("ow", "kw"))[axis])
        last = (results - 1) * self.strides[axis] + (taps - 1) * self.dilations[axis]
        return last - self.pads[axis] < extent

    def largest(self, spans: Spans, axis: int) -> int:
        """The most places that a tile's windows read."""
        results, taps = (spans[dim].most for dim in (("oh", "kh"), ("ow", "kw"))[axis])
        return (results - 1) * self.strides[axis] + (taps - 1) * self.dilations[axis] + 1

    def filled(self, view: View, value: str, where: Value = 1) -> None:
        """A constant all over a view, where a number is above 0."""
        if where != 0:
            with self.body.if_positive(where):
                self.body.instruction("vbrc", [value], view)

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

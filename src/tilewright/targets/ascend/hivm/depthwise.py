"""Depthwise convolutions: vector operations on floats, two for each tap of the window."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.codegen.nest.value import Value
from tilewright.ir import SSAValue
from tilewright.targets.ascend.formats import padded
from tilewright.targets.ascend.hivm.vectors import Vectors
from tilewright.targets.ascend.hivm.views import View
from tilewright.targets.ascend.hivm.windows import ROUNDED, Home, Spans, Windows
from tilewright.tile.dialect import StageOp


class Depthwise(Windows):
    """Moves and computes; weights lie in UB as [kh][kw][c], a bias as [1][1][c]."""

    def allocated(self, hint: str, role: str, spans: Spans, slots: int, element: str) -> View:
        """Memory for a tile of an operand or of results."""
        if role in ("weight", "bias"):
            sizes = self._taps(spans) if role == "weight" else [1, 1, padded(spans["c"].most)]
            return self.body.allocated(hint, sizes, element, self.space, slots)
        return super().allocated(hint, role, spans, slots, element)

    def _taps(self, spans: Spans) -> list[int]:
        return [spans["kh"].most, spans["kw"].most, padded(spans["c"].most)]

    def temporary_bytes(self, spans: Spans) -> int:
        """Return the bytes of temporaries: for sums and a tap two tiles of floats, for later stages
        one of halves, and the weights."""
        return (4 + 4 + 2) * prod(self.results(spans)) + 4 * prod(self._taps(spans))

    def load(self, role: str, tensor: View, home: Home) -> None:
        """A tile of an image, with zeros around it, of weights or of a bias."""
        if role == "input":
            self.load_image(tensor, home, self.body.number(0.0, tensor.element))
            return
        start, size = home.spans["c"].start, home.spans["c"].size
        if role == "bias":
            source = self.body.part(tensor, [start], [size])
            target = self.body.part(home.whole, [0, 0, 0], [1, 1, size], (2,))
        else:
            kh, kw, _, _ = tensor.sizes
            source = self.body.part(tensor, [0, 0, 0, start], [kh, kw, 1, size], (0, 1, 3))
            target = self.body.part(home.whole, [0, 0, 0], [kh, kw, size])
        self.body.instruction("load", [source], target)

    def compute(
        self, inputs: list[Home], target: Home, sum_steps: list[Value], after: Sequence[StageOp]
    ) -> None:
        """Emit the sums of products with each tap, and the stages after them."""
        body, (image, weights, *bias) = self.body, inputs
        sizes = [target.spans[dim].size for dim in ("oh", "ow", "c")]
        kh, kw, channels = weights.spans["kh"].most, weights.spans["kw"].most, sizes[-1]
        sums, wide = self.space_like(target), self.space_like(target)
        whole = body.allocated("t", self._taps(weights.spans), "f32", self.space)
        taps = body.part(whole, [0, 0, 0], [kh, kw, channels])
        halves = body.part(weights.whole, [0, 0, 0], [kh, kw, channels])
        body.instruction("vcast", [halves], taps, ROUNDED)
        repeated = [axis for axis in (0, 1) if sizes[axis] != 1]
        end = f" broadcast = {repeated}" if repeated else ""
        self.filled(sums, body.number(0.0, "f32"))
        for row_of_bias in bias:
            row = body.part(row_of_bias.whole, [0, 0, 0], [1, 1, channels])
            body.instruction("vadd", [sums, row], sums, end)
        with body.loop("y", 0, kh) as row, body.loop("x", 0, kw) as column:
            body.instruction("vcast", [self.tap(image.whole, row, column, sizes)], wide, ROUNDED)
            weight = body.part(taps, [row, column, 0], [1, 1, channels])
            body.instruction("vmul", [wide, weight], wide, end)
            body.instruction("vadd", [sums, wide], sums)
        result = body.part(target.whole, [0, 0, 0], sizes)
        if all(stage.operation.data == "cast" for stage in after):
            body.instruction("vcast", [sums], result, ROUNDED)
            return
        known: dict[SSAValue, View] = {after[0].inputs[0]: sums}
        Vectors(body, ("oh", "ow", "c"), sizes, self.results(target.spans)).chain(
            after, known, result
        )

"""Chains of stages on tiles in UB, as vector operations of HIVM.

A chain that rounds once at most, and of sums, products, limits and the like alone, is computed in
half precision, to the same bits as in float32 with one rounding at its end. All others are computed
in float32: operands are widened, the result is rounded. An operand that has one index along an axis
where others have more is repeated by the instruction (``broadcast``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt

from tilewright.codegen.nest.value import Value
from tilewright.errors import refuse
from tilewright.ir import SSAValue
from tilewright.targets.ascend.hivm.machine import EXACT, ROUNDED
from tilewright.targets.ascend.hivm.views import Text, View
from tilewright.tile.dialect import StageOp

BINARY = {name: f"v{name}" for name in ("add", "sub", "mul", "div", "max", "min")}
UNARY = {
    **{name: f"v{name}" for name in ("relu", "abs", "exp", "sqrt", "erf", "tanh")},
    "log": "vln",
}


@dataclass(frozen=True)
class Vectors:
    """The vector operations of one compute."""

    body: Text
    frame: Sequence[str]
    """The dims of the result, by its axes."""
    sizes: Sequence[Value]
    """The sizes of the tile, by axis."""
    most: Sequence[int]
    """The largest sizes, for which memory is allocated."""

    def chain(
        self, stages: Sequence[StageOp], operands: Mapping[SSAValue, View], output: View
    ) -> None:
        """Compute all stages; the last one's value goes to ``output``."""
        steps = [stage for stage in stages if stage.operation.data != "cast"]
        names = [stage.operation.data for stage in steps]
        rounds = sum(name in ROUNDED for name in names)
        plain = rounds <= 1 and all(name in (*ROUNDED, *EXACT, "transpose") for name in names)
        element = "f16" if plain else "f32"
        values = dict(operands)
        for stage in steps:
            inputs = [self._as(values[value], element) for value in stage.inputs]
            last = stage is steps[-1] and element == output.element
            target = output if last else self._space(element)
            self._stage(stage, inputs, target)
            values[stage.result] = target
        result = values[steps[-1].result]
        if result is not output:
            self._cast(result, output)

    def transposed(self, view: View, order: Sequence[int]) -> View:
        """A value with two of its axes exchanged: axis i of the result is ``order[i]``."""
        target = self._room("t", [view.sizes[axis] for axis in order], view.element)
        self.body.instruction("vtranspose", [view], target, f" permutation = {list(order)}")
        return target

    def _space(self, element: str, axis: int | None = None) -> View:
        """Memory for a tile, with one index along ``axis``."""
        sizes = [1 if place == axis else n for place, n in enumerate(self.sizes)]
        return self._room("t", sizes, element)

    def _room(self, hint: str, sizes: Sequence[Value], element: str) -> View:
        """Memory for a part of a tile: the tile's largest size along axes of more than one
        index."""
        most = [1 if n == 1 else large for n, large in zip(sizes, self.most, strict=True)]
        whole = self.body.allocated(hint, most, element, "ub")
        return self.body.part(whole, [0] * len(most), sizes)

    def _as(self, view: View, element: str) -> View:
        """A value in another precision."""
        if view.element == element:
            return view
        wide = self._room("wide", view.sizes, element)
        self._cast(view, wide)
        return wide

    def _cast(self, source: View, target: View) -> None:
        self.body.instruction("vcast", [source], target, " round_mode = #hivm.round_mode<rint>")

    def _binary(self, name: str, inputs: Sequence[View], target: View) -> None:
        repeated = [
            axis
            for axis, size in enumerate(target.sizes)
            if size != 1 and any(each.sizes[axis] == 1 for each in inputs)
        ]
        end = f" broadcast = {repeated}" if repeated else ""
        self.body.instruction(BINARY[name], inputs, target, end)

    def _scaled(self, name: str, value: View, number: float, target: View) -> None:
        """A value with a constant."""
        self.body.instruction(name, [value, self.body.number(number, target.element)], target)

    def _stage(self, stage: StageOp, inputs: Sequence[View], target: View) -> None:
        name, values = stage.operation.data, stage.parameters
        if name in BINARY:
            self._binary(name, inputs, target)
        elif name in UNARY:
            self.body.instruction(UNARY[name], inputs, target)
        elif name == "softmax":
            self._softmax(inputs[0], target)
        elif name == "layer_norm":
            centred = bool(values.get("centred", True))
            self._layer_norm(inputs, target, float(values.get("epsilon", 1e-5)), centred)
        elif name == "neg":
            self._scaled("vmul", inputs[0], -1.0, target)
        elif name in ("identity", "convert_layout", "transpose"):
            # Axes were exchanged on the way here.
            self.body.instruction("copy", inputs, target)
        elif name == "clip":
            low, high = (float(values.get(key, end)) for key, end in LIMITS.items())
            value = inputs[0]
            if isfinite(low) or not isfinite(high):
                self._scaled("vmax", value, max(low, LEAST), target)
                value = target
            if isfinite(high):
                self._scaled("vmin", value, high, target)
        elif name in ("sigmoid", "silu"):
            self._sigmoid(inputs[0], target)
            if name == "silu":
                self.body.instruction("vmul", [target, inputs[0]], target)
        elif name == "gelu" and values.get("approximate", "none") in ("none", False):
            self._gelu(inputs[0], target)
        else:
            raise refuse("lower-operation", f"there is no vector operation for {name}")

    def _sigmoid(self, value: View, target: View) -> None:
        """1 / (1 + exp(-x))."""
        other = self._space(target.element)
        self._scaled("vmul", value, -1.0, other)
        self.body.instruction("vexp", [other], other)
        self._scaled("vadd", other, 1.0, other)
        self.body.instruction("vrec", [other], target)

    def _gelu(self, value: View, target: View) -> None:
        """x (1 + erf(x / sqrt 2)) / 2."""
        other = self._space(target.element)
        self._scaled("vmul", value, sqrt(0.5), other)
        self.body.instruction("verf", [other], other)
        self._scaled("vadd", other, 1.0, other)
        self.body.instruction("vmul", [other, value], other)
        self._scaled("vmul", other, 0.5, target)

    def _folded(self, kind: str, value: View) -> View:
        """The largest of every row, or the sum; rows run along the dim ``axis``."""
        axis = list(self.frame).index("axis")
        target = self._space(value.element, axis)
        self.body.instruction(f"vreduce <{kind}>", [value], target, f" reduce_dims = [{axis}]")
        return target

    def _softmax(self, value: View, target: View) -> None:
        largest = self._folded("max", value)
        self._binary("sub", [value, largest], target)
        self.body.instruction("vexp", [target], target)
        self._binary("div", [target, self._folded("sum", target)], target)

    def _layer_norm(
        self, inputs: Sequence[View], target: View, epsilon: float, centred: bool
    ) -> None:
        value, *others = inputs
        count = self.most[list(self.frame).index("axis")]
        if centred:
            mean = self._folded("sum", value)
            self._scaled("vmul", mean, 1.0 / count, mean)
            self._binary("sub", [value, mean], target)
            value = target
        squares = self._space(target.element)
        self._binary("mul", [value, value], squares)
        mean = self._folded("sum", squares)
        self._scaled("vmul", mean, 1.0 / count, mean)
        self._scaled("vadd", mean, epsilon, mean)
        self.body.instruction("vsqrt", [mean], mean)
        self._binary("div", [value, mean], target)
        for name, other in zip(("mul", "add"), others, strict=False):
            self._binary(name, [target, other], target)


LIMITS = {"minimum": float("-inf"), "maximum": float("inf")}
LEAST = -65504.0
"""The least finite float16: a limit below it has no effect."""

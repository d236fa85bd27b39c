"""Choosing binary points: which values share one, how large it can be, what lowers it.

Values whose integers pass through unchanged (relu, maximum, pools, concatenation, views) share a
**class**; a class starts with the most fraction bits that its calibrated range allows. Kernels
then state what their accumulators need, and lower classes until all of it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import floor, inf, log2

import numpy as np

from tilewright.errors import Problem, TilewrightError
from tilewright.graph.dialect import KernelOp, NetworkOp, WeightOp
from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import constant
from tilewright.graph.saturation import UNBOUNDED, Bounds, bounds_of, finite_range
from tilewright.ir import SSAValue
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import Array
from tilewright.machine.rounding import Rounding
from tilewright.numerics.operators import has, operators

KEEPING = frozenset(operators("keeping"))
"""Operations whose result has the type of their first operand."""

ALIGNING = frozenset(("add", "sub"))
"""Operations that shift their operands to one binary point, and take accumulators."""

PRODUCTS = frozenset((*operators("product"), "mul"))

LOWEST, HIGHEST = -16, 30
"""Bounds of every binary point."""

SOFTMAX_FRACTION = 14
"""A probability of 1 still fits."""

WEIGHT_BITS_KEPT = 8
"""Weights lose fraction bits before activations do, as long as they keep this many fraction
bits."""


_CHUNK = 1 << 16
"""Weights looked at together: what is computed of them stays in the cache."""


@dataclass(eq=False)
class PointClass:
    """Values that share one binary point, with the range that all of them take."""

    name: str
    low: float = 0.0
    high: float = 0.0
    highest: int = HIGHEST
    """The binary point is lowered to this."""
    is_weight: bool = False
    bits: int = 16

    @property
    def finest(self) -> int:
        """Most fraction bits with which the range fits."""
        most = 2 ** (self.bits - 1) - 1
        # The least integer lies one further from 0 than the greatest.
        largest = max(abs(self.low) * most / (most + 1), abs(self.high))
        if largest < 2.0 ** (self.bits - 2 - HIGHEST):
            return HIGHEST
        return max(min(floor(log2(most / largest)), HIGHEST), LOWEST)

    @property
    def fraction(self) -> int:
        """The number of bits after the binary point."""
        return max(min(self.finest, self.highest), LOWEST)


@dataclass
class Step:
    """One operation of a fixed-point kernel, as the walk over it sees it."""

    op: Operation
    points: list[int]
    """Binary points of its operands."""
    requantise: tuple[PointClass, int] | None
    """Class to which the chain's 32-bit value is brought first, and that value's binary point."""
    wide: bool
    """True if the result is a 32-bit accumulator."""
    point: int
    """Binary point of the result."""
    sources: tuple[PointClass, ...]
    """Classes that the accumulator's binary point is made of."""
    brought: tuple[PointClass, ...]
    """Classes of the sources that this operation brings."""
    before: int | None
    """Binary point of the accumulator that a sum starts from."""


@dataclass
class KernelPoints:
    """The walk over one kernel: its steps, and what it ends with."""

    steps: list[Step]
    requantise: tuple[PointClass, int] | None


@dataclass
class Points:
    """Binary points of all values of a network; made class by class, then ``solve`` d."""

    ctx: CompilerContext
    names: Mapping[SSAValue, str]
    limit: float
    """Accumulators stay below this magnitude."""
    bits: int = 16
    """Bits of the values between kernels, and of weights."""
    rounding: Rounding = field(default_factory=Rounding)
    """The rounding of the machine's inexact operations."""
    stated: Mapping[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    """Points of values that the model rounds itself."""
    missing: list[str] = field(default_factory=list[str])
    _classes: dict[SSAValue, PointClass] = field(default_factory=dict[SSAValue, PointClass])
    _ranges: dict[SSAValue, Bounds] = field(default_factory=dict[SSAValue, Bounds])
    _bounds: dict[SSAValue, Bounds] = field(default_factory=dict[SSAValue, Bounds])
    _endless: set[SSAValue] = field(default_factory=set[SSAValue])
    """Constants with -infinity among their numbers."""
    _merged: dict[PointClass, PointClass] = field(default_factory=dict[PointClass, PointClass])
    _kernels: list[KernelOp] = field(default_factory=list[KernelOp])

    def cut(self, network: NetworkOp) -> None:
        """Leave out of all ranges what changes nothing of the network's results: masks' -1e9."""
        self._bounds = bounds_of(network, lambda value: self._seen(value) or (0.0, 0.0))

    def range_of(self, value: SSAValue, reader: SSAValue | None = None) -> Bounds:
        """The numbers of a tensor that its format has to hold, cut to what ``reader``, a kernel's
        argument, can tell apart."""
        if value in self.stated:
            largest = (2 ** (self.bits - 1) - 1) * 2.0 ** -self.stated[value]
            return -largest, largest
        low, high = self.bounds_of(reader or value)
        least, most = self.full_range_of(value)
        if value in self._endless and low > -inf:
            least = low
        return min(max(least, low), high), max(min(most, high), low)

    def bounds_of(self, value: SSAValue) -> Bounds:
        """Bounds beyond which numbers of a value, or of a kernel's argument, change nothing."""
        return self._bounds.get(value, UNBOUNDED)

    def full_range_of(self, value: SSAValue) -> Bounds:
        """The finite numbers that a tensor takes: all of a weight's, the calibrated ones of
        others."""
        if value not in self._ranges:
            seen = self._seen(value)
            if seen is None:
                self.missing.append(self.names[value])
            self._ranges[value] = seen or (0.0, 0.0)
        return self._ranges[value]

    def _seen(self, value: SSAValue) -> Bounds | None:
        """Least and greatest number of a value; None if they are not known."""
        array = constant(value, self.ctx)
        if array is not None:
            if array.size and array.min() == -inf:
                self._endless.add(value)
            return finite_range(array)
        bounds = self.ctx.ranges.get(self.names[value])
        return bounds if bounds is not None and all(np.isfinite(bounds)) else None

    def class_of(self, value: SSAValue) -> PointClass:
        """The class of a 16-bit value."""
        if value not in self._classes:
            low, high = self.range_of(value)
            weight = isinstance(value.owner, WeightOp)
            self._classes[value] = PointClass(
                self.names[value], low, high, is_weight=weight, bits=self.bits
            )
        return self._root(self._classes[value])

    def argument_class(self, argument: SSAValue, outer: SSAValue) -> PointClass:
        """The scale class of a kernel's operand; weights have one for each kernel with them."""
        if not isinstance(outer.owner, WeightOp):
            return self.class_of(outer)
        if argument not in self._classes:
            low, high = self.range_of(outer, argument)
            self._classes[argument] = PointClass(
                self.names[outer], low, high, is_weight=True, bits=self.bits
            )
        return self._root(self._classes[argument])

    def join(self, first: PointClass, second: PointClass) -> PointClass:
        """Let two classes share one binary point."""
        first, second = self._root(first), self._root(second)
        if first is not second:
            first.low, first.high = min(first.low, second.low), max(first.high, second.high)
            first.highest = min(first.highest, second.highest)
            first.is_weight = first.is_weight and second.is_weight
            self._merged[second] = first
        return first

    def _root(self, point_class: PointClass) -> PointClass:
        while point_class in self._merged:
            point_class = self._merged[point_class]
        return point_class

    def add_kernel(self, kernel: KernelOp) -> None:
        """Join the classes that a kernel's operations keep together."""
        self._kernels.append(kernel)
        self.walk(kernel, joining=True)

    def solve(self) -> None:
        """Lower classes until every accumulator has room and every sum can be aligned."""
        refuse_missing(self.missing)
        for _ in range(64 * (len(self._classes) + 1)):
            if not any(self._lower(kernel) for kernel in self._kernels):
                return

    def walk(self, kernel: KernelOp, joining: bool = False) -> KernelPoints:
        """The kernel's steps at the present binary points (or join its classes)."""
        classes: dict[SSAValue, PointClass] = {}
        for argument, outer in kernel.outside.items():
            if not _only_bias(argument):
                classes[argument] = self.argument_class(argument, outer)
        steps, wide, point = list[Step](), False, 0
        segment: tuple[PointClass, ...] = ()
        current: SSAValue | None = None
        for op in kernel.operations:
            operands = op.inputs[:2] if has(op.operation, "product") else op.inputs
            requantise, before = None, None
            if wide and current is not None and not _takes_wide(op):
                requantise = (self.class_of(current), point)
                classes[current], wide = requantise[0], False
            narrow = [classes[v] for v in operands if not (wide and v is current)]
            sources = [
                point if wide and value is current else classes[value].fraction
                for value in operands
            ]
            result = None
            if op.operation in ALIGNING or op.operation in PRODUCTS:
                before = point if wide else None
                segment = (*segment, *narrow) if wide else tuple(narrow)
                point = self._sum_point(sources) if op.operation in ALIGNING else sum(sources)
                wide = True
            elif wide and (slope := self.slope_of(op)) is not None:
                point += slope[1]
            elif op.operation not in KEEPING:
                result = self.class_of(op.result)
                if op.operation == "softmax":
                    result.highest = min(result.highest, SOFTMAX_FRACTION)
            elif not wide:
                result = narrow[0]
                if joining:
                    result = self.join(result, self.class_of(op.result))
                if joining and op.operation in ("max", "min"):
                    result = self.join(result, narrow[1])
            if result is not None:
                classes[op.result], point = result, result.fraction
            steps.append(Step(op, sources, requantise, wide, point, segment, tuple(narrow), before))
            current = op.result
        final = self.class_of(kernel.result)
        if wide:
            return KernelPoints(steps, (final, point))
        if joining and current is not None:
            self.join(classes[current], final)
        return KernelPoints(steps, None)

    def slope_of(self, op: Operation) -> tuple[int, int] | None:
        """The factor of a leaky ReLU after a sum, if the machine has one for its slope."""
        if op.operation != "leaky_relu":
            return None
        return self.rounding.slope_of(op.number("alpha"))

    def _sum_point(self, points: list[int]) -> int:
        """Binary point of a sum of operands with these points."""
        guard = self.rounding.guard_bits
        return max(points) if guard is None else min(points) + guard

    def _lower(self, kernel: KernelOp) -> bool:
        """Lower classes that a kernel cannot do with; whether there were any."""
        walk = self.walk(kernel)
        if self._shift_lowers(kernel, walk):
            return True
        for step in walk.steps:
            if not step.wide or self.slope_of(step.op) is not None:  # the latter saturates
                continue
            if step.op.operation in ALIGNING:
                # An accumulator never shifts; and operands lie at most a word apart.
                most = min(step.points) + 31 if step.before is None else step.before
                if any([_set_highest(point_class, most) for point_class in step.brought]):  # noqa: C419
                    return True
            largest = self._largest(kernel, step.op)
            excess = step.point - floor(log2(self.limit / largest)) if largest > 0 else 0
            if excess > 0 and _drop(step, excess):
                return True
        return False

    def _shift_lowers(self, kernel: KernelOp, walk: KernelPoints) -> bool:
        """Lower a class that makes the shift from a kernel's sums to its results impossible."""
        anchor = walk.steps[0]
        limits = self.rounding.shifts.get(anchor.op.operation)
        if limits is None or walk.requantise is None:
            return False
        result, point = walk.requantise[0], anchor.point
        shift = point - result.fraction
        if shift < limits[0]:
            return _set_highest(result, point - limits[0])
        if shift <= limits[1]:
            return False
        weights = [source for source in anchor.sources if source.is_weight]
        finest = max(weights or anchor.sources, key=lambda source: source.fraction)
        return _set_highest(finest, finest.fraction - (shift - limits[1]))

    def _largest(self, kernel: KernelOp, op: Operation) -> float:
        """Magnitude of what an accumulator has to hold: its numbers, or those that masks which
        were cut leave of them; and a product's bias, which has to fit at its binary point."""
        outer = kernel.outside
        ranges = [self.range_of(outer.get(value, value), value) for value in op.inputs]
        full = [self.full_range_of(outer.get(value, value)) for value in op.inputs]
        most, result = [max(map(abs, ends)) for ends in ranges], self.full_range_of(op.result)
        if has(op.operation, "product"):
            cut = len(op.inputs) == 3 and ranges[2] != full[2]
            bias = most[2] if len(op.inputs) == 3 else 0.0
            if cut:
                return max(map(abs, self.range_of(op.result))) + bias
            return max(*map(abs, result), bias)
        if ranges == full:
            return max(map(abs, result))
        return most[0] * most[1] if op.operation == "mul" else sum(most)


def refuse_missing(names: Iterable[str]) -> None:
    """Raise one TilewrightError that names every value without a calibrated range, if any is."""
    reason, help = "no calibrated range is known", "calibrate with samples of the network's inputs"
    problems = [Problem("numbers-range", reason, name, help) for name in dict.fromkeys(names)]
    if problems:
        raise TilewrightError(problems)


def _drop(step: Step, excess: int) -> bool:
    """Take fraction bits from what an accumulator is made of: from weights first."""
    sources = list(dict.fromkeys(step.sources))
    if step.op.operation in ALIGNING:
        sources = [source for source in step.brought if source.fraction == step.point] or sources
    weights = [source for source in sources if source.is_weight]
    for source in weights:
        room = source.fraction - (source.finest - (source.bits - 1) + WEIGHT_BITS_KEPT)
        if room > 0 and _set_highest(source, source.fraction - min(room, excess)):
            return True
    others = [source for source in sources if not source.is_weight] or weights
    widest = max(others, key=lambda source: source.fraction, default=None)
    return widest is not None and _set_highest(widest, widest.fraction - excess)


def _set_highest(point_class: PointClass, fraction: int) -> bool:
    fraction = max(fraction, LOWEST)
    if fraction >= point_class.fraction:
        return False
    point_class.highest = fraction
    return True


def _takes_wide(op: Operation) -> bool:
    """Return True if an operation takes a 32-bit accumulator as it is."""
    return op.operation in ALIGNING or (
        op.operation in KEEPING and op.operation not in ("max", "min")
    )


def _only_bias(argument: SSAValue) -> bool:
    """Return True if a kernel reads an operand as a bias and in no other way."""
    uses = [(use.operation, use.index) for use in argument.uses]
    return bool(uses) and all(
        isinstance(op, Operation) and has(op.operation, "product") and index == 2
        for op, index in uses
    )


def largest_product_sum(weight: Array, bits: int = 16) -> int:
    """Largest magnitude of rows of integer weights times integers of ``bits`` bits, summed."""
    if not weight.size:
        return 0
    rows = weight.reshape(weight.shape[0], -1)
    largest, step = 0, max(_CHUNK // rows.shape[1], 1)
    for start in range(0, len(rows), step):
        magnitudes = np.abs(rows[start : start + step].astype(np.int32))
        largest = max(largest, int(magnitudes.sum(axis=1, dtype=np.int64).max()))
    return largest * 2 ** (bits - 1)

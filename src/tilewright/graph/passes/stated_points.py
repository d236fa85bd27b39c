"""Binary points that a quantised model states, for machines of fixed point.

AMD's quantisers write ``quantise_linear -> dequantise_linear`` around every tensor, with powers of
two as scales and zero points of 0. Such a pair rounds and saturates. Where the accelerator computes
the tensor at the very binary point that the scale is, its own format does both, and the pair is
taken out (``Pairs``). Everywhere else it stays, on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import frexp

import numpy as np

from tilewright.graph.dialect import KernelOp, NetworkOp, WeightOp
from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import VIEWS, Rewriter, constant, replace
from tilewright.ir import Block, SSAValue
from tilewright.ir import Operation as AnyOperation
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import FixedType, element_name, tensor_type
from tilewright.numerics.operators import has

_QUANTISE, _DEQUANTISE = "quantise_linear", "dequantise_linear"

_MOVING = (*VIEWS, "max_pool")
"""Operations that give numbers of their operands: it is the same to round before them or after."""


@dataclass
class StatedPoints:
    """The points that a model states for its tensors."""

    count: int = 0
    nodes: dict[str, int] = field(default_factory=dict[str, int])
    """Binary points by the nodes that compute the values."""
    left: list[str] = field(default_factory=list[str])
    """Reasons why pairs state no point and run on the host: one sentence each."""


def read_points(network: NetworkOp, ctx: CompilerContext) -> StatedPoints:
    """The points that pairs state. A pair after a view moves to where the tensor is computed, and
    one before an activation goes if it is the same again after it."""
    stated = StatedPoints()
    for op in list(network.block.ops):
        step = _Step.of(op, _QUANTISE)
        if step is not None and _readers(step) and not isinstance(step.inputs[0].owner, WeightOp):
            reason = _objection(step, ctx)
            if reason:
                stated.left.append(f"{step.op.node_name}: {reason}")
    # From the end, so that what has moved before a view may move on.
    for op in reversed(list(network.block.ops)):
        if isinstance(op, Operation) and (op.operation in _MOVING or _pads_with_zero(op)):
            _move_before(op, ctx)
        elif isinstance(op, Operation) and has(op.operation, "saturates"):
            _drop_before(op, ctx)
    points = _rounded_values(network, ctx)
    stated.count = len(points)
    stated.nodes = {
        value.owner.node_name: point
        for value, point in points.items()
        if isinstance(value.owner, Operation)
    }
    return stated


def _move_before(view: Operation, ctx: CompilerContext) -> None:
    """Round the operands of a view, and not its result: that comes to the same."""
    readers = [step for use in view.result.uses if (step := _Step.of(use.operation, _QUANTISE))]
    point = _common_point(view.result, ctx)
    if not readers or point is None:
        return
    like = readers[0].op
    scale, zero = (constant(value, ctx) for value in readers[0].inputs[1:])
    assert scale is not None and zero is not None
    at = Rewriter(ctx, view, like)
    for index, source in enumerate(view.inputs):
        if _has_point(source, point, ctx):
            continue
        constants = [at.weight(scale, "scale"), at.weight(zero, "zero")]
        integers = at.make("quantise_linear", source, *constants)
        view.operands[index] = at.make("dequantise_linear", integers, *constants)
    for step in readers:
        for reader in _readers(step):
            replace(reader.op, view.result)


def _pads_with_zero(op: Operation) -> bool:
    return op.operation == "pad" and op.get("value", 0.0) == 0.0


def _drop_before(step: Operation, ctx: CompilerContext) -> None:
    """A pair before an activation goes where the same stands after it: numbers that the
    format has stay what they are, and the others keep their order."""
    point = _common_point(step.result, ctx)
    quantise = _has_point(step.inputs[0], point, ctx)
    if quantise is None or point is None:
        return
    bounds = [step.get(name, 0.0) for name in ("minimum", "maximum") if name in step.properties]
    if all(float(bound * 2.0**point).is_integer() for bound in bounds):
        step.operands[0] = quantise.inputs[0]


def _has_point(value: SSAValue, point: int | None, ctx: CompilerContext) -> _Step | None:
    """Return the step that rounds a value to a binary point; None if none does."""
    before = _Step.of(value.owner, _DEQUANTISE)
    quantise = _Step.of(before.inputs[0].owner, _QUANTISE) if before is not None else None
    return quantise if quantise is not None and _point(quantise, ctx) == point else None


@dataclass(frozen=True)
class _Step:
    """An operation of the network, or the only one of a kernel on the host."""

    op: Operation
    inputs: Sequence[SSAValue]
    result: SSAValue

    @classmethod
    def of(cls, step: object, name: str) -> _Step | None:
        """Return an operation of the network as a step of that name; None for any other."""
        if isinstance(step, KernelOp) and step.on_host and len(step.operations) == 1:
            inner = step.anchor
            if inner.operation == name:
                outside = step.outside
                return cls(inner, [outside[value] for value in inner.inputs], step.result)
        elif isinstance(step, Operation) and step.operation == name:
            return cls(step, step.inputs, step.result)
        return None


def _readers(step: _Step) -> list[_Step]:
    """List the steps that dequantise the result of a step."""
    steps = (_Step.of(use.operation, _DEQUANTISE) for use in step.result.uses)
    return [reader for reader in steps if reader is not None]


def _point(step: _Step, ctx: CompilerContext) -> int | None:
    """The binary point that a step between floats and integers states; None if it states none."""
    if isinstance(step.inputs[0].owner, WeightOp) or _objection(step, ctx):
        return None
    scale = constant(step.inputs[1], ctx)
    assert scale is not None
    return 1 - frexp(float(scale.ravel()[0]))[1]


def _rounded_values(network: NetworkOp, ctx: CompilerContext) -> dict[SSAValue, int]:
    """The points to which a network rounds values, whether or not they become floats again."""
    steps = (_Step.of(op, _QUANTISE) for op in network.block.ops)
    points = {step.inputs[0]: _point(step, ctx) for step in steps if step is not None}
    return {value: point for value, point in points.items() if point is not None}


def _common_point(value: SSAValue, ctx: CompilerContext) -> int | None:
    """The point that all readers of a value state; None if one states none, or another."""
    steps = [_Step.of(use.operation, _QUANTISE) for use in value.uses]
    points = {None if step is None else _point(step, ctx) for step in steps}
    return points.pop() if len(points) == 1 else None


def _objection(step: _Step, ctx: CompilerContext) -> str | None:
    """The reason why a step and its readers state no binary point of the machine, or None."""
    bits = ctx.machine.fixed_bits
    integers = step.result if step.op.operation == _QUANTISE else step.inputs[0]
    element = element_name(tensor_type(integers).element_type)
    if element != f"int{bits}":
        return f"its integers are {element}, and the machine's int{bits}: quantise to int{bits}"
    scale, zero = (constant(value, ctx) for value in step.inputs[1:])
    if scale is None or zero is None:
        return "its scale or zero point is computed: state constants"
    if scale.size != 1:
        return "it has a scale for each channel, and a tensor has one binary point: use one scale"
    if np.any(zero):
        return f"its zero point is {int(np.ravel(zero)[0])}: quantise symmetrically, around 0"
    if frexp(float(scale.ravel()[0]))[0] != 0.5:
        return f"its scale {float(scale.ravel()[0]):g} is no power of two: round it to one"
    for reader in _readers(step):
        others = [constant(value, ctx) for value in reader.inputs[1:]]
        if any(
            other is None or not np.array_equal(np.ravel(other), np.ravel(written))
            for other, written in zip(others, (scale, zero), strict=True)
        ):
            return "it is read with another scale than it is written with"
    return None


@dataclass(frozen=True)
class Pair:
    """A tensor that is rounded and saturated to a binary point."""

    source: SSAValue
    result: SSAValue
    """The rounded tensor, in float32."""
    point: int


def _pairs(network: NetworkOp, ctx: CompilerContext) -> list[Pair]:
    pairs: list[Pair] = []
    for op in network.block.ops:
        step = _Step.of(op, _QUANTISE)
        point = _point(step, ctx) if step is not None else None
        if step is not None and point is not None:
            pairs += [Pair(step.inputs[0], reader.result, point) for reader in _readers(step)]
    return pairs


class Pairs:
    """The pairs of a network of kernels; some are taken out of it."""

    def __init__(self, network: NetworkOp, ctx: CompilerContext) -> None:
        self.network = network
        self.by_result = {pair.result: pair for pair in _pairs(network, ctx)}
        self.stated = {pair.result: pair.point for pair in self.by_result.values()}
        """The points of values that have to have them, or are read by pairs alone."""
        for source in _rounded_values(network, ctx):
            point = _common_point(source, ctx)
            if point is not None:
                self.stated[source] = point
        self._alone = set(self.stated) - set(self.by_result)
        for op in network.block.ops:
            point = self._point_after(op, ctx)
            if point is not None:
                self.stated.setdefault(op.results[0], point)
        self._kept: set[Pair] = set()
        self._taken: dict[SSAValue, tuple[Pair, list[tuple[AnyOperation, int]]]] = {}

    def _point_after(self, op: AnyOperation, ctx: CompilerContext) -> int | None:
        """The point of a result that has its operands', or is read from integers."""
        if isinstance(op, Operation) and op.operation in VIEWS:
            viewed = {self.stated.get(value) for value in op.inputs}
            return viewed.pop() if len(viewed) == 1 else None
        padded = _Step.of(op, "pad")
        if padded is not None and _pads_with_zero(padded.op):
            return self.stated.get(padded.inputs[0])
        widened = _Step.of(op, _DEQUANTISE)
        return _point(widened, ctx) if widened is not None else None

    def take_out(self) -> None:
        """Let the readers of pairs read what the accelerator computes for pairs alone."""
        accelerated: set[SSAValue] = set()
        for op in self.network.block.ops:
            if isinstance(op, KernelOp) and not op.on_host:
                accelerated.add(op.result)
            elif isinstance(op, KernelOp):
                pair = self.by_result.get(op.result)
                if pair is None or pair in self._kept:
                    continue
                if pair.source in accelerated & self._alone:
                    uses = [(use.operation, use.index) for use in pair.result.uses]
                    self._taken[pair.result] = pair, uses
                    pair.result.replace_all_uses_with(pair.source)
            elif (
                isinstance(op, Operation)
                and op.operation in VIEWS
                and any(value in accelerated for value in op.inputs)
            ):
                accelerated.add(op.result)

    def put_back(self, point_of: Callable[[SSAValue], int]) -> bool:
        """Put pairs back, and keep those whose tensors have another point now; whether any do."""
        wrong = {p for p, _ in self._taken.values() if point_of(p.source) != p.point}
        if wrong:
            self._kept |= wrong
            for result, (_, uses) in self._taken.items():
                for op, index in uses:
                    op.operands[index] = result
            self._taken.clear()
        return bool(wrong)

    def rounded(self, value: SSAValue, point: int) -> SSAValue:
        """The network's input of which a value is the rounded one, if the point is the same:
        quantised at once. (Of what is no number, a pair makes another integer.)"""
        pair = self.by_result.get(value)
        if pair is None or pair.point != point or not isinstance(pair.source.owner, Block):
            return value
        return pair.source


def other_points(network: NetworkOp, stated: Mapping[str, int]) -> list[str]:
    """Results whose binary points are not those that the model states, each with what would help.

    ``network`` is one of fixed point, ``stated`` has the points of nodes' results.
    """
    notes: list[str] = []
    for op in network.block.ops:
        if not isinstance(op, KernelOp) or op.on_host:
            continue
        name, element = op.operations[-1].node_name, tensor_type(op.result).element_type
        wanted = stated.get(name)
        if wanted is None or not isinstance(element, FixedType):
            continue
        point = element.fraction.data
        if point != wanted:
            notes.append(
                f"{name} states binary point {wanted} and is computed with {point}, which the "
                "shifts of the machine, or tensors that share it (concat, pools), ask for; the "
                f"host rounds it: quantise it at {point}"
            )
    return notes

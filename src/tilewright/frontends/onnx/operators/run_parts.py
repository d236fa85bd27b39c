"""Parts whose place only a run knows, and whose size follows from how their ends are computed."""

from __future__ import annotations

import math

import numpy as np

from tilewright.frontends.moves import stretch
from tilewright.frontends.onnx.limits import MAX_DIMENSIONS
from tilewright.frontends.onnx.lowering import Lowering, dtype_of
from tilewright.frontends.steps import kept
from tilewright.graph.dialect import WeightOp
from tilewright.graph.operations import Operation
from tilewright.graph.operations.written import PartOp
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of

Term = tuple[tuple[SSAValue, int] | None, int]
"""An integer as an element of a tensor of the network, None for 0, plus a number."""

_DEPTH = 32
"""Operations that are followed backwards."""


def slice_of_run(at: Lowering) -> SSAValue | None:
    """The result of a Slice whose starts are computed at run time; None if its size is not known.

    Its elements are gathered: a part that would reach beyond the operand ends in repetitions of
    the last element, where ONNX would give fewer elements. Checks know that (``PartOp``).
    """
    if at.version < 10 or (at.constant(1) is not None and at.constant(2) is not None):
        return None
    starts, ends = (_terms(at, at.tensor(index), _DEPTH) for index in (1, 2))
    if starts is None or ends is None or len(starts) != len(ends):
        return None
    axes = at.integers_at(3, "axes") or tuple(range(len(starts)))
    steps = at.integers_at(4, "steps") or (1,) * len(starts)
    if not len(starts) == len(axes) == len(steps) or not all(steps):
        return None
    value, sizes = at.tensor(0), at.shape(0)
    for number, (start, end, axis, step) in enumerate(zip(starts, ends, axes, steps, strict=True)):
        axis = at.axis(axis, len(sizes))
        span = end[1] - start[1]
        if start[0] is None and end[0] is None:
            count = len(range(*slice(start[1], end[1], step).indices(sizes[axis])))
        elif start[0] == end[0]:
            count = len(range(0, span, step))
        else:
            return None
        if not 1 <= count <= sizes[axis]:
            return None
        if start[0] is None:
            first, _, by = slice(start[1], end[1], step).indices(sizes[axis])
            places = at.weight(np.arange(first, first + count * by, by), f"{at.node.name}.places")
            value = at.emit("gather", value, places, axis=axis)
            continue
        value = _part(at, value, number_at(at, at.tensor(1), number), axis, span, step)
    return value


def number_at(at: Lowering, value: SSAValue, number: int) -> SSAValue:
    """One of a list of integers, [1], as int64."""
    numbers = at.reshape(at.cast(value, np.int64), (math.prod(shape_of(value)),))
    return stretch(at, numbers, 0, number, number + 1)


def numbers_at(at: Lowering, value: SSAValue) -> list[Term] | None:
    """The elements of a short list of integers; None for any other tensor."""
    return _terms(at, value, _DEPTH)


def _part(at: Lowering, x: SSAValue, start: SSAValue, axis: int, span: int, step: int) -> SSAValue:
    """The elements along an axis from a computed start to ``span`` after it."""

    def gathered() -> SSAValue:
        ramp = at.weight(np.arange(0, span, step), f"{at.node.name}.ramp")
        return at.emit("gather", x, at.emit("add", start, ramp), axis=axis)

    return kept(at, PartOp, gathered, lambda: [x, start], axis=axis, span=span, step=step)


def _terms(at: Lowering, value: SSAValue, depth: int) -> list[Term] | None:
    """The elements of a short list of integers; None for any other tensor."""
    shape, owner = shape_of(value), value.owner
    count = math.prod(shape)
    if len(shape) > 1 or count > MAX_DIMENSIONS or dtype_of(value).kind not in "iu":
        return None
    if isinstance(owner, WeightOp) and owner.symbol.data in at.network.weights:
        array = at.network.weights.get(owner.symbol.data)
        return [(None, int(number)) for number in array.reshape(-1)]
    if isinstance(owner, Operation) and depth:
        inner = [_terms(at, operand, depth - 1) for operand in owner.inputs]
        known = [terms for terms in inner if terms is not None]
        if len(known) == len(inner):
            terms = _combined(owner, known)
            if terms is not None and len(terms) == count:
                return terms
    return [((value, index), 0) for index in range(count)]


def _combined(owner: Operation, inner: list[list[Term]]) -> list[Term] | None:
    """The elements of an operation's result, where it moves integers or adds known ones."""
    match owner.operation:
        case "reshape" | "cast":
            return inner[0]
        case "concat":
            return [term for terms in inner for term in terms]
        case "add" | "sub":
            left, right = inner
            count = max(len(left), len(right))
            if {len(left), len(right)} - {1, count}:
                return None
            pairs = zip(left * (count // len(left)), right * (count // len(right)), strict=True)
            return _sums(list(pairs), 1 if owner.operation == "add" else -1)
        case _:
            return None


def _sums(pairs: list[tuple[Term, Term]], sign: int) -> list[Term] | None:
    terms: list[Term] = []
    for (root, a), (other, b) in pairs:
        if other is None:
            terms.append((root, a + sign * b))
        elif root is None and sign > 0:
            terms.append((other, a + b))
        else:
            return None
    return terms

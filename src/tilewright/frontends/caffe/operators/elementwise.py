"""Maps of each element, of elements of several bottoms, and of bottoms with factors or summands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tilewright.frontends.caffe.lowering import Lowering, Rule, of_one
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of

LARGEST_POWER = 8
"""Whole powers up to this one are products."""


def unary(operation: str) -> Rule:
    """The rule of a layer that is one operation of one operand."""
    return of_one(lambda at: at.emit(operation, at.x))


def relu(at: Lowering) -> SSAValue:
    """max(x, 0), plus negative_slope * min(x, 0)."""
    slope = at.number(at.settings("relu_param"), "negative_slope")
    return at.emit("leaky_relu", at.x, alpha=slope) if slope else at.emit("relu", at.x)


def prelu(at: Lowering) -> SSAValue:
    """max(x, 0) plus a slope per channel, or one for all, times min(x, 0)."""
    if len(at.shape) < 2:
        raise at.misfit(f"its bottom of shape {list(at.shape)} has no channels")
    channels = at.shape[1]
    if at.settings("prelu_param").channel_shared:
        # Caffe keeps a shared slope as a blob without axes.
        slope = at.parameter((), "slope", drawn=(1,))
    else:
        drawn = (channels,) + (1,) * (len(at.shape) - 2)
        slope = at.parameter((channels,), "slope", drawn=drawn)
    return at.emit("prelu", at.x, slope)


def elu(at: Lowering) -> SSAValue:
    """x where it is positive, alpha * (exp(x) - 1) elsewhere."""
    return at.emit("elu", at.x, alpha=at.number(at.settings("elu_param"), "alpha"))


def power(at: Lowering) -> SSAValue:
    """(shift + scale * x) ** power."""
    settings = at.settings("power_param")
    exponent, scale, shift = (at.number(settings, name) for name in ("power", "scale", "shift"))
    if exponent == 0 or scale == 0:
        # Caffe writes the same number everywhere, whatever x holds.
        try:
            value = float(shift**exponent) if exponent else 1.0
            at.check_number(value)
        except (OverflowError, ZeroDivisionError, TypeError) as error:
            raise at.refuse(f"{shift} to the power of {exponent} is not a number") from error
        return at.emit("clip", at.x, minimum=value, maximum=value)
    base = _affine(at, at.x, scale, shift)
    if exponent == 1:
        return base
    if exponent == int(exponent) and 2 <= exponent <= LARGEST_POWER:
        result = base
        for _ in range(int(exponent) - 1):
            result = at.emit("mul", result, base)
        return result
    return at.emit("pow", base, at.constant(exponent, "exponent"))


def exp(at: Lowering) -> SSAValue:
    """base ** (shift + scale * x); the base is e if it is -1."""
    settings = at.settings("exp_param")
    scale, shift = at.number(settings, "scale"), at.number(settings, "shift")
    rate = _log_of_base(at, settings)
    return at.emit("exp", _affine(at, at.x, scale * rate, shift * rate))


def log(at: Lowering) -> SSAValue:
    """The logarithm of shift + scale * x to a base; the base is e if it is -1."""
    settings = at.settings("log_param")
    rate = _log_of_base(at, settings)
    if rate == 0:
        raise at.refuse("there is no logarithm to the base 1")
    inner = _affine(at, at.x, at.number(settings, "scale"), at.number(settings, "shift"))
    return _affine(at, at.emit("log", inner), 1 / rate, 0.0)


def _log_of_base(at: Lowering, settings: Any) -> float:
    base = at.number(settings, "base")
    if base == -1:
        return 1.0
    if base <= 0:
        raise at.refuse(f"base {base} is neither positive nor -1")
    return math.log(base)


def _affine(at: Lowering, value: SSAValue, scale: float, shift: float) -> SSAValue:
    """scale * value + shift, without what does nothing."""
    if scale != 1:
        value = at.emit("mul", value, at.constant(scale, "scale"))
    return at.emit("add", value, at.constant(shift, "shift")) if shift else value


def eltwise(at: Lowering) -> Sequence[SSAValue]:
    """The product, the largest, or the sum (with a coefficient each) of all bottoms' elements."""
    if len(at.values) < 2 or len(at.layer.tops) != 1:
        raise at.refuse("it takes two bottoms or more and one top")
    for left, right in pairwise(at.values):
        if shape_of(left) != shape_of(right):
            raise at.misfit(
                f"its bottoms have shapes {list(shape_of(left))} and {list(shape_of(right))}"
            )
    settings = at.settings("eltwise_param")
    operation = settings.EltwiseOp.Name(settings.operation)
    coefficients = [float(value) for value in settings.coeff]
    if coefficients and operation != "SUM":
        raise at.refuse(f"coefficients go with SUM, not with {operation}")
    if operation == "SUM":
        return [_weighted_sum(at, coefficients or [1.0] * len(at.values))]
    result = at.x
    for value in at.values[1:]:
        result = at.emit("mul" if operation == "PROD" else "max", result, value)
    return [result]


def _weighted_sum(at: Lowering, coefficients: Sequence[float]) -> SSAValue:
    if len(coefficients) != len(at.values):
        raise at.refuse(f"{len(coefficients)} coefficients for {len(at.values)} bottoms")
    if not all(map(math.isfinite, coefficients)):
        raise at.refuse("a coefficient is not a finite number")
    result: SSAValue | None = None
    for value, coefficient in zip(at.values, coefficients, strict=True):
        if result is not None and coefficient == -1:
            result = at.emit("sub", result, value)
            continue
        term = _affine(at, value, coefficient, 0.0)
        result = term if result is None else at.emit("add", result, term)
    assert result is not None
    return result


def scale(at: Lowering) -> Sequence[SSAValue]:
    """x times a parameter or a second bottom, plus a bias if ``bias_term`` is set."""
    settings = at.settings("scale_param")
    factor, reached, drawn = _operand(at, settings, "scale")
    result = at.emit("mul", at.x, factor)
    if settings.bias_term:
        result = at.emit("add", result, at.parameter(reached, "bias", drawn=drawn))
    return [result]


def bias(at: Lowering) -> Sequence[SSAValue]:
    """x plus a parameter or a second bottom."""
    return [at.emit("add", at.x, _operand(at, at.settings("bias_param"), "bias")[0])]


def _operand(
    at: Lowering, settings: Any, kind: str
) -> tuple[SSAValue, tuple[int, ...], tuple[int, ...]]:
    """The second operand shaped to broadcast, the axes it covers, and its shape for broadcasting.

    A parameter covers ``num_axes`` axes from ``axis`` on (all if -1); a bottom as many as it has.
    """
    if len(at.values) not in (1, 2) or len(at.layer.tops) != 1:
        raise at.refuse("it takes one or two bottoms and one top")
    rank = len(at.shape)
    covered = len(shape_of(at.values[1])) if len(at.values) == 2 else int(settings.num_axes)
    if covered < -1:
        raise at.refuse(f"num_axes {covered} is less than -1")
    axis = 0 if covered == 0 else at.axis(settings.axis, rank)
    end = rank if covered == -1 else axis + covered
    if end > rank:
        raise at.refuse(f"{covered} axes from axis {axis} on leave a blob of rank {rank}")
    reached = at.shape[axis:end]
    drawn = reached + (1,) * (rank - end)
    if len(at.values) == 1:
        return at.parameter(reached, kind, drawn=drawn), reached, drawn
    if shape_of(at.values[1]) != reached:
        raise at.misfit(
            f"its second bottom has shape {list(shape_of(at.values[1]))}, where {list(reached)} "
            "is covered"
        )
    return at.reshape(at.values[1], drawn), reached, drawn

"""Activations and arithmetic, element by element."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from tilewright.frontends.onnx.lowering import Lowering, Value
from tilewright.frontends.onnx.tensors import Constant, type_name
from tilewright.ir import SSAValue
from tilewright.types import shape_of

Map = Callable[[Lowering], SSAValue]

LARGEST = float(np.finfo(np.float32).max)
"""Stands for "no bound"."""


def unary(operation: str) -> Map:
    """The rule of an operator of one operand and no attributes."""

    def rule(at: Lowering) -> SSAValue:
        return at.emit(operation, at.tensor(0))

    return rule


def leaky_relu(at: Lowering) -> Value:
    """x, or alpha * x below zero."""
    return at.emit("leaky_relu", at.tensor(0), alpha=at.number("alpha", 0.01))


def elu(at: Lowering) -> Value:
    """x, or alpha * (exp(x) - 1) below zero."""
    return at.emit("elu", at.tensor(0), alpha=at.number("alpha", 1.0))


def hard_sigmoid(at: Lowering) -> Value:
    """alpha * x + beta, kept in [0, 1]."""
    alpha, beta = at.number("alpha", 0.2), at.number("beta", 0.5)
    return at.emit("hard_sigmoid", at.tensor(0), alpha=alpha, beta=beta)


def prelu(at: Lowering) -> Value:
    """x, or slope * x below zero; the slope broadcasts to x."""
    shape, slope = at.shape(0), at.shape(1)
    if len(slope) > len(shape) or any(
        have not in (1, want) for have, want in zip(slope[::-1], shape[::-1], strict=False)
    ):
        raise at.refuse(
            f"the slope {list(slope)} does not broadcast to {list(shape)}", code="onnx-shape"
        )
    return at.emit("prelu", at.tensor(0), at.tensor(1))


def clip(at: Lowering) -> Value:
    """x within bounds: attributes before operator set 11, operands since."""
    if at.version < 11:
        bounds = [at.attributes.get("min"), at.attributes.get("max")]
    else:
        if any(at.has(index) and at.constant(index) is None for index in (1, 2)):
            return _clip_by_tensors(at)
        bounds = [at.scalar_at(1, "minimum"), at.scalar_at(2, "maximum")]
    low, high = (bound if isinstance(bound, (int, float)) else None for bound in bounds)
    return _clipped(at, at.tensor(0), low, high)


def _clipped(at: Lowering, x: SSAValue, low: float | None, high: float | None) -> SSAValue:
    """x within bounds that are known, or x if they bound nothing."""
    if low != low or high != high:
        raise at.refuse("a bound is not a number")
    low = None if low is None or low <= -LARGEST else low
    high = None if high is None or high >= LARGEST else high
    if high is None:
        if low is None:
            return x
        return at.emit("relu", x) if low == 0 else at.emit("clip", x, minimum=_finite(low))
    if low is None:
        return at.emit("clip", x, maximum=_finite(high))
    # Where the bounds cross, ONNX gives the upper one.
    return at.emit("clip", x, minimum=_finite(min(low, high)), maximum=_finite(high))


def _finite(bound: float) -> float:
    """A bound as an attribute, which holds finite numbers."""
    return float(min(max(bound, -LARGEST), LARGEST))


def _clip_by_tensors(at: Lowering) -> SSAValue:
    """Bounds that are computed at run time."""
    x = at.tensor(0)
    for index, operation in ((1, "max"), (2, "min")):
        if at.has(index):
            x = at.emit(operation, x, at.tensor(index))
    return x


def binary(operation: str) -> Map:
    """The rule of an operator of two operands that broadcast."""

    def rule(at: Lowering) -> SSAValue:
        return at.emit(operation, at.tensor(0), at.tensor(1))

    return rule


def variadic(operation: str) -> Map:
    """The rule of an operator that joins any number of operands, two at a time."""

    def rule(at: Lowering) -> SSAValue:
        result = at.tensor(0)
        for index in range(1, len(at.operands)):
            result = at.emit(operation, result, at.tensor(index))
        return result

    return rule


def extremum(operation: str) -> Map:
    """Max or Min; against one number it is a clip, as exporters write ReLU6."""

    def rule(at: Lowering) -> SSAValue:
        constants = [v for v in at.operands if isinstance(v, Constant)]
        tensors = [v for v in at.operands if isinstance(v, SSAValue)]
        if len(constants) == len(tensors) == 1 and constants[0].array.size == 1:
            fits = constants[0].array.ndim <= len(shape_of(tensors[0]))
            bound = constants[0].array
            if fits and bound.dtype == np.float32:
                number = float(bound.reshape(-1)[0])
                if operation == "max":
                    return _clipped(at, tensors[0], number, None)
                return _clipped(at, tensors[0], None, number)
        return variadic(operation)(at)

    return rule


def mean(at: Lowering) -> Value:
    """The mean of any number of operands."""
    total = variadic("add")(at)
    if len(at.operands) == 1:
        return total
    share = np.array(1 / len(at.operands), np.float32)
    return at.emit("mul", total, at.weight(share, f"{at.node.name}.share"))


def identity(at: Lowering) -> Value:
    """The operand itself."""
    return at.operand(0)


def dropout(at: Lowering) -> Value:
    """The operand itself: nothing is dropped at inference."""
    training = at.operands[2] if len(at.operands) > 2 else None
    if training is not None and (not isinstance(training, Constant) or training.array.any()):
        raise at.refuse("it is in training mode", help="export the model for inference")
    return at.operand(0)


def cast(at: Lowering) -> Value:
    """Casts from float32 to float32 vanish; no other is computed at run time."""
    kind = at.integer("to")
    if kind != TensorProto.FLOAT:
        raise at.refuse(
            f"a cast of float32 to {type_name(kind)} is not computed at run time",
            code="onnx-dtype",
        )
    return at.operand(0)

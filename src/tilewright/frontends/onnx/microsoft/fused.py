"""Products with what follows them, and the functions of transformers."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.frontends.onnx.lowering import Lowering, Value
from tilewright.frontends.onnx.operators import convolution, elementwise, matrix
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of

_PARAMETERS = {
    "": (),
    "Relu": (),
    "Tanh": (),
    "Sigmoid": (),
    "LeakyRelu": (0.01,),
    "HardSigmoid": (0.2, 0.5),
    "Clip": (float("-inf"), float("inf")),
}
"""Activations that are fused, with their parameters' defaults."""


def activated(at: Lowering, value: SSAValue, parameters: Sequence[float]) -> SSAValue:
    """The attribute ``activation`` with its parameters."""
    name = at.text("activation")
    if name not in _PARAMETERS:
        raise at.refuse(f"the activation {name!r} is not fused")
    numbers = [*parameters, *_PARAMETERS[name][len(parameters) :]]
    match name:
        case "":
            return value
        case "LeakyRelu":
            return at.emit("leaky_relu", value, alpha=numbers[0])
        case "HardSigmoid":
            return at.emit("hard_sigmoid", value, alpha=numbers[0], beta=numbers[1])
        case "Clip":
            bounds = dict(zip(("minimum", "maximum"), numbers, strict=False))
            kept = {key: bound for key, bound in bounds.items() if abs(bound) != float("inf")}
            return at.emit("clip", value, **kept)
        case _:
            return at.emit(name.lower(), value)


def _numbers(at: Lowering, *names: str) -> list[float]:
    numbers: list[float] = []
    for name in names:
        value = at.attributes.get(name, ())
        numbers += [float(item) for item in value] if isinstance(value, tuple) else []
    return numbers


def conv(at: Lowering) -> Value:
    """activation(convolution + bias + a residual)."""
    value = convolution.conv(at.like(at.operands[:3]))
    if at.has(3):
        value = at.emit("add", value, at.tensor(3))
    return activated(at, value, _numbers(at, "activation_params"))


def gemm(at: Lowering) -> Value:
    """activation(alpha * a @ b + beta * c)."""
    names = ("activation_alpha", "activation_beta")
    return activated(at, matrix.gemm(at), [at.number(n) for n in names if n in at.attributes])


def matmul(at: Lowering) -> Value:
    """alpha * a @ b, each perhaps transposed.

    ``transBatchA`` and ``transBatchB`` put an operand's first axis before its last.
    """
    operands: list[SSAValue] = []
    for index, name in enumerate("AB"):
        value, rank = at.tensor(index), len(at.shape(index))
        if at.integer(f"transBatch{name}"):
            if rank < 3:
                raise at.misfit(f"its input {index} has no batch to transpose")
            value = at.transpose(value, (*range(1, rank - 1), 0, rank - 1))
        if at.integer(f"trans{name}") and rank > 1:
            value = at.transpose(value, (*range(rank - 2), rank - 1, rank - 2))
        operands.append(value)
    result = matrix.matmul(at.like(operands))
    alpha = at.number("alpha", 1.0)
    return result if alpha == 1 else at.apply("mul", result, alpha)


def bias_gelu(at: Lowering) -> Value:
    """GELU of the sum of two tensors."""
    return at.emit("gelu", at.emit("add", at.tensor(0), at.tensor(1)))


def fast_gelu(at: Lowering) -> Value:
    """GELU by tanh, of x and a bias."""
    x = at.emit("add", at.tensor(0), at.tensor(1)) if at.has(1) else at.tensor(0)
    return elementwise.gelu_by_tanh(at, x)


def quick_gelu(at: Lowering) -> Value:
    """x * sigmoid(alpha * x)."""
    x = at.tensor(0)
    scaled = at.apply("mul", x, at.number("alpha", 1.702))
    return at.emit("mul", x, at.emit("sigmoid", scaled))


def bias_softmax(at: Lowering) -> Value:
    """Softmax over the axes from ``axis`` on of x and a bias, which broadcasts."""
    x, shape = at.tensor(0), at.shape(0)
    axis = at.axis(at.integer("axis", 1), len(shape))
    if axis != len(shape) - 1:
        raise at.refuse("its softmax is over more than the last axis")
    total = at.emit("add", x, at.tensor(1))
    if shape_of(total) != shape:
        raise at.misfit("its bias widens it")
    return at.emit("softmax", total, axis=axis)

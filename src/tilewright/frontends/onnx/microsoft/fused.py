"""Products and normalisations with what is before and after them; functions of transformers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.frontends.onnx.lowering import Lowering, Value
from tilewright.frontends.onnx.operators import convolution, elementwise, matrix
from tilewright.frontends.onnx.operators.normalisation import centred, root_of_squares
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


def simplified(at: Lowering) -> Sequence[Value]:
    """x over the root of the mean of its squares, times a scale."""
    rank = len(at.shape(0))
    axis = at.axis(at.integer("axis", -1), rank)
    y, inverse = _root(at, at.tensor(0), range(axis, rank), at.number("epsilon", 1e-5))
    return [at.emit("mul", y, at.tensor(1)), inverse][: len(at.node.outputs)]


def skip_layer(at: Lowering) -> Sequence[Value]:
    """Layer normalisation of x + skip + bias: operands x, skip, gamma, beta, bias."""
    total = _sum(at, 4)
    axes = (len(shape_of(total)) - 1,)
    y, mean, inverse = centred(at, total, axes, at.number("epsilon", 1e-12))
    y = at.emit("mul", y, at.tensor(2))
    y = at.emit("add", y, at.tensor(3)) if at.has(3) else y
    return [y, mean, inverse, total][: len(at.node.outputs)]


def skip_simplified(at: Lowering) -> Sequence[Value]:
    """Skip connection and division by the root of the mean of squares: operands x, skip, gamma,
    bias."""
    total = _sum(at, 3)
    axes = (len(shape_of(total)) - 1,)
    y, inverse = _root(at, total, axes, at.number("epsilon", 1e-12))
    y = at.emit("mul", y, at.tensor(2))
    return [y, inverse, inverse, total][: len(at.node.outputs)]


def _sum(at: Lowering, bias: int) -> SSAValue:
    x, skip = at.tensor(0), at.tensor(1)
    if len(at.shape(1)) < len(at.shape(0)):
        skip = at.reshape(skip, (1,) * (len(at.shape(0)) - len(at.shape(1))) + at.shape(1))
    total = at.emit("add", x, skip)
    total = at.emit("add", total, at.tensor(bias)) if at.has(bias) else total
    if shape_of(total) != at.shape(0):
        raise at.misfit("its skip or bias widens it")
    return total


def _root(
    at: Lowering, x: SSAValue, axes: Sequence[int], epsilon: float
) -> tuple[SSAValue, SSAValue]:
    root = root_of_squares(at, x, axes, epsilon)
    numerator = at.weight(np.ones((), np.float32), f"{at.node.name}.one")
    return at.emit("div", x, root), at.emit("div", numerator, root)


def embed_layer(at: Lowering) -> Sequence[Value]:
    """Word, position and segment embeddings, added and normalised.

    Operands: tokens [b, s], segments, the three tables (words, positions, segments), gamma, beta,
    a mask [b, s], positions. Results: embeddings [b, s, h], the number of ones of each row of the
    mask, and the sum before normalisation.
    """
    shape = at.shape(0)
    if len(shape) != 2:
        raise at.misfit(f"its tokens have shape {list(shape)}, not rank 2")
    batch, length = shape

    def rows(table: int, index: SSAValue) -> SSAValue:
        return at.emit("gather", at.tensor(table), at.cast(index, np.int64), axis=0)

    total = rows(2, at.tensor(0))
    if at.has(8):
        positions = at.tensor(8)
    else:
        positions = at.weight(np.arange(length)[None], f"{at.node.name}.positions")
    total = at.emit("add", total, rows(3, positions))
    if at.has(1) != at.has(4):
        raise at.refuse("it has segments without a table of them, or the other way round")
    if at.has(1):
        total = at.emit("add", total, rows(4, at.tensor(1)))
    y, _, _ = centred(at, total, (2,), at.number("epsilon", 1e-12))
    y = at.emit("add", at.emit("mul", y, at.tensor(5)), at.tensor(6))
    if at.has(7):
        mask = at.cast(at.tensor(7), np.int32)
        count = at.emit("reduce_sum", mask, axes=(1,), keep_dims=False)
    else:
        count = at.weight(np.zeros(batch, np.int32), f"{at.node.name}.mask")
    return [y, count, total][: len(at.node.outputs)]

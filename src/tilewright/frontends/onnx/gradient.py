"""Gradient of ONNX's training preview, by reverse accumulation through the network's operations.

Of a tensor it is the gradient of the sum. Operations without a rule are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tilewright.frontends.limits import shown
from tilewright.frontends.onnx.control import Call
from tilewright.frontends.onnx.lowering import Lowering, dtype_of
from tilewright.frontends.onnx.sequences import Item
from tilewright.graph.operation import Operation
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of

Back = Callable[[Lowering, Operation, SSAValue], Sequence[SSAValue]]
"""Function of an operation and its result's gradient that gives the gradients of its operands."""


def _product(at: Lowering, op: Operation, g: SSAValue) -> Sequence[SSAValue]:
    if (
        any(op.values.values())
        or len(op.inputs) != 2
        or any(len(shape_of(value)) != 2 for value in op.inputs)
    ):
        raise at.refuse("gradients of products are those of two matrices")
    x, y = op.inputs
    return (
        at.emit("matmul", g, at.transpose(y, (1, 0))),
        at.emit("matmul", at.transpose(x, (1, 0)), g),
    )


def _quotient(at: Lowering, op: Operation, g: SSAValue) -> Sequence[SSAValue]:
    part = at.emit("div", g, op.inputs[1])
    return part, at.emit("neg", at.emit("mul", part, op.result))


def _rest(at: Lowering, value: SSAValue) -> SSAValue:
    """The number 1 less a value."""
    return at.emit("sub", at.made(1, value), value)


_BACK: Mapping[str, Back] = {
    "add": lambda at, op, g: (g, g),
    "sub": lambda at, op, g: (g, at.emit("neg", g)),
    "mul": lambda at, op, g: (at.emit("mul", g, op.inputs[1]), at.emit("mul", g, op.inputs[0])),
    "div": _quotient,
    "matmul": _product,
    "neg": lambda at, op, g: (at.emit("neg", g),),
    "exp": lambda at, op, g: (at.emit("mul", g, op.result),),
    "log": lambda at, op, g: (at.emit("div", g, op.inputs[0]),),
    "relu": lambda at, op, g: (
        at.apply("select", at.emit("less", at.made(0, g), op.inputs[0]), g, at.made(0, g)),
    ),
    "tanh": lambda at, op, g: (at.emit("mul", g, _rest(at, at.emit("mul", op.result, op.result))),),
    "sigmoid": lambda at, op, g: (
        at.emit("mul", g, at.emit("mul", op.result, _rest(at, op.result))),
    ),
}


def gradient(call: Call) -> Sequence[Item] | None:
    """The gradients of ``y`` by each of ``xs``, which are also the node's inputs."""
    at, names, goal = call.at, call.attributes.get("xs", ()), call.attributes.get("y", "")
    if not isinstance(names, tuple) or not isinstance(goal, str) or "zs" in call.attributes:
        raise at.refuse("its xs are no list, its y is no name, or it has zs")
    found = [call.body.value(str(name), call.scope) for name in (*names, goal)]
    values = [value for value in found if isinstance(value, SSAValue)]
    if len(values) < len(found) or list(call.operands) != found[:-1]:
        raise at.refuse(f"{shown(goal)}, or what it depends on, is not computed in the same graph")
    xs, y = values[:-1], values[-1]
    steps = [op for op in call.body.network.block.ops if isinstance(op, Operation)]
    depends = set(xs)
    for op in steps:
        if not depends.isdisjoint(op.inputs):
            depends.add(op.result)
    changes = {y: at.weight(np.ones(shape_of(y), dtype_of(y)), f"{at.node.name}.one")}
    for op in reversed(steps):
        if op.result not in changes or op.result in xs or op.result not in depends:
            continue
        back = _BACK.get(op.operation)
        if back is None:
            raise at.refuse(f"the gradient of {op.operation} is not known")
        for value, part in zip(op.inputs, back(at, op, changes[op.result]), strict=True):
            if value in depends:
                part = _narrowed(at, part, shape_of(value))
                known = changes.get(value)
                changes[value] = part if known is None else at.emit("add", known, part)
    zeros = [at.weight(np.zeros(shape_of(x), dtype_of(x)), f"{at.node.name}.none") for x in xs]
    return [changes.get(x, zero) for x, zero in zip(xs, zeros, strict=True)]


def _narrowed(at: Lowering, value: SSAValue, shape: tuple[int, ...]) -> SSAValue:
    """The sum over axes along which an operand of this shape was repeated."""
    wide = shape_of(value)
    padded = (1,) * (len(wide) - len(shape)) + shape
    axes = tuple(i for i, (a, b) in enumerate(zip(wide, padded, strict=True)) if a != b)
    if axes:
        value = at.emit("reduce_sum", value, axes=axes, keep_dims=True)
    return at.reshape(value, shape)

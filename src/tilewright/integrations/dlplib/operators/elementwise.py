"""Activations, vector sums, differences and products, and softmax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tilewright.errors import refuse
from tilewright.integrations.dlplib.descriptors import TensorDescriptor
from tilewright.integrations.dlplib.handle import Handle, Operand, Ran
from tilewright.integrations.dlplib.network import OperatorNetwork
from tilewright.integrations.dlplib.numeric import NumericType, fixed16
from tilewright.integrations.dlplib.operators.convolution import activated
from tilewright.integrations.dlplib.operators.settings import ActivationDescriptor
from tilewright.ir import SSAValue

VectorOperation = Literal["add", "sub", "mul"]


def activation_forward(
    handle: Handle, activation: ActivationDescriptor, x: Operand, y: Operand
) -> Ran:
    """y = relu, sigmoid or tanh of x."""
    mode = activation.get()

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        return {"y": activated(net, net.values["x"], mode, y.descriptor.get().type)}

    return handle.run("activation_forward", mode, {"x": x}, {"y": y}, draw)


def activation_backward(
    handle: Handle, activation: ActivationDescriptor, y: Operand, dy: Operand, dx: Operand
) -> Ran:
    """dx from dy and the results y: dy where y > 0; dy*y*(1 - y); dy*(1 - y*y)."""
    mode = activation.get()
    result = dx.descriptor.get().type
    # In comparisons the binary point does not count.
    results = read_as(y, fixed16(0)) if mode == "relu" else y

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        value, gradient = net.values["y"], net.values["dy"]
        if mode == "relu":
            slope = _positive(net, value)
        else:
            square = net.to(net.emit("mul", value, value), fixed16(14))
            # A sigmoid's slope is at most a quarter, a tanh's at most 1.
            first = value if mode == "sigmoid" else net.number(1.0, value, fixed16(14))
            slope = net.sum("sub", first, square)
            slope = net.to(slope, fixed16(16 if mode == "sigmoid" else 14))
        return {"dx": net.to(net.emit("mul", gradient, slope), result)}

    return handle.run("activation_backward", mode, {"y": results, "dy": dy}, {"dx": dx}, draw)


def read_as(operand: Operand, type: NumericType) -> Operand:
    """The same memory read with another binary point; floats stay what they are."""
    shape = operand.descriptor.get()
    if not shape.type.is_fixed:
        return operand
    return Operand(TensorDescriptor(shape.dims, type, shape.format), operand.address)


def _positive(net: OperatorNetwork, value: SSAValue) -> SSAValue:
    """1 where a value is positive, else 0."""
    if net.fixed:
        return net.emit("clip", value, minimum=0.0, maximum=1.0)
    zero = net.number(0.0, value)
    return net.emit("cast", net.emit("less", zero, value), to="float32")


def vector(handle: Handle, operation: VectorOperation, a: Operand, b: Operand, y: Operand) -> Ran:
    """y = a + b, a - b or a * b, element by element; b may have extents of 1, which repeat."""
    if operation not in ("add", "sub", "mul"):
        raise refuse("dlp-parameter", f"no vector operation {operation!r}", help="add, sub, mul")

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        a_, b_ = net.values["a"], net.values["b"]
        return {"y": net.emit("mul", a_, b_) if operation == "mul" else net.sum(operation, a_, b_)}

    return handle.run(f"vector_{operation}", None, {"a": a, "b": b}, {"y": y}, draw)


def softmax_forward(handle: Handle, x: Operand, y: Operand) -> Ran:
    """y = exp(x) over its sum along C."""

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        type = y.descriptor.get().type
        return {"y": net.typed(type if net.fixed else None, "softmax", net.values["x"], axis=1)}

    return handle.run("softmax_forward", None, {"x": x}, {"y": y}, draw)

"""Activations, vector sums, differences and products, softmax; concat, reshape, other formats.

In fixed point the machine itself moves what is joined or reshaped, by its loads and stores, so that
their bytes and cycles count. What has to change its order in memory is moved by the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from tilewright.errors import refuse
from tilewright.integrations.dlplib.descriptors import NumericType, TensorDescriptor, fixed16
from tilewright.integrations.dlplib.handle import Handle, Operand, Ran
from tilewright.integrations.dlplib.network import OperatorNetwork
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


MOST_PARTS = 1024


def concat(handle: Handle, axis: int, parts: Sequence[Operand], y: Operand) -> Ran:
    """y = the parts joined along an axis (0 to 3 for N, C, H, W); all of one numeric type."""
    if type(axis) is not int or not 0 <= axis <= 3:
        raise refuse("dlp-parameter", f"axis {axis} is none of N, C, H, W (0 to 3)")
    if not 1 <= len(parts) <= MOST_PARTS:
        raise refuse("dlp-parameter", f"{len(parts)} parts; 1 to {MOST_PARTS} are joined")
    types = {str(part.descriptor.get().type) for part in (*parts, y)}
    if len(types) != 1:
        raise refuse("dlp-type", f"parts and result differ: {', '.join(sorted(types))}")

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        values = [net.copied(value) for value in net.values.values()]
        return {"y": values[0] if len(values) == 1 else net.emit("concat", *values, axis=axis)}

    operands = {f"x{index}": part for index, part in enumerate(parts)}
    return handle.run("concat", axis, operands, {"y": y}, draw)


def reshape(handle: Handle, x: Operand, y: Operand) -> Ran:
    """y = the elements of x in logical row-major order, in another shape."""
    dims = y.descriptor.get().dims

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        return {"y": net.reshape(net.copied(net.values["x"]), dims)}

    return handle.run("reshape", dims, {"x": x}, {"y": y}, draw)


def transform(handle: Handle, x: Operand, y: Operand) -> Ran:
    """y = x in another data format or with another binary point, rounded half up, saturated."""

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        value = net.values["x"]
        if x.descriptor.get().type == y.descriptor.get().type:
            value = net.copied(value)
        return {"y": value}

    return handle.run("transform", None, {"x": x}, {"y": y}, draw)

"""Fully connected layers and products of matrices, and the layers' gradients.

A layer's images are flattened in the order in which they lie in memory, so that nothing is moved;
images and weights therefore have one data format, or weights are OC x (C*H*W) x 1 x 1, whose
elements follow the images' logical order C, H, W.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod

from tilewright.errors import refuse
from tilewright.integrations.dlplib.descriptors import (
    ORDERS,
    FilterDescriptor,
    Shape,
)
from tilewright.integrations.dlplib.handle import Handle, Operand, Ran, checked
from tilewright.integrations.dlplib.network import OperatorNetwork
from tilewright.integrations.dlplib.operators.convolution import activated, layer_operands
from tilewright.integrations.dlplib.operators.settings import ACTIVATIONS, Activation
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of


def fully_connected_forward(
    handle: Handle,
    x: Operand,
    w: Operand,
    y: Operand,
    bias: Operand | None = None,
    activation: Activation = "none",
) -> Ran:
    """y = activation(x w' + bias), y of N x OC x 1 x 1; the bias is 1 x OC x 1 x 1."""
    if activation not in ACTIVATIONS:
        raise refuse("dlp-parameter", f"no activation {activation!r}", help=", ".join(ACTIVATIONS))
    images, weights = x.descriptor.get(), w.descriptor.get()
    operands = layer_operands(x, w, bias)
    order = _order(images, weights)

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        rows = _rows(net, net.values["x"], order)
        columns = _rows(net, net.values["w"], order)
        added = [net.reshape(net.values["bias"], (weights.dims[0],))] if bias is not None else []
        product = net.emit("matmul", rows, columns, *added, transpose_b=True)
        product = activated(net, product, activation, y.descriptor.get().type)
        return {"y": net.reshape(product, (images.dims[0], weights.dims[0], 1, 1))}

    return handle.run(
        "fully_connected_forward", activation, operands, {"y": y}, draw, ("w", "bias")
    )


def fully_connected_backward_data(handle: Handle, w: Operand, dy: Operand, dx: Operand) -> Ran:
    """dx = dy w."""
    checked(w.descriptor, FilterDescriptor)
    shape = dx.descriptor.get()
    order = _order(shape, w.descriptor.get())

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        columns = _rows(net, net.values["w"], order)
        gradient = _rows(net, net.values["dy"], (0, 1, 2, 3))
        product = net.to(net.emit("matmul", gradient, columns), shape.type)
        return {"dx": _back(net, product, shape, order)}

    operands = {"w": w, "dy": dy}
    return handle.run("fully_connected_backward_data", None, operands, {"dx": dx}, draw, ("w",))


def fully_connected_backward_filter(handle: Handle, x: Operand, dy: Operand, dw: Operand) -> Ran:
    """dw = dy' x: the sum of an outer product for each image, or a product of matrices.

    On a machine that reads rows of a product's reduction side by side the latter turns dy first.
    """
    checked(dw.descriptor, FilterDescriptor)
    shape = dw.descriptor.get()
    order = _order(x.descriptor.get(), shape)

    def drawn(turned: bool, net: OperatorNetwork) -> Mapping[str, SSAValue]:
        rows = _rows(net, net.values["x"], order)
        gradient = _rows(net, net.values["dy"], (0, 1, 2, 3))
        gradient = net.transpose(gradient, (1, 0)) if turned else gradient
        product = net.emit("matmul", gradient, rows, transpose_a=not turned)
        return {"dw": _back(net, net.to(product, shape.type), shape, order)}

    several = not handle.target.takes_computed_weights and dy.descriptor.get().dims[0] > 1
    operands = {"x": x, "dy": dy}
    draw, others = partial(drawn, False), (partial(drawn, True),) if several else ()
    return handle.run(
        "fully_connected_backward_filter", None, operands, {"dw": dw}, draw, others=others
    )


def matrix_multiply(
    handle: Handle,
    a: Operand,
    b: Operand,
    y: Operand,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Ran:
    """y = a b for every N and C: matrices of H rows and W columns, transposed if asked for."""
    turned = (bool(transpose_a), bool(transpose_b))

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        left, right = net.values["a"], net.values["b"]
        plain = all(shape_of(value)[:2] == (1, 1) for value in (left, right))
        if plain:
            left, right = (net.reshape(v, shape_of(v)[2:]) for v in (left, right))
        product = net.emit("matmul", left, right, transpose_a=turned[0], transpose_b=turned[1])
        product = net.to(product, y.descriptor.get().type)
        return {"y": net.reshape(product, (1, 1, *shape_of(product))) if plain else product}

    return handle.run("matrix_multiply", turned, {"a": a, "b": b}, {"y": y}, draw, ("b",))


def _order(images: Shape, weights: Shape) -> tuple[int, ...]:
    """The order of axes in which images and weights are flattened alike."""
    if prod(images.dims[1:]) != prod(weights.dims[1:]):
        raise refuse("dlp-shape", f"weights {weights} for images {images}")
    if weights.dims[1:] != images.dims[1:]:
        if weights.dims[2:] != (1, 1):
            raise refuse("dlp-shape", f"weights {weights} for images {images}")
        return ORDERS["NCHW"]
    if weights.format != images.format and images.dims[2:] != (1, 1):
        raise refuse("dlp-parameter", f"weights {weights} and images {images} differ in format")
    return ORDERS[images.format]


def _rows(net: OperatorNetwork, value: SSAValue, order: tuple[int, ...]) -> SSAValue:
    turned = net.transpose(value, order)
    shape = shape_of(turned)
    return net.reshape(turned, (shape[0], prod(shape[1:])))


def _back(net: OperatorNetwork, rows: SSAValue, shape: Shape, order: tuple[int, ...]) -> SSAValue:
    """Rows as images again, in logical order."""
    if shape.dims[2:] == (1, 1):
        return net.reshape(rows, shape.dims)
    whole = net.reshape(rows, tuple(shape.dims[axis] for axis in order))
    return net.transpose(whole, tuple(order.index(axis) for axis in range(4)))

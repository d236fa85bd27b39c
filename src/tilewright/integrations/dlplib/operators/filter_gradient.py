"""Gradients of a convolution's weights."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.integrations.dlplib.descriptors import FilterDescriptor, Shape
from tilewright.integrations.dlplib.handle import Handle, Operand, Ran, checked
from tilewright.integrations.dlplib.network import OperatorNetwork
from tilewright.integrations.dlplib.operators.convolution import need_result, without_activation
from tilewright.integrations.dlplib.operators.settings import Convolution, ConvolutionDescriptor
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of


def convolution_backward_filter(
    handle: Handle, convolution: ConvolutionDescriptor, x: Operand, dy: Operand, dw: Operand
) -> Ran:
    """dw from x and dy: dw[co, ci, k] sums x[n, ci, o*s + k*d - p] * dy[n, co, o] over n and o."""
    settings = without_activation(convolution)
    checked(dw.descriptor, FilterDescriptor)
    shape = dw.descriptor.get()
    oc, ic, kh, kw = shape.dims
    # Of a product's sides the smaller one stays on the chip: that of its weights.
    streamed = settings.groups == 1 and oc > kh * kw * ic

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        gradient = shape_of(net.values["dy"])
        need_result(net, settings, x.descriptor.get(), shape.dims, gradient)
        if settings.groups > 1:
            return {"dw": _convolved(net, settings, shape)}
        return {"dw": _multiplied(net, settings, shape, streamed)}

    operands, weights = {"x": x, "dy": dy}, ("x",) if streamed else ("dy",)
    return handle.run("convolution_backward_filter", settings, operands, {"dw": dw}, draw, weights)


def _multiplied(
    net: OperatorNetwork, settings: Convolution, shape: Shape, streamed: bool
) -> SSAValue:
    """A product of the pixels that every element of the kernel meets and of dy's."""
    gradient, (oc, ic, kh, kw) = net.values["dy"], shape.dims
    n, _, oh, ow = shape_of(gradient)
    met, pixels = _met(net, settings, (kh, kw), (oh, ow)), n * oh * ow
    if streamed:
        rows = net.reshape(net.transpose(gradient, (1, 0, 2, 3)), (oc, pixels))
        product = net.to(net.emit("matmul", rows, net.transpose(met, (1, 0))), shape.type)
        return net.transpose(net.reshape(product, (oc, kh, kw, ic)), (0, 3, 1, 2))
    columns = net.reshape(net.transpose(gradient, (0, 2, 3, 1)), (pixels, oc))
    product = net.to(net.emit("matmul", met, columns), shape.type)
    return net.transpose(net.reshape(product, (kh, kw, ic, oc)), (3, 2, 0, 1))


def _met(
    net: OperatorNetwork, settings: Convolution, kernel: tuple[int, int], results: tuple[int, int]
) -> SSAValue:
    """[kh*kw*ic, n*oh*ow]: the pixel that each element of the kernel meets for each result."""
    image = net.values["x"]
    n, c, *extents = shape_of(image)
    for axis in range(2):
        before = settings.pads[axis]
        reach = (kernel[axis] - 1) * settings.dilations[axis] + 1
        reach += (results[axis] - 1) * settings.strides[axis]
        image = net.pad(image, axis + 2, before, reach - before - extents[axis])
    parts: list[SSAValue] = []
    for place in np.ndindex(*kernel):
        part = image
        for axis in range(2):
            first, step = place[axis] * settings.dilations[axis], settings.strides[axis]
            part = net.slice(part, axis + 2, first, first + (results[axis] - 1) * step + 1, step)
        parts.append(net.reshape(part, (n, c, 1, *results)))
    whole = parts[0] if len(parts) == 1 else net.emit("concat", *parts, axis=2)
    whole = net.transpose(whole, (2, 1, 0, 3, 4))
    return net.reshape(whole, (len(parts) * c, n * results[0] * results[1]))


def _convolved(net: OperatorNetwork, settings: Convolution, shape: Shape) -> SSAValue:
    """In groups: images convolved with gradients, images and channels exchanged.

    The kernel is dy, dilated by the layer's strides; the strides are the layer's dilations.
    """
    image, gradient, groups = net.values["x"], net.values["dy"], settings.groups
    n, c, h, w = shape_of(image)
    image = net.reshape(image, (n, groups, c // groups, h, w))
    image = net.transpose(image, (2, 1, 0, 3, 4))
    image = net.reshape(image, (c // groups, groups * n, h, w))
    after: list[int] = []
    for axis in range(2):
        reach = (shape.dims[axis + 2] - 1) * settings.dilations[axis] + 1
        reach += (shape_of(gradient)[axis + 2] - 1) * settings.strides[axis]
        spare = reach - (h, w)[axis] - settings.pads[axis]
        image = net.pad(image, axis + 2, 0, min(spare, 0))
        after.append(max(spare, 0))
    sums = net.emit(
        "conv",
        image,
        net.transpose(gradient, (1, 0, 2, 3)),
        strides=settings.dilations,
        dilations=settings.strides,
        pads=(settings.pads[0], settings.pads[1], *after),
        group=groups,
    )
    return net.transpose(net.to(sums, shape.type), (1, 0, 2, 3))

"""Convolutions, and the gradients of their data, weights and biases."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.errors import refuse
from tilewright.integrations.dlplib.descriptors import (
    FLOAT32,
    FilterDescriptor,
    NumericType,
    Shape,
    TensorDescriptor,
    fixed16,
    fixed32,
)
from tilewright.integrations.dlplib.handle import Handle, Operand, Ran, checked
from tilewright.integrations.dlplib.network import OperatorNetwork
from tilewright.integrations.dlplib.operators.settings import Convolution, ConvolutionDescriptor
from tilewright.integrations.dlplib.operators.spread import ones, transposed_convolution
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of


def bias_type(x: NumericType, w: NumericType) -> NumericType:
    """The type of a bias: that of the sums of products, in fixed point."""
    return fixed32(x.fraction + w.fraction) if x.is_fixed else FLOAT32


def activated(
    net: OperatorNetwork, value: SSAValue, activation: str, type: NumericType
) -> SSAValue:
    """``activation`` of a value, as numbers of ``type``."""
    if activation == "none":
        return net.to(value, type)
    if activation == "relu":
        return net.to(net.emit("relu", value), type)
    # Both functions are flat beyond 8 or 16; the table's segments are the finer the narrower.
    point = {"sigmoid": 11, "tanh": 12}[activation]
    have = net.type_of(value)
    narrow = fixed16(point if have.kind == "fixed32" else min(point, have.fraction))
    return net.function(activation, net.to(value, narrow), type)


def convolution_forward(
    handle: Handle,
    convolution: ConvolutionDescriptor,
    x: Operand,
    w: Operand,
    y: Operand,
    bias: Operand | None = None,
) -> Ran:
    """y = activation(x * w + bias); the bias is 1 x OC x 1 x 1 of ``bias_type``."""
    settings = convolution.get()
    operands = layer_operands(x, w, bias)
    checked(y.descriptor, TensorDescriptor)

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        sums = _convolved(net, settings, _bias_of(net, bias))
        return {"y": activated(net, sums, settings.activation, y.descriptor.get().type)}

    return handle.run("convolution_forward", settings, operands, {"y": y}, draw, ("w", "bias"))


def convolution_output(
    convolution: ConvolutionDescriptor, x: TensorDescriptor, w: FilterDescriptor
) -> tuple[int, int, int, int]:
    """The dims of the result (``computeOutputDim`` of section 3.6.2); refuses what does not fit."""
    net = OperatorNetwork("convolution", {"x": _plain(x.get()), "w": _plain(w.get())}, False)
    n, c, h, w_ = shape_of(_convolved(net, convolution.get(), None))
    return n, c, h, w_


def convolution_backward_data(
    handle: Handle, convolution: ConvolutionDescriptor, w: Operand, dy: Operand, dx: Operand
) -> Ran:
    """dx from dy: the transposed convolution with the same weights."""
    settings = _without_activation(convolution)
    checked(w.descriptor, FilterDescriptor)
    shape = dx.descriptor.get()

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        _need_result(net, settings, shape, shape_of(net.values["w"]), shape_of(net.values["dy"]))
        top, left, _, _ = settings.pads
        gradient = transposed_convolution(
            net,
            net.values["dy"],
            net.values["w"],
            (shape.dims[2], shape.dims[3]),
            strides=settings.strides,
            dilations=settings.dilations,
            pads=(top, left),
            groups=settings.groups,
            type=shape.type,
        )
        return {"dx": gradient}

    operands = {"w": w, "dy": dy}
    return handle.run("convolution_backward_data", settings, operands, {"dx": dx}, draw, ("w",))


def convolution_backward_filter(
    handle: Handle, convolution: ConvolutionDescriptor, x: Operand, dy: Operand, dw: Operand
) -> Ran:
    """dw from x and dy: dw[co, ci, k] sums x[n, ci, o*s + k*d - p] * dy[n, co, o] over n and o."""
    settings = _without_activation(convolution)
    checked(dw.descriptor, FilterDescriptor)
    shape = dw.descriptor.get()
    oc, ic, kh, kw = shape.dims
    # Of a product's sides the smaller one stays on the chip: that of its weights.
    streamed = settings.groups == 1 and oc > kh * kw * ic

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        gradient = shape_of(net.values["dy"])
        _need_result(net, settings, x.descriptor.get(), shape.dims, gradient)
        if settings.groups > 1:
            return {"dw": _grouped(net, settings, shape)}
        return {"dw": _multiplied(net, settings, shape, streamed)}

    operands, weights = {"x": x, "dy": dy}, ("x",) if streamed else ("dy",)
    return handle.run("convolution_backward_filter", settings, operands, {"dw": dw}, draw, weights)


def bias_backward(handle: Handle, dy: Operand, db: Operand) -> Ran:
    """db = the sum of dy over images and pixels, by a product with ones. 1 x C x 1 x 1."""
    shape = db.descriptor.get()

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        gradient = net.values["dy"]
        c = shape_of(gradient)[1]
        sums = channel_sums(net, gradient)
        return {"db": net.reshape(net.to(sums, shape.type), (1, c, 1, 1))}

    return handle.run("bias_backward", None, {"dy": dy}, {"db": db}, draw)


def channel_sums(net: OperatorNetwork, value: SSAValue) -> SSAValue:
    """[1, c] of [n, c, h, w]: sums over all but the channels, in wide numbers.

    A row of ones times the values, which are the product's weights then.
    """
    n, c, h, w = shape_of(value)
    pixels = n * h * w
    if pixels == 1:
        return net.copied(net.reshape(value, (1, c)))
    rows = net.reshape(net.transpose(value, (0, 2, 3, 1)), (pixels, c))
    return net.emit("matmul", ones(net, (1, pixels)), rows)


def layer_operands(x: Operand, w: Operand, bias: Operand | None) -> dict[str, Operand]:
    """The operands of a forward layer, their kinds and the bias's type checked."""
    checked(x.descriptor, TensorDescriptor)
    checked(w.descriptor, FilterDescriptor)
    operands = {"x": x, "w": w}
    if bias is not None:
        operands["bias"] = bias
        checked(bias.descriptor, TensorDescriptor)
        tensor, weights = bias.descriptor.get(), w.descriptor.get()
        needed = bias_type(x.descriptor.get().type, weights.type)
        if tensor.type != needed:
            raise refuse(
                "dlp-type", f"the bias holds {tensor.type}; beside these operands it is {needed}"
            )
        if tensor.dims != (1, weights.dims[0], 1, 1):
            raise refuse("dlp-shape", f"the bias {tensor} is not 1 x OC x 1 x 1")
    return operands


def _bias_of(net: OperatorNetwork, bias: Operand | None) -> SSAValue | None:
    if bias is None:
        return None
    return net.reshape(net.values["bias"], (bias.descriptor.get().dims[1],))


def _convolved(net: OperatorNetwork, settings: Convolution, bias: SSAValue | None) -> SSAValue:
    image, pads = net.values["x"], list(settings.pads)
    kernel = shape_of(net.values["w"])[2:]
    for axis in range(2):
        # No machine need know windows that lie wholly in the padding: zeros are stored for them.
        reach = (kernel[axis] - 1) * settings.dilations[axis]
        beyond = [max(pads[side] - reach, 0) for side in (axis, axis + 2)]
        image = net.pad(image, axis + 2, *beyond)
        pads[axis], pads[axis + 2] = pads[axis] - beyond[0], pads[axis + 2] - beyond[1]
    return net.emit(
        "conv",
        image,
        net.values["w"],
        *([] if bias is None else [bias]),
        strides=settings.strides,
        pads=tuple(pads),
        dilations=settings.dilations,
        group=settings.groups,
    )


def _plain(shape: Shape) -> Shape:
    return Shape(shape.dims)


def _without_activation(convolution: ConvolutionDescriptor) -> Convolution:
    """Settings for a gradient: the activation's own is another operator."""
    settings = convolution.get()
    if settings.activation != "none":
        raise refuse(
            "dlp-parameter", f"the gradient goes through {settings.activation} first",
            help="use activation_backward, then a convolution descriptor without activation",
        )  # fmt: skip
    return settings


def _need_result(
    net: OperatorNetwork,
    settings: Convolution,
    x: Shape,
    w: tuple[int, ...],
    dy: tuple[int, ...],
) -> None:
    """Refuse a gradient that is not of the convolution's result."""
    oc, ic, kh, kw = w
    shapes = {"x": Shape(x.dims), "w": Shape((oc, ic, kh, kw))}
    result = shape_of(_convolved(OperatorNetwork(net.name, shapes, False), settings, None))
    if result != tuple(dy):
        raise refuse("dlp-shape", f"dy is {list(dy)}, the result of the layer {list(result)}")


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


def _grouped(net: OperatorNetwork, settings: Convolution, shape: Shape) -> SSAValue:
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

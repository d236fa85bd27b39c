"""Convolution and fully connected layers, and their gradients."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.dlplib.descriptors import FilterDescriptor, Shape, TensorDescriptor
from tilewright.dlplib.handle import Handle, Operand, Ran, checked
from tilewright.dlplib.network import OperatorNetwork
from tilewright.dlplib.numeric import FLOAT32, NumericType, fixed16, fixed32
from tilewright.dlplib.operators.settings import Convolution, ConvolutionDescriptor
from tilewright.dlplib.operators.spread import ones, transposed_convolution
from tilewright.errors import refuse
from tilewright.ir import SSAValue
from tilewright.types import shape_of


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
    operands = _operands(x, w, y, bias)

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        made = _convolved(net, settings, _bias_of(net, bias))
        return {"y": activated(net, made, settings.activation, y.descriptor.get().type)}

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
        made = transposed_convolution(
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
        return {"dx": made}

    operands = {"w": w, "dy": dy}
    return handle.run("convolution_backward_data", settings, operands, {"dx": dx}, draw, ("w",))


def convolution_backward_filter(
    handle: Handle, convolution: ConvolutionDescriptor, x: Operand, dy: Operand, dw: Operand
) -> Ran:
    """dw from x and dy: images convolved with gradients, images and channels exchanged.

    dw[co, ci, k] sums x[n, ci, o*s + k*d - p] * dy[n, co, o] over n and o: a convolution over n
    whose kernel is dy, dilated by s, at strides of d.
    """
    settings = _without_activation(convolution)
    checked(dw.descriptor, FilterDescriptor)
    shape = dw.descriptor.get()

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        image, gradient = net.values["x"], net.values["dy"]
        n, c, h, w = shape_of(image)
        oh, ow = shape_of(gradient)[2:]
        _need_result(net, settings, x.descriptor.get(), shape.dims, shape_of(gradient))
        groups = settings.groups
        image = net.reshape(image, (n, groups, c // groups, h, w))
        image = net.transpose(image, (2, 1, 0, 3, 4))
        image = net.reshape(image, (c // groups, groups * n, h, w))
        after: list[int] = []
        for axis, (extent, results) in enumerate(zip((h, w), (oh, ow), strict=True)):
            reach = (shape.dims[axis + 2] - 1) * settings.dilations[axis]
            reach += (results - 1) * settings.strides[axis] + 1
            spare = reach - extent - settings.pads[axis]
            image = net.pad(image, axis + 2, 0, min(spare, 0))
            after.append(max(spare, 0))
        made = net.emit(
            "conv",
            image,
            net.transpose(gradient, (1, 0, 2, 3)),
            strides=settings.dilations,
            dilations=settings.strides,
            pads=(settings.pads[0], settings.pads[1], *after),
            group=groups,
        )
        return {"dw": net.transpose(net.to(made, shape.type), (1, 0, 2, 3))}

    operands = {"x": x, "dy": dy}
    return handle.run("convolution_backward_filter", settings, operands, {"dw": dw}, draw, ("dy",))


def bias_backward(handle: Handle, dy: Operand, db: Operand) -> Ran:
    """db = the sum of dy over images and pixels: a row of ones times dy. 1 x C x 1 x 1."""
    shape = db.descriptor.get()

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        gradient = net.values["dy"]
        n, c, h, w = shape_of(gradient)
        made = channel_sums(net, gradient)
        del n, h, w
        return {"db": net.reshape(net.to(made, shape.type), (1, c, 1, 1))}

    return handle.run("bias_backward", None, {"dy": dy}, {"db": db}, draw, ("dy",))


def channel_sums(net: OperatorNetwork, value: SSAValue) -> SSAValue:
    """[1, c] of [n, c, h, w]: sums over all but the channels, in wide numbers."""
    n, c, h, w = shape_of(value)
    rows = net.reshape(net.transpose(value, (0, 2, 3, 1)), (n * h * w, c))
    return net.emit("matmul", ones(net, (1, n * h * w)), rows)


def _operands(x: Operand, w: Operand, y: Operand, bias: Operand | None) -> dict[str, Operand]:
    """The operands of a forward layer, their kinds and the bias's type checked."""
    checked(x.descriptor, TensorDescriptor)
    checked(w.descriptor, FilterDescriptor)
    checked(y.descriptor, TensorDescriptor)
    operands = {"x": x, "w": w}
    if bias is None:
        return operands
    checked(bias.descriptor, TensorDescriptor)
    needed = bias_type(x.descriptor.get().type, w.descriptor.get().type)
    found = bias.descriptor.get()
    if found.type != needed:
        raise refuse(
            "dlp-type", f"the bias holds {found.type}; beside these operands it is {needed}"
        )
    if found.dims != (1, w.descriptor.get().dims[0], 1, 1):
        raise refuse("dlp-shape", f"the bias {found} is not 1 x OC x 1 x 1")
    return {**operands, "bias": bias}


def _bias_of(net: OperatorNetwork, bias: Operand | None) -> SSAValue | None:
    if bias is None:
        return None
    return net.reshape(net.values["bias"], (bias.descriptor.get().dims[1],))


def _convolved(net: OperatorNetwork, settings: Convolution, bias: SSAValue | None) -> SSAValue:
    return net.emit(
        "conv",
        net.values["x"],
        net.values["w"],
        *([] if bias is None else [bias]),
        strides=settings.strides,
        pads=settings.pads,
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

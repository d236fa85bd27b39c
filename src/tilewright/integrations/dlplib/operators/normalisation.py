"""Local response normalisation and batch normalisation, and their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import floor, log, log2

import numpy as np

from tilewright.integrations.dlplib.descriptors import NumericType, finest, fixed16
from tilewright.integrations.dlplib.handle import Handle, Operand, Ran
from tilewright.integrations.dlplib.network import OperatorNetwork
from tilewright.integrations.dlplib.operators.convolution import channel_sums
from tilewright.integrations.dlplib.operators.settings import (
    BatchNormDescriptor,
    Lrn,
    LrnDescriptor,
)
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of


def lrn_forward(handle: Handle, lrn: LrnDescriptor, x: Operand, y: Operand) -> Ran:
    """y = x / s**beta, s = k + alpha/size * the sum of squares over ``size`` channels."""
    settings = lrn.get()

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        normalised = _normalised(
            net, net.values["x"], settings, settings.beta, y.descriptor.get().type
        )
        return {"y": normalised}

    return handle.run("lrn_forward", settings, {"x": x}, {"y": y}, draw)


def lrn_backward(handle: Handle, lrn: LrnDescriptor, x: Operand, dy: Operand, dx: Operand) -> Ran:
    """dx[i] = dy[i]*s[i]**-beta - 2*alpha*beta/size * x[i] * sum of dy[j]*x[j]*s[j]**-(beta+1).

    The sum is over the channels j whose windows reach i. Where the machine has no operation for
    that, x*s**-(beta+1) is a normalisation by itself; s**-beta is exp(-beta*log(s)) by two tables.
    """
    settings = lrn.get()
    result = dx.descriptor.get().type
    extents = {"c": x.descriptor.get().dims[1]}
    together = any(
        primitive.serves("lrn_gradient", extents) for primitive in handle.machine.primitives
    )

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        x_, gradient = net.values["x"], net.values["dy"]
        if together:
            return {"dx": _with_settings(net, "lrn_gradient", settings, result, x_, gradient)}
        # At most the largest x, since s is at least k.
        least = settings.k ** -(settings.beta + 1)
        point = net.fraction(x_) - max(floor(log2(least)) + 1, 0)
        scaled = _normalised(net, x_, settings, settings.beta + 1, fixed16(max(point, -16)))
        met = net.to(net.emit("mul", gradient, scaled), net.type_of(gradient))
        factor = 2 * settings.alpha * settings.beta / settings.size
        summed = _window(net, met, settings, back=True, factor=factor)
        summed = net.to(summed, _smaller(net.type_of(gradient), factor * settings.size))
        second = net.to(net.emit("mul", summed, x_), result)
        power = _power(net, x_, settings)
        first = net.to(net.emit("mul", gradient, power), result)
        return {"dx": net.sum("sub", first, second)}

    return handle.run("lrn_backward", settings, {"x": x, "dy": dy}, {"dx": dx}, draw)


def _normalised(
    net: OperatorNetwork, x: SSAValue, settings: Lrn, beta: float, type: NumericType
) -> SSAValue:
    return _with_settings(net, "lrn", replace(settings, beta=beta), type, x)


def _with_settings(
    net: OperatorNetwork, operation: str, settings: Lrn, type: NumericType, *values: SSAValue
) -> SSAValue:
    return net.typed(
        type if net.fixed else None, operation, *values, size=settings.size,
        alpha=settings.alpha, beta=settings.beta, bias=settings.k,
    )  # fmt: skip


def _window(
    net: OperatorNetwork, value: SSAValue, settings: Lrn, *, back: bool, factor: float
) -> SSAValue:
    """``factor`` times sums over windows of channels: a 1x1 convolution with a band of weights.

    ``back`` sums over the channels whose windows reach this one.
    """
    channels = shape_of(value)[1]
    offsets = np.arange(channels) - np.arange(channels)[:, None]
    low = -((settings.size - 1) // 2)
    band = (offsets >= low) & (offsets < low + settings.size)
    band = band.T if back else band
    # Whole windows of the largest numbers must stay below 2**31.
    type = finest(factor * settings.size)
    weights = net.constant(band[:, :, None, None] * factor, type)
    return net.emit("conv", value, weights)


def _smaller(type: NumericType, factor: float) -> NumericType:
    """The type of numbers that are ``factor`` times those of a type."""
    return fixed16(max(min(type.fraction - floor(log2(factor)) - 1, 30), -16)) if factor else type


def _power(net: OperatorNetwork, x: SSAValue, settings: Lrn) -> SSAValue:
    """s ** -beta of images."""
    if not net.fixed:
        total = _window(
            net, net.emit("mul", x, x), settings, back=False, factor=settings.alpha / settings.size
        )
        total = net.sum("add", total, net.number(settings.k, x))
        scaled = net.emit("log", total)
        minus = net.number(-settings.beta, x)
        return net.emit("exp", net.emit("mul", scaled, minus))
    largest = 2.0 ** (15 - net.fraction(x))
    square = net.to(net.emit("mul", x, x), finest(largest**2))
    most = settings.k + settings.alpha * largest**2
    type = finest(most)
    total = net.to(
        _window(net, square, settings, back=False, factor=settings.alpha / settings.size), type
    )
    total = net.to(net.sum("add", total, net.number(settings.k, x, type)), type)
    bounds = (abs(log(settings.k)), abs(log(most)))
    logarithm = net.function("log", total, finest(max(*bounds, 0.5)))
    minus = net.number(-settings.beta, x, finest(max(settings.beta, 0.5)))
    steep = max(max(bounds) * settings.beta, 0.5)
    exponent = net.to(net.emit("mul", logarithm, minus), finest(steep))
    return net.function("exp", exponent, finest(settings.k**-settings.beta * 1.01))


def batch_norm_forward(
    handle: Handle,
    x: Operand,
    mean: Operand,
    deviation: Operand,
    scale: Operand,
    shift: Operand,
    y: Operand,
) -> Ran:
    """y = (x - mean) * deviation * scale + shift, per channel; all four are 1 x C x 1 x 1.

    ``deviation`` is 1 / sqrt(variance + epsilon): the accelerators do not divide.
    """
    result = y.descriptor.get().type
    operands = {"x": x, "mean": mean, "deviation": deviation, "scale": scale, "shift": shift}

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        mean, *factors, shift = _by_channel(net, "mean", "deviation", "scale", "shift")
        x_ = net.values["x"]
        # 16 bits that hold the product of any two such numbers.
        point = sum(net.fraction(factor) for factor in factors) - 15
        slope = net.to(net.emit("mul", *factors), fixed16(max(min(point, 30), -16)))
        centred = net.to(net.sum("sub", x_, mean), _wider(net, x_, 1))
        scaled = net.to(net.emit("mul", centred, slope), fixed16(max(result.fraction - 1, -16)))
        return {"y": net.sum("add", scaled, shift)}

    return handle.run("batch_norm_forward", None, operands, {"y": y}, draw)


def batch_norm_backward(
    handle: Handle,
    batch_norm: BatchNormDescriptor,
    x: Operand,
    mean: Operand,
    deviation: Operand,
    scale: Operand,
    dy: Operand,
    dx: Operand,
    dscale: Operand,
    dshift: Operand,
) -> Ran:
    """dshift = sum of dy, dscale = sum of dy*z, dx = scale*deviation*(dy - m(dy) - z*m(dy*z)).

    z = (x - mean)*deviation, m the mean over the batch and the pixels; with given statistics
    (``of_batch`` false) dx = scale*deviation*dy.
    """
    of_batch = batch_norm.get()
    operands = {"x": x, "mean": mean, "deviation": deviation, "scale": scale, "dy": dy}
    outputs = {"dx": dx, "dscale": dscale, "dshift": dshift}

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        mean, deviation, scale = _by_channel(net, "mean", "deviation", "scale")
        gradient, x_ = net.values["dy"], net.values["x"]
        centred = net.to(net.sum("sub", x_, mean), _wider(net, x_, 1))
        # Cut at 8 in fixed point: beyond that no sample of a thousand lies.
        centred = net.to(net.emit("mul", centred, deviation), fixed16(12))
        n, c, h, w = shape_of(gradient)
        met = net.to(net.emit("mul", gradient, centred), _wider(net, gradient, 2))
        sums = {"dshift": channel_sums(net, gradient), "dscale": channel_sums(net, met)}
        types = {name: outputs[name].descriptor.get().type for name in sums}
        slopes = {
            name: net.reshape(net.to(value, types[name]), (1, c, 1, 1))
            for name, value in sums.items()
        }
        inner = gradient
        if of_batch:
            share = net.number(1 / (n * h * w), gradient, finest(1 / (n * h * w)))
            means = {
                name: net.to(net.emit("mul", value, share), net.type_of(gradient))
                for name, value in slopes.items()
            }
            along = net.to(net.emit("mul", centred, means["dscale"]), net.type_of(gradient))
            inner = net.to(net.sum("sub", gradient, means["dshift"]), _wider(net, gradient, 1))
            inner = net.to(net.sum("sub", inner, along), _wider(net, gradient, 1))
        slope = net.emit("mul", deviation, scale)
        slope = net.to(slope, _wider(net, deviation, 0))
        return {"dx": net.emit("mul", inner, slope), **slopes}

    return handle.run("batch_norm_backward", of_batch, operands, outputs, draw)


def _by_channel(net: OperatorNetwork, *names: str) -> list[SSAValue]:
    """Operands that have a number for each channel of x."""
    return [net.operand(name, (1, shape_of(net.values["x"])[1], 1, 1)) for name in names]


def _wider(net: OperatorNetwork, value: SSAValue, bits: int) -> NumericType:
    """16-bit numbers of a value's type with room for numbers 2**bits larger."""
    return fixed16(max(net.fraction(value) - bits, -16)) if net.fixed else net.type_of(value)

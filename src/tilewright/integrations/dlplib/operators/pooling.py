"""Operators for pooling and its gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import floor, log2

import numpy as np

from tilewright.errors import refuse
from tilewright.frontends.moves import padded
from tilewright.integrations.dlplib.descriptors import Shape, finest, fixed16
from tilewright.integrations.dlplib.handle import Handle, Operand, Ran
from tilewright.integrations.dlplib.network import OperatorNetwork
from tilewright.integrations.dlplib.operators.elementwise import read_as
from tilewright.integrations.dlplib.operators.settings import Pooling, PoolingDescriptor
from tilewright.integrations.dlplib.operators.spread import scattered
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, shape_of
from tilewright.numerics import reference

BLOCKS = (256, 480)
"""Elements of windows that lie side by side where a maximum's gradient is one operation: the faster
of these, as blocks fill a scratchpad well or badly."""

LARGEST_WINDOW = 64
"""Elements of a window whose maximum's gradient is computed: every one is a step of its own."""


def pooling_forward(handle: Handle, pooling: PoolingDescriptor, x: Operand, y: Operand) -> Ran:
    """y = the largest element, or the mean, of every window of x."""
    settings = pooling.get()

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        return {"y": _pooled(net, settings, net.values["x"])}

    return handle.run("pooling_forward", settings, {"x": x}, {"y": y}, draw)


def pooling_output(pooling: PoolingDescriptor, x: Shape) -> tuple[int, int, int, int]:
    """The dims of the result; refuses a window that does not fit."""
    net = OperatorNetwork("pooling", {"x": Shape(x.dims)}, False)
    n, c, h, w = shape_of(_pooled(net, pooling.get(), net.values["x"]))
    return n, c, h, w


def pooling_backward(
    handle: Handle, pooling: PoolingDescriptor, x: Operand, y: Operand, dy: Operand, dx: Operand
) -> Ran:
    """dx from dy, which goes to the first largest element of each window in row-major order, or in
    equal parts to all.

    Averages do not read x and y.
    """
    settings = pooling.get()
    shape = dx.descriptor.get()
    image = x.descriptor.get()
    if image.dims != shape.dims:
        raise refuse("dlp-shape", f"x is {image} and dx {shape}")
    if pooling_output(pooling, image) != dy.descriptor.get().dims:
        raise refuse("dlp-shape", f"dy {dy.descriptor.get()} is not of the pool's result")
    operands = {"dy": dy}
    together = handle.is_fixed and bool(handle.machine.primitives_for("maximum_gradient"))
    if settings.mode == "max":
        if y.descriptor.get().dims != dy.descriptor.get().dims:
            raise refuse("dlp-shape", f"y is {y.descriptor.get()} and dy {dy.descriptor.get()}")
        if y.descriptor.get().type != image.type:
            raise refuse("dlp-type", f"y is {y.descriptor.get()}, which is not of x, {image}")
        if settings.window[0] * settings.window[1] > LARGEST_WINDOW:
            raise refuse("dlp-parameter", f"a window of {settings.window} is too large")
        # In comparisons the binary point does not count.
        kind = dy.descriptor.get().type if together else fixed16(0)
        operands = {"x": read_as(x, kind), "y": read_as(y, kind), "dy": dy}

    def average(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        return {"dx": _average_gradient(net, settings, shape)}

    def maximum(block: int, net: OperatorNetwork) -> Mapping[str, SSAValue]:
        return {"dx": _maximum_gradient(net, settings, shape, block)}

    ways = [average]
    if settings.mode == "max":
        ways = [partial(maximum, block) for block in (BLOCKS if together else (0,))]
    return handle.run("pooling_backward", settings, operands, {"dx": dx}, ways[0], others=ways[1:])


def _pooled(net: OperatorNetwork, settings: Pooling, x: SSAValue) -> SSAValue:
    _, _, h, w = shape_of(x)
    pads = settings.reach((h, w))
    window, strides = settings.window, settings.strides
    if settings.mode == "max":
        return net.emit("max_pool", x, kernel=window, strides=strides, pads=pads)
    counted = tuple(min(a, b) for a, b in zip(settings.counted, pads, strict=True))
    return net.emit("average_pool", x, kernel=window, strides=strides, pads=pads, counted=counted)


def _average_gradient(net: OperatorNetwork, settings: Pooling, shape: Shape) -> SSAValue:
    """dy over the number of elements counted, and every pixel sums what its windows got."""
    gradient, (_, c, h, w) = net.values["dy"], shape.dims
    pads = settings.reach((h, w))
    counted = tuple(min(a, b) for a, b in zip(settings.counted, pads, strict=True))
    counts = reference.pool_counts((h, w), settings.window, settings.strides, pads, (1, 1), counted)
    shares: Array = 1.0 / np.asarray(counts, np.float64)
    # For every channel, so that the factors lie as the gradient does.
    extents = (1, 1) if np.all(shares == shares.flat[0]) else shares.shape[-2:]
    shares = shares.reshape(shares.shape[-2:])[: extents[0], : extents[1]]
    factors = np.broadcast_to(shares, (1, c, *extents))
    part = net.emit("mul", gradient, net.constant(factors, finest(float(shares.max()))))
    # What is divided by at least k has log2(k) bits more after the point.
    spare = floor(log2(1 / float(shares.max())))
    part = net.to(part, fixed16(min(net.fraction(gradient) + spare, 30)))
    kh, kw = settings.window
    return scattered(
        net, [[part] * kw] * kh, (h, w), strides=settings.strides, pads=(pads[0], pads[1]),
        type=shape.type,
    )  # fmt: skip


def _maximum_gradient(
    net: OperatorNetwork, settings: Pooling, shape: Shape, block: int
) -> SSAValue:
    """A window's gradient goes to its first largest element.

    ``left`` is what no element has taken so far; an element that is less than the largest leaves
    it, the first that is not takes it. What the last but one leaves is the last one's. Elements are
    taken one after the other, or in blocks by a machine that has an operation for it.
    """
    image, largest, gradient = (net.values[name] for name in ("x", "y", "dy"))
    h, w = shape.dims[2:]
    oh, ow = shape_of(gradient)[2:]
    (kh, kw), (sh, sw) = settings.window, settings.strides
    pads = settings.reach((h, w))
    # The least number around the image, so that no window's largest element is there.
    least = -32768.0 if net.fixed else float("-inf")
    image = padded(net, image, {2: (pads[0], pads[2]), 3: (pads[1], pads[3])}, least)
    seen: list[SSAValue] = []
    for i, j in np.ndindex(kh, kw):
        part = net.slice(image, 2, i, i + (oh - 1) * sh + 1, sh)
        seen.append(net.slice(part, 3, j, j + (ow - 1) * sw + 1, sw))
    shares = (
        _blocks(net, seen, largest, gradient, block)
        if block
        else _taken(net, seen, largest, gradient)
    )
    parts = [shares[i * kw : (i + 1) * kw] for i in range(kh)]
    return scattered(net, parts, (h, w), strides=(sh, sw), pads=(pads[0], pads[1]), type=shape.type)


def _taken(
    net: OperatorNetwork, seen: Sequence[SSAValue], largest: SSAValue, gradient: SSAValue
) -> list[SSAValue]:
    """Return the part of the gradient that each element takes, one after the other."""
    parts: list[SSAValue] = []
    left, kind = gradient, net.type_of(gradient)
    for element in seen[:-1]:
        passed = net.to(net.emit("mul", _less(net, element, largest), left), kind)
        parts.append(net.to(net.emit("sub", left, passed), kind))
        left = passed
    return [*parts, left]


def _blocks(
    net: OperatorNetwork,
    seen: Sequence[SSAValue],
    largest: SSAValue,
    gradient: SSAValue,
    block: int,
) -> list[SSAValue]:
    """The gradient's shares by one operation, on blocks of windows whose elements lie side by
    side."""
    n, c, oh, ow = shape_of(gradient)
    count = n * c * oh * ow
    block = min(count, block)
    spare = -count % block
    stacked: list[SSAValue] = []
    for value in (*seen, largest, gradient):
        flat = net.reshape(net.transpose(value, (0, 2, 3, 1)), (count,))
        stacked.append(
            net.reshape(net.pad(flat, 0, 0, spare), ((count + spare) // block, 1, block))
        )
    shares = net.emit("maximum_gradient", net.emit("concat", *stacked, axis=1))
    parts: list[SSAValue] = []
    for number in range(len(seen)):
        flat = net.reshape(net.slice(shares, 1, number, number + 1), (count + spare,))
        flat = net.slice(flat, 0, 0, count)
        parts.append(net.transpose(net.reshape(flat, (n, oh, ow, c)), (0, 3, 1, 2)))
    return parts


def _less(net: OperatorNetwork, seen: SSAValue, largest: SSAValue) -> SSAValue:
    """1 where ``seen`` is less than ``largest``, which it never exceeds; else 0."""
    if not net.fixed:
        return net.emit("cast", net.emit("less", seen, largest), to="float32")
    apart = net.to(net.emit("sub", largest, seen), fixed16(0))
    return net.emit("min", apart, net.constant(np.ones(shape_of(apart), np.float32), fixed16(0)))

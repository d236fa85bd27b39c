"""The transpose of a convolution or a pool: what carries gradients from results back to images.

With stride s, dilation d and pad p, result o reads pixel o*s + k*d - p through weight k. So pixel i
gets weight k from result o whenever i + p = o*s + k*d. The pixels of one **phase**, a = i modulo s,
meet the same weights, every s/gcd(s, d)-th, and among themselves they are the results of a
convolution of stride 1 and dilation d/gcd(s, d) with those weights in reverse. So the transpose is
s*s small convolutions whose results are interleaved, and no product is by a zero put in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np

from tilewright.frontends.moves import reversed_along
from tilewright.integrations.dlplib.descriptors import NumericType, fixed16
from tilewright.integrations.dlplib.network import OperatorNetwork
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of

Pair = tuple[int, int]


@dataclass(frozen=True)
class Phase:
    """The taps and padding with which the pixels of one phase along an axis are computed."""

    first: int
    """The first weight that they meet."""
    step: int
    """Distance from a weight to the next."""
    count: int
    """Weights; 0 if they meet none."""
    dilation: int
    before: int
    """Pads around the results' gradient; negative ones cut it."""
    after: int


def phase_of(
    phase: int, pixels: int, results: int, kernel: int, stride: int, dilation: int, pad: int
) -> Phase:
    """The phase's weights and pads, for ``pixels`` pixels of it; see the module's text."""
    met = [k for k in range(kernel) if (phase + pad - k * dilation) % stride == 0]
    common = gcd(stride, dilation)
    step, spacing = stride // common, dilation // common
    if not met:
        return Phase(0, step, 0, spacing, 0, 0)
    # Through the m-th weight from the end, pixel t of the phase meets result
    # t + lowest + m * spacing.
    lowest = (phase + pad - met[0] * dilation) // stride - (len(met) - 1) * spacing
    after = pixels - 1 + (len(met) - 1) * spacing + lowest - (results - 1)
    return Phase(met[0], step, len(met), spacing, -lowest, after)


def transposed_convolution(
    net: OperatorNetwork,
    gradient: SSAValue,
    weights: SSAValue,
    extents: Sequence[int],
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    groups: int,
    type: NumericType,
) -> SSAValue:
    """Images [n, ci, *extents] from a gradient [n, co, oh, ow] and weights [co, ci/groups, kh, kw].

    ``pads`` are top and left. The result has numbers of ``type``.
    """
    n, _, oh, ow = shape_of(gradient)
    _, per_group, kh, kw = shape_of(weights)
    turned = _swapped(net, weights, groups)
    channels = per_group * groups

    def phase(a: int, b: int, counts: Pair) -> SSAValue:
        phases = [
            phase_of(
                (a, b)[axis], counts[axis], (oh, ow)[axis], (kh, kw)[axis],
                strides[axis], dilations[axis], pads[axis],
            )
            for axis in range(2)
        ]  # fmt: skip
        return _phase(net, gradient, turned, phases, groups, (n, channels, *counts), type)

    return _interleaved(net, phase, extents, strides)


def scattered(
    net: OperatorNetwork,
    parts: Sequence[Sequence[SSAValue]],
    extents: Sequence[int],
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    type: NumericType,
) -> SSAValue:
    """Images [n, c, *extents]: pixel o*s + k - p gets element o of ``parts[k]``, summed over k.

    Parts are [n, c, oh, ow], one for each element of a window, rows of them first. Where windows do
    not overlap nothing is added: elements are moved. Sums saturate as 16 bits of the parts' type.
    """
    shape, kernel = shape_of(parts[0][0]), (len(parts), len(parts[0]))

    def phase(a: int, b: int, counts: Pair) -> SSAValue:
        met = [
            [k for k in range(kernel[axis]) if ((a, b)[axis] + pads[axis] - k) % strides[axis] == 0]
            for axis in range(2)
        ]
        total: SSAValue | None = None
        for i in met[0]:
            for j in met[1]:
                part = parts[i][j]
                for axis, k in enumerate((i, j)):
                    first = ((a, b)[axis] + pads[axis] - k) // strides[axis]
                    after = counts[axis] + first - shape[axis + 2]
                    part = net.pad(part, axis + 2, -first, after)
                if total is None:
                    total = part
                else:
                    total = net.to(net.sum("add", total, part), net.type_of(part))
        if total is None:
            return net.copied(net.constant(np.zeros((*shape[:2], *counts), np.float32), type))
        return net.to(total, type)

    return _interleaved(net, phase, extents, strides)


def _interleaved(
    net: OperatorNetwork,
    phase: Callable[[int, int, Pair], SSAValue],
    extents: Sequence[int],
    strides: Sequence[int],
) -> SSAValue:
    """[n, c, *extents] of the phases, each [n, c, *counts]."""
    counts = (-(-extents[0] // strides[0]), -(-extents[1] // strides[1]))
    rows: list[SSAValue] = []
    for a in range(strides[0]):
        row: list[SSAValue] = []
        for b in range(strides[1]):
            part = phase(a, b, counts)
            n, channels = shape_of(part)[:2]
            row.append(net.reshape(part, (n, channels, counts[0], 1, counts[1], 1)))
        rows.append(row[0] if len(row) == 1 else net.emit("concat", *row, axis=5))
    whole = rows[0] if len(rows) == 1 else net.emit("concat", *rows, axis=3)
    n, channels = shape_of(whole)[:2]
    whole = net.reshape(whole, (n, channels, counts[0] * strides[0], counts[1] * strides[1]))
    for axis in range(2):
        whole = net.slice(whole, axis + 2, 0, extents[axis])
    return whole


def _swapped(net: OperatorNetwork, weights: SSAValue, groups: int) -> SSAValue:
    """Weights [ci, co/groups, kh, kw] of the same groups, kernels turned by half a circle."""
    co, ci, kh, kw = shape_of(weights)
    whole = net.reshape(weights, (groups, co // groups, ci, kh, kw))
    whole = net.transpose(whole, (0, 2, 1, 3, 4))
    whole = net.reshape(whole, (groups * ci, co // groups, kh, kw))
    return reversed_along(net, reversed_along(net, whole, 2), 3)


def _phase(
    net: OperatorNetwork,
    gradient: SSAValue,
    turned: SSAValue,
    phases: list[Phase],
    groups: int,
    shape: tuple[int, ...],
    type: NumericType,
) -> SSAValue:
    """Emit the pixels of one phase."""
    if any(phase.count == 0 for phase in phases):
        zeros = net.constant(np.zeros(shape, np.float32), type)
        return net.copied(zeros)
    image, weights = gradient, turned
    pads, outside = [0, 0, 0, 0], [0, 0, 0, 0]
    for axis, phase in enumerate(phases):
        kernel = shape_of(turned)[axis + 2]
        last = phase.first + (phase.count - 1) * phase.step
        start, end = kernel - 1 - last, kernel - phase.first
        weights = net.slice(weights, axis + 2, start, end, phase.step)
        # What no pixel of the phase meets is cut off; pads of zeros belong to the convolution.
        image = net.pad(image, axis + 2, min(phase.before, 0), min(phase.after, 0))
        # A window that lies wholly outside gives 0: these pixels are put around the result.
        reach = (phase.count - 1) * phase.dilation
        for side, pad in ((axis, phase.before), (axis + 2, phase.after)):
            pads[side] = min(max(pad, 0), reach)
            outside[side] = max(pad, 0) - pads[side]
    part = net.emit(
        "conv",
        image,
        weights,
        pads=tuple(pads),
        dilations=(phases[0].dilation, phases[1].dilation),
        group=groups,
    )
    part = net.to(part, type)
    for axis in range(2):
        part = net.pad(part, axis + 2, outside[axis], outside[axis + 2])
    return part


def ones(net: OperatorNetwork, shape: tuple[int, ...]) -> SSAValue:
    """Ones, as integers in fixed point: sums through them are exact."""
    return net.constant(np.ones(shape, np.float32), fixed16(0))

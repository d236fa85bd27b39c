"""Convolutions without the taps that meet nothing but padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from math import gcd

import numpy as np

from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import Rewriter
from tilewright.ir import PythonValue, SSAValue
from tilewright.ir.types import element_dtype, shape_of, tensor_type


@dataclass(frozen=True)
class Axis:
    """One spatial axis of a convolution."""

    taps: range
    """The taps that are kept, of those that there were."""
    dilation: int
    pads: tuple[int, ...]
    """Before and after the image."""
    image: range
    """The rows that are kept, of those that there were."""


def crop_taps(op: Operation, at: Rewriter) -> bool:
    """Drop taps of constant weights that lie in padding at every position of the result.

    Before, on an image [1, 8, 1, 40]::

        %1 = graph.conv %x, %w {pads = [0, 255, 0, 255]}  // %w: [8, 8, 1, 511]

    After::

        %1 = graph.conv %x, %w_cropped {pads = [0, 39, 0, 39]}  // %w_cropped: [8, 8, 1, 79]

    Where taps at a distance are left, the distance joins the dilation; the dilation of a single tap
    is 1; where every tap is dead the result is the bias. A tap that is dead between others stays if
    those that are left are not equally far apart.
    """
    if op.get("fill", 0):
        return False
    image, weights, result = (shape_of(v)[2:] for v in (*op.inputs[:2], op.result))
    strides, pads = op.integers("strides"), op.integers("pads")
    whole = [
        Axis(range(weights[i]), op.integers("dilations")[i], pads[i::2], range(image[i]))
        for i in range(2)
    ]
    living = [live_taps(axis, result[i], strides[i]) for i, axis in enumerate(whole)]
    if not all(living):
        return _only_bias(op, at)
    axes = [cropped(axis, living[i], result[i], strides[i]) for i, axis in enumerate(whole)]
    if axes == whole:
        return False
    rows, columns = axes
    weight = op.inputs[1]
    if [axis.taps for axis in axes] != [axis.taps for axis in whole]:
        array = at.constant(weight)
        if array is None:
            return False
        kept = array[:, :, rows.taps][:, :, :, columns.taps]
        weight = at.weight(kept, ".weight", tensor_type(weight).element_type)
    return at.replace(along(op, axes, [weight, *op.inputs[2:]], at))


def along(
    conv: Operation, axes: Sequence[Axis], constants: Sequence[SSAValue], at: Rewriter
) -> SSAValue:
    """A convolution of the same image by other weights, and perhaps a bias, along other axes.

    A slice takes the part of the image that the axes read.
    """
    rows, columns = axes
    image = conv.inputs[0]
    if any(axis.image != range(size) for axis, size in zip(axes, shape_of(image)[2:], strict=True)):
        starts = (rows.image.start, columns.image.start)
        ends = (rows.image.stop, columns.image.stop)
        image = at.make("slice", image, starts=starts, ends=ends, axes=(2, 3))
    values: dict[str, PythonValue] = {
        **conv.values,
        "dilations": (rows.dilation, columns.dilation),
        "pads": tuple(pad for pair in zip(rows.pads, columns.pads, strict=True) for pad in pair),
    }
    return at.make("conv", image, *constants, **values)


def _only_bias(op: Operation, at: Rewriter) -> bool:
    """A convolution that reads nothing but padding is its bias, or zero."""
    kind = tensor_type(op.result)
    shape = shape_of(op.result)
    bias = at.constant(op.inputs[2]) if len(op.inputs) == 3 else np.zeros(shape[1])
    if bias is None:
        return False
    array = np.broadcast_to(bias[:, None, None], shape).astype(element_dtype(kind.element_type))
    return at.replace(at.weight(array, ".bias", kind.element_type))


def live_taps(axis: Axis, results: int, stride: int) -> list[int]:
    """The taps along an axis that read the image for at least one element of the result."""
    living: list[int] = []
    for tap in axis.taps:
        row = tap * axis.dilation - axis.pads[0]  # of the first element of the result
        element = max(0, -(row // stride))  # the first whose row is not above the image
        if element < results and row + element * stride < len(axis.image):
            living.append(tap)
    return living


def cropped(axis: Axis, living: Sequence[int], results: int, stride: int) -> Axis:
    """An axis with its live taps, for the same elements of the result."""
    first, last = living[0], living[-1]
    step = gcd(*(tap - first for tap in living)) or 1
    taps = range(first, last + 1, step)
    dilation = axis.dilation * step if len(taps) > 1 else 1
    if taps == axis.taps:
        return replace_fields(axis, dilation=dilation)
    above = axis.pads[0] - first * axis.dilation
    start, above = max(0, -above), max(0, above)
    extent = (results - 1) * stride + (len(taps) - 1) * dilation + 1 - above
    rows = len(axis.image) - start
    if rows < extent + stride:  # rows that are left over make no further element
        return Axis(taps, dilation, (above, max(0, extent - rows)), range(start, start + rows))
    return Axis(taps, dilation, (above, 0), range(start, start + extent))

"""Convolution, with any order of axes."""

from __future__ import annotations

from functools import partial

import numpy as np

from tilewright.frontends import moves
from tilewright.frontends.stablehlo.lowering import Lowering
from tilewright.frontends.stablehlo.operators.movement import padded
from tilewright.frontends.stablehlo.values import View
from tilewright.frontends.windows import Window, convolve
from tilewright.ir.types import shape_of


def convolution(at: Lowering) -> View:
    """The kernel's products with every window of the images, in the program's order of axes."""
    numbers = at.dimensions("dimension_numbers")
    images, kernel, result = (
        (int(numbers[first]), int(numbers[second]), *(int(i) for i in numbers[rest]))
        for first, second, rest in (
            ("input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions"),
            (
                "kernel_output_feature_dimension",
                "kernel_input_feature_dimension",
                "kernel_spatial_dimensions",
            ),
            ("output_batch_dimension", "output_feature_dimension", "output_spatial_dimensions"),
        )
    )
    rank = len(images) - 2
    if not 1 <= rank <= 3:
        raise at.unsupported(f"images of {rank} spatial axes; one to three are computed")
    if at.integer("batch_group_count", 1) != 1:
        raise at.unsupported(
            "groups of the batch, as the gradients of convolutions have them",
            help="export the function that infers, not its gradient",
        )
    x, w = at.views[0].transposed(images), at.views[1].transposed(kernel)
    if x.dtype != at.kind.dtype and x.dtype.kind in "iu":
        x, w = (at.converted(view, at.kind.dtype) for view in (x, w))
    ones = (1,) * rank
    flat = at.integers("padding", (0,) * (2 * rank))
    lows, highs = flat[::2], flat[1::2]
    # Gaps between pixels are made first; what pads then cut or add lies outside of them.
    gaps = at.integers("lhs_dilation", ones)
    around = [
        (min(low, 0), min(high, 0), step - 1)
        for low, high, step in zip(lows, highs, gaps, strict=True)
    ]
    x = padded(at, x, [(0, 0, 0), (0, 0, 0), *around], 0.0)
    kernel_value = at.full(_turned(at, w, rank))
    taps = shape_of(kernel_value)
    begins, ends = (tuple(max(pad, 0) for pad in pads) for pads in (lows, highs))
    window = Window(
        taps[2:],
        at.integers("window_strides", ones),
        at.integers("rhs_dilation", ones),
        begins,
        ends,
        ends,
    )
    group = at.integer("feature_group_count", 1)
    value = convolve(at, at.full(x), taps, partial(at.reshape, kernel_value), None, window, group)
    order = [result.index(axis) for axis in range(rank + 2)]
    return View.of(value).transposed(order)


def _turned(at: Lowering, w: View, rank: int) -> View:
    """The kernel, mirrored along axes for which the program says so."""
    reversal = at.op.attributes.get("window_reversal")
    flags = reversal if isinstance(reversal, list) else [False] * rank
    axes = [2 + axis for axis, flag in enumerate(flags) if flag]
    if not axes:
        return w
    if (known := w.array) is not None:
        return View.of(np.flip(known, tuple(axes)))
    value = at.full(w)
    for axis in axes:
        value = moves.reversed_along(at, value, axis)
    return View.of(value)

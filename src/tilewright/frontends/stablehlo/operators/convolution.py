"""Convolution, with any order of axes; over three spatial axes the depth's taps become channels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tilewright.frontends import moves
from tilewright.frontends.stablehlo.lowering import Lowering
from tilewright.frontends.stablehlo.operators.movement import padded
from tilewright.frontends.stablehlo.values import View
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of


@dataclass(frozen=True)
class _Window:
    """The strides, dilations and pads of the kernel, per spatial axis."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    group: int

    def last(self, count: int) -> _Window:
        """The window over the last spatial axes."""
        return replace(
            self,
            strides=self.strides[-count:],
            dilations=self.dilations[-count:],
            pads=self.pads[-count:],
        )


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
    window = _Window(
        at.integers("window_strides", ones),
        at.integers("rhs_dilation", ones),
        tuple(zip(flat[::2], flat[1::2], strict=True)),
        at.integer("feature_group_count", 1),
    )
    # Gaps between pixels are made first; what pads then cut or add lies outside of them.
    gaps = at.integers("lhs_dilation", ones)
    cuts = [tuple(min(pad, 0) for pad in pads) for pads in window.pads]
    around = [(cut[0], cut[1], step - 1) for cut, step in zip(cuts, gaps, strict=True)]
    x = padded(at, x, [(0, 0, 0), (0, 0, 0), *around], 0.0)
    pads = tuple((max(low, 0), max(high, 0)) for low, high in window.pads)
    window = replace(window, pads=pads)
    value = _convolve(at, at.full(x), at.full(_turned(at, w, rank)), window)
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


def _convolve(at: Lowering, x: SSAValue, w: SSAValue, window: _Window) -> SSAValue:
    """The convolution of images [n, c, ...] with kernels [co, ci, ...]."""
    rank = len(shape_of(x)) - 2
    if rank == 3:
        return _deep(at, x, w, window)
    if rank == 1:
        (n, c, width), (co, ci, size) = shape_of(x), shape_of(w)
        tall = _Window(
            (1, *window.strides), (1, *window.dilations), ((0, 0), *window.pads), window.group
        )
        x, w = at.reshape(x, (n, c, 1, width)), at.reshape(w, (co, ci, 1, size))
        y = _convolve(at, x, w, tall)
        return at.reshape(y, (n, co, shape_of(y)[3]))
    (top, bottom), (left, right) = window.pads
    return at.emit(
        "conv",
        x,
        w,
        strides=window.strides,
        dilations=window.dilations,
        pads=(top, left, bottom, right),
        group=window.group,
    )


def _deep(at: Lowering, x: SSAValue, w: SSAValue, window: _Window) -> SSAValue:
    co, ci, taps, *kernel = shape_of(w)

    def convolved(image: SSAValue) -> SSAValue:
        flat = at.reshape(w, (co, ci * taps, *kernel))
        return _convolve(at, image, flat, window.last(2))

    sizes = taps, window.strides[0], window.dilations[0]
    return moves.by_depth(at, x, *sizes, window.pads[0], convolved)

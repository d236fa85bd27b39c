"""DeformConv: a convolution whose taps lie at computed places.

Dai et al., "Deformable Convolutional Networks", 2017 (section 2.1).
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.frontends.moves import stretch
from tilewright.frontends.onnx.lowering import Lowering, Value
from tilewright.frontends.onnx.operators.sampling import Axis, constant, rows_of, sampled
from tilewright.frontends.onnx.windows import window_of
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of


def deform_conv(at: Lowering) -> Value:
    """Linear samples of the image at every tap, times the weights."""
    x, w, offsets = at.shape(0), at.shape(1), at.shape(2)
    group, parts = at.integer("group", 1), at.integer("offset_group", 1)
    if len(x) != 4 or len(w) != 4 or group < 1 or parts < 1:
        raise at.misfit(f"an image of shape {list(x)} is not supported")
    kernel = at.integers("kernel_shape") or w[2:]
    taps = math.prod(kernel)
    if kernel != w[2:] or x[1] != w[1] * group or w[0] % group or x[1] % parts:
        raise at.misfit(f"weights {list(w)} do not fit {list(x)}")
    window = window_of(at, kernel, pool=False)
    sizes = tuple(
        (x[2 + i] + window.begins[i] + window.ends[i] - (kernel[i] - 1) * window.dilations[i] - 1)
        // window.strides[i]
        + 1
        for i in range(2)
    )
    if offsets != (x[0], parts * taps * 2, *sizes):
        raise at.misfit(f"offsets {list(offsets)} do not fit {list(sizes)}")
    # [n, offset group, tap, axis, oh, ow]
    moved = at.reshape(at.tensor(2), (x[0], parts, taps, 2, *sizes))
    places: list[SSAValue] = []
    for i in range(2):
        shifts = stretch(at, moved, 3, i, i + 1)
        shifts = at.reshape(shifts, (x[0], parts, taps, *sizes))
        tap = np.indices(kernel)[i].reshape(taps, 1, 1) * window.dilations[i]
        step = np.indices(sizes)[i] * window.strides[i] - window.begins[i]
        places.append(at.emit("add", shifts, constant(at, tap + step, shifts, f"taps{i}")))
    # One image for every offset group: [n, parts, h, w, c / parts] as rows.
    image = at.reshape(at.tensor(0), (x[0] * parts, x[1] // parts, *x[2:]))
    first = np.arange(x[0] * parts).reshape(x[0], parts, 1, 1, 1) * (x[2] * x[3])
    start = at.weight(first.astype(np.int64), f"{at.node.name}.image")
    axes = [Axis(extent) for extent in x[2:]]
    samples = sampled(at, rows_of(at, image), places, axes, "linear", start)
    if at.has(4):
        if math.prod(at.shape(4)) != x[0] * parts * taps * math.prod(sizes):
            raise at.misfit(f"a mask {list(at.shape(4))} does not fit")
        mask = at.reshape(at.tensor(4), (x[0], parts, taps, *sizes, 1))
        samples = at.emit("mul", samples, mask)
    # [n, parts, taps, oh, ow, c / parts] to [n, group, c / group * taps, oh * ow].
    samples = at.transpose(samples, (0, 1, 5, 2, 3, 4))
    samples = at.reshape(samples, (x[0], group, x[1] // group * taps, math.prod(sizes)))
    weights = at.reshape(at.tensor(1), (1, group, w[0] // group, w[1] * taps))
    product = at.reshape(at.emit("matmul", weights, samples), (x[0], w[0], *sizes))
    if at.has(3):
        product = at.emit("add", product, at.reshape(at.tensor(3), (1, w[0], 1, 1)))
    assert shape_of(product) == (x[0], w[0], *sizes)
    return product

"""Convolution, products, pooling and normalisation on arrays of float32 or of integers.

Both go through double-precision BLAS. Sums of float32 are rounded to float32 once, so that results
are those of every machine: in single precision they depend on the BLAS's order of sums, which
differs between processors and between the rows of one product. Sums of integers (of at most 16
bits) are exact while every partial sum stays below 2**53; their results are int64. Images are
[n, c, h, w]; pads are top, left, bottom, right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.numerics.arrays import Array

BLOCK_BYTES = 32 << 20
"""Size in bytes to which unfolded images and converted matrices are cut."""

_EXACT_TERMS = 1 << 22
"""Products of two 16-bit integers that a double adds up exactly, with a bit to spare."""


def conv2d(
    x: Array,
    w: Array,
    strides: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
    dilations: Sequence[int] = (1, 1),
    group: int = 1,
) -> Array:
    """Cross-correlation of images [n, c, h, w] with weights [co, c/group, kh, kw].

    float32 in, float32 out; integers in, int64 out, exact. Images are unfolded, and weights
    converted, in blocks of at most ``BLOCK_BYTES`` (one row or channel of output at least).
    """
    n, _, h, wide = x.shape
    co, ci, kh, kw = w.shape
    kind = _working_type(x, w, ci * kh * kw)
    if group == 1 and w.dtype != kind and w.size * kind.itemsize > BLOCK_BYTES and co > 1:
        # A dense layer as a convolution: convert its weights block by block.
        step = max(1, co * BLOCK_BYTES // (w.size * kind.itemsize))
        parts = [conv2d(x, w[i : i + step], strides, pads, dilations) for i in range(0, co, step)]
        return np.concatenate(parts, axis=1)
    top, left, bottom, right = pads
    sh, sw = strides
    dh, dw = dilations
    oh = (h + top + bottom - (kh - 1) * dh - 1) // sh + 1
    ow = (wide + left + right - (kw - 1) * dw - 1) // sw + 1
    source = _padded(x, pads, 0, kind)
    if ci == 1 and co == group > 1:
        result = _depthwise(source, w[:, 0].astype(kind), strides, dilations, (oh, ow))
        return _from_working(result, x)
    filters = w.astype(kind, copy=False).reshape(group, co // group, ci * kh * kw)
    if kh == kw == sh == sw == 1:
        result = filters @ source.reshape(n, group, ci, oh * ow)
        return _from_working(result.reshape(n, co, oh, ow), x)

    item = source.itemsize
    plane, row = source.shape[2] * source.shape[3] * item, source.shape[3] * item
    block = max(1, min(oh, BLOCK_BYTES // max(1, group * ci * kh * kw * ow * item)))
    images = max(1, min(n, BLOCK_BYTES // max(1, group * ci * kh * kw * oh * ow * item)))
    whole = block == oh and images == n
    result = np.empty((0,) if whole else (n, co, oh, ow), kind)
    for first in range(0, n, images):
        count = min(images, n - first)
        for start in range(0, oh, block):
            rows = min(block, oh - start)
            windows = np.ndarray(
                (count, group, ci, kh, kw, rows, ow),
                kind,
                source,
                first * group * ci * plane + start * sh * row,
                (group * ci * plane, ci * plane, plane, dh * row, dw * item, sh * row, sw * item),
            )
            columns = windows.reshape(count, group, ci * kh * kw, rows * ow)
            part = (filters @ columns).reshape(count, co, rows, ow)
            if whole:
                result = part
            else:
                result[first : first + count, :, start : start + rows] = part
    return _from_working(result, x)


def conv_transpose(
    x: Array,
    w: Array,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    group: int = 1,
) -> Array:
    """What the elements of images [n, ci, places...] give, times the taps of [ci, co/group,
    taps...], to the places that their windows cover.

    ``pads`` are cut off before and after each axis; negative ones add zeros.
    """
    n, ci, *extents = x.shape
    outputs, taps, rank = w.shape[1], w.shape[2:], len(extents)
    kind = _working_type(x, w, ci * prod(taps))
    before, after = pads[:rank], pads[rank:]
    reach = [
        (e - 1) * s + (k - 1) * d + 1
        for e, s, k, d in zip(extents, strides, taps, dilations, strict=True)
    ]
    # With all that is cut off, and room for what is added.
    room = [r + max(0, -a) + max(0, -b) for r, b, a in zip(reach, before, after, strict=True)]
    start = [max(0, -b) for b in before]
    result = np.zeros((n, group, outputs, *room), kind)
    images = x.astype(kind).reshape(n, group, ci // group, prod(extents))
    filters = w.astype(kind).reshape(group, ci // group, outputs, *taps).swapaxes(1, 2)
    for tap in np.ndindex(*taps):
        part = filters[(slice(None), slice(None), slice(None), *tap)] @ images
        spans = tuple(
            slice(first + t * d, first + t * d + (e - 1) * s + 1, s)
            for first, t, d, e, s in zip(start, tap, dilations, extents, strides, strict=True)
        )
        result[(slice(None), slice(None), slice(None), *spans)] += part.reshape(
            n, group, outputs, *extents
        )
    cut = tuple(
        slice(max(0, b), size - max(0, a)) for b, a, size in zip(before, after, room, strict=True)
    )
    return _from_working(result.reshape(n, group * outputs, *room)[(slice(None),) * 2 + cut], x)


def matmul(a: Array, b: Array) -> Array:
    """a @ b over the last two axes, leading axes broadcast.

    float32 in, float32 out; integers in, int64 out, exact. Matrices are converted in blocks of
    columns.
    """
    kind = _working_type(a, b, a.shape[-1])
    left = a.astype(kind, copy=False)
    size = b.size * np.dtype(kind).itemsize
    if b.dtype == kind or size <= BLOCK_BYTES:
        return _from_working(left @ b.astype(kind, copy=False), a)
    columns = b.shape[-1]
    step = max(1, columns * BLOCK_BYTES // size)
    parts = [left @ b[..., i : i + step].astype(kind) for i in range(0, columns, step)]
    return _from_working(np.concatenate(parts, axis=-1), a)


def max_pool2d(
    x: Array,
    kernel: Sequence[int],
    strides: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
    dilations: Sequence[int] = (1, 1),
) -> Array:
    """The largest number of each window, of the same dtype; padding and NaN take no part.

    It is minus infinity where a window has no number.
    """
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    largest = _pool(np.fmax, _padded(x, pads, lowest, x.dtype), kernel, strides, dilations)
    return np.fmax(largest, x.dtype.type(lowest))


def sum_pool2d(
    x: Array,
    kernel: Sequence[int],
    strides: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
) -> Array:
    """The sum of each window: float32 in float32, integers in int64."""
    kind = x.dtype if x.dtype.kind == "f" else np.dtype(np.int64)
    return _pool(np.add, _padded(x, pads, 0, kind), kernel, strides, (1, 1))


Place = Callable[..., Array]
"""``np.argmax`` or ``np.argmin``: the place of the extreme, or of NaN, along an axis."""


def place_of_extreme(x: Array, axis: int, place: Place, *, last: bool) -> Array:
    """Return the index of the extreme along an axis; the axis remains, with extent 1.

    Of equal ones, and of several NaN, it is the first, or the last.
    """
    places = place(np.flip(x, axis) if last else x, axis=axis, keepdims=True).astype(np.int64)
    return x.shape[axis] - 1 - places if last else places


def maximum_gradient(given: Array) -> Array:
    """[n, j, p] of [n, j + 2, p]: values, the greatest and its gradient.

    The first value no less than the greatest takes the gradient, or else the last.
    """
    values, greatest, gradient = given[:, :-2], given[:, -2:-1], given[:, -1:]
    passed = values < greatest
    passed[:, -1] = False
    first = np.argmin(passed, axis=1, keepdims=True)
    taken = np.arange(values.shape[1])[None, :, None] == first
    return np.where(taken, gradient, np.zeros_like(gradient)).astype(given.dtype)


def pool_counts(
    extents: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
    dilations: Sequence[int] = (1, 1),
    counted: Sequence[int] = (0, 0, 0, 0),
) -> NDArray[np.int64]:
    """Elements [oh, ow] that each window has in the image [h, w] grown by ``counted``."""
    rows, columns = axis_counts(extents, kernel, strides, pads, dilations, counted)
    return rows[:, None] * columns


def axis_counts(
    extents: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
    dilations: Sequence[int] = (1, 1),
    counted: Sequence[int] = (0, 0, 0, 0),
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same along each axis: a window has the product of its rows' and its columns' counts."""
    counts: list[NDArray[np.int64]] = []
    for axis in range(2):
        extent, size, d = extents[axis], kernel[axis], dilations[axis]
        number = (extent + pads[axis] + pads[2 + axis] - (size - 1) * d - 1) // strides[axis] + 1
        base = np.arange(max(number, 0), dtype=np.int64) * strides[axis] - pads[axis]
        first = np.maximum(-((counted[axis] + base) // d), 0)
        last = np.minimum(-((base - extent - counted[2 + axis]) // d), size)
        counts.append(np.maximum(last - first, 0))
    return counts[0], counts[1]


def average_pool2d(
    x: Array,
    kernel: Sequence[int],
    strides: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
    counted: Sequence[int] = (0, 0, 0, 0),
) -> Array:
    """The mean of each window of float32; the divisor is ``pool_counts``."""
    counts = pool_counts(x.shape[2:], kernel, strides, pads, (1, 1), counted)
    return sum_pool2d(x, kernel, strides, pads) / counts.astype(x.dtype)


def lrn(x: Array, size: int, alpha: float, beta: float, bias: float) -> Array:
    """x / (bias + alpha/size * s)**beta, s the sum of squares over channels around each."""
    return x / (bias + channel_window_sum(np.square(x), size) * (alpha / size)) ** beta


def channel_window_sum(x: Array, size: int) -> Array:
    """Sums over the ``size`` channels (axis 1) from c - (size-1)//2; absent channels count 0."""
    before = (size - 1) // 2
    channels = x.shape[1]
    total = x.copy()
    for offset in range(-before, size - before):
        if offset < 0:
            total[:, -offset:] += x[:, : channels + offset] if -offset < channels else 0
        elif 0 < offset < channels:
            total[:, : channels - offset] += x[:, offset:]
    return total


def softmax(x: Array, axis: int) -> Array:
    """exp(x) over its sum along an axis."""
    with np.errstate(invalid="ignore"):  # A row of nothing but -infinity is not a number.
        e = np.exp(x - x.max(axis=axis, keepdims=True))
        return e / e.sum(axis=axis, keepdims=True)


def layer_norm(x: Array, others: Sequence[Array], epsilon: float, *, centred: bool) -> Array:
    """(x - mean) / sqrt(variance + epsilon), times and plus ``others``, over the last axis.

    In float64, rounded once. Without ``centred`` the mean square takes the variance's place.
    """
    wide = x.astype(np.float64)
    if centred:
        wide = wide - wide.mean(-1, keepdims=True)
    with np.errstate(all="ignore"):
        wide = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + epsilon)
        for array, combine in zip(others, (np.multiply, np.add), strict=False):
            wide = combine(wide, array.astype(np.float64))
    return wide.astype(x.dtype)


def batch_norm(
    x: Array, scale: Array, shift: Array, mean: Array, variance: Array, epsilon: float
) -> Array:
    """scale * (x - mean) / sqrt(variance + epsilon) + shift, per channel (axis 1)."""
    per_channel = (-1,) + (1,) * (x.ndim - 2)
    factor = scale / np.sqrt(variance + epsilon)
    return x * factor.reshape(per_channel) + (shift - mean * factor).reshape(per_channel)


def _working_type(a: Array, b: Array, terms: int) -> np.dtype[Any]:
    """The dtype to multiply and add in: exact for integers of a sum of that many products."""
    if a.dtype.kind == "f":
        return np.dtype(np.float64)
    exact = a.dtype.itemsize <= 2 and b.dtype.itemsize <= 2 and terms <= _EXACT_TERMS
    return np.dtype(np.float64 if exact else np.int64)


def _from_working(result: Array, like: Array) -> Array:
    """Rounded to the operands' dtype, to infinity beyond its range; integers as int64."""
    if like.dtype.kind != "f":
        return result.astype(np.int64, copy=False)
    with np.errstate(over="ignore"):
        return result.astype(like.dtype, copy=False)


def _padded(x: Array, pads: Sequence[int], value: float, kind: np.dtype[Any]) -> Array:
    """x in another dtype with a border, C-contiguous; x itself if nothing changes."""
    top, left, bottom, right = pads
    n, c, h, w = x.shape
    if top == left == bottom == right == 0:
        return np.ascontiguousarray(x, dtype=kind)
    shape = (n, c, h + top + bottom, w + left + right)
    result = np.zeros(shape, kind) if value == 0 else np.full(shape, value, kind)
    result[:, :, top : top + h, left : left + w] = x
    return result


def _pool(
    combine: np.ufunc,
    source: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> Array:
    """Combines windows along w, then along h; both combinations are associative."""
    for axis in (3, 2):
        size, stride, dilation = kernel[axis - 2], strides[axis - 2], dilations[axis - 2]
        count = (source.shape[axis] - (size - 1) * dilation - 1) // stride + 1
        span = (count - 1) * stride + 1
        index: list[slice] = [slice(None)] * 4
        index[axis] = slice(0, span, stride)
        result = source[tuple(index)].copy()
        for k in range(1, size):
            index[axis] = slice(k * dilation, k * dilation + span, stride)
            combine(result, source[tuple(index)], out=result)
        source = result
    return source


def _depthwise(
    source: Array,
    w: Array,
    strides: Sequence[int],
    dilations: Sequence[int],
    extents: Sequence[int],
) -> Array:
    """One filter [c, kh, kw] per channel, kernel position by kernel position."""
    (sh, sw), (dh, dw), (oh, ow) = strides, dilations, extents
    result = np.zeros((source.shape[0], source.shape[1], oh, ow), source.dtype)
    for i in range(w.shape[1]):
        rows = slice(i * dh, i * dh + (oh - 1) * sh + 1, sh)
        for j in range(w.shape[2]):
            columns = slice(j * dw, j * dw + (ow - 1) * sw + 1, sw)
            result += source[:, :, rows, columns] * w[:, i, j, None, None]
    return result

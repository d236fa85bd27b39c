"""Fixed point: integers with a binary point, value = integer / 2**fraction.

Every function is exact: integers inside, 64-bit at most, so that C and hardware can do the same.
Sums and products of operands of 8 or 16 bits are 32-bit accumulators **modulo 2**32**: any order
and any tiling gives the same bits. Coming back to 8 or 16 bits saturates.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.numerics import reference
from tilewright.numerics.arrays import Array

SLOPE_FRACTION = 14
"""Fraction bits of the slope of leaky_relu."""


def saturate(values: Array, dtype: Any = np.int16) -> Array:
    """Integers cut to a dtype's range, in that dtype."""
    limits = np.iinfo(dtype)
    return np.minimum(np.maximum(values, limits.min), limits.max).astype(dtype)


def wrap32(values: Array) -> NDArray[np.int32]:
    """Integers modulo 2**32, as two's complement."""
    return values.astype(np.int32)


def quantise(x: Array, fraction: int, dtype: Any = np.int16) -> Array:
    """Floats to integers: rint(x * 2**fraction), half to even, saturated; NaN gives 0."""
    wide, limits = x.astype(np.float64), np.iinfo(dtype)
    with np.errstate(over="ignore"):
        scaled = np.where(np.isnan(wide), 0.0, np.rint(wide * 2.0**fraction))
    return np.clip(scaled, limits.min, limits.max).astype(dtype)


def quantise32(x: Array, fraction: int) -> NDArray[np.int32]:
    """Floats to 32-bit integers (biases), as ``quantise``."""
    return quantise(x, fraction, np.int32)


def dequantise(x: Array, fraction: int) -> NDArray[np.float32]:
    """Integers to the nearest float32."""
    return (x.astype(np.float64) * 2.0**-fraction).astype(np.float32)


def shift_right_rounded(values: Array, shift: int) -> Array:
    """values / 2**shift as int64, rounded half up; a negative shift multiplies.

    Values must lie in 32 bits and the magnitude of the result in 63.
    """
    wide = values.astype(np.int64)
    if shift > 0:
        if shift > 62:
            return np.zeros_like(wide)
        wide += 1 << (shift - 1)
        wide >>= shift
    elif shift < 0:
        wide <<= min(-shift, 32)
    return wide


def requantise(acc: Array, from_fraction: int, to_fraction: int, dtype: Any = np.int16) -> Array:
    """Accumulators of at most 32 bits to 8 or 16 bits at another binary point.

    With s = from - to > 0: (acc + 2**(s-1)) >> s, so half rounds up; else acc << -s. Saturated.
    """
    return saturate(shift_right_rounded(acc, from_fraction - to_fraction), dtype)


def rounded_divide(total: Array, count: Array | int) -> Array:
    """floor((2*total + count) / (2*count)): half rounds up; count must be positive."""
    doubled = np.asarray(count, dtype=np.int64) * 2
    return (2 * total.astype(np.int64) + count) // doubled


def conv2d(
    x: Array,
    w: Array,
    bias: Array | None = None,
    strides: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
    dilations: Sequence[int] = (1, 1),
    group: int = 1,
) -> NDArray[np.int32]:
    """Convolution of 16-bit images and weights with a 32-bit bias [co]; modulo 2**32."""
    total = reference.conv2d(x, w, strides, pads, dilations, group)
    if bias is not None:
        total += bias[:, None, None]
    return wrap32(total)


def matmul(a: Array, b: Array, bias: Array | None = None) -> NDArray[np.int32]:
    """Product of 16-bit matrices with a 32-bit bias that broadcasts; modulo 2**32."""
    total = reference.matmul(a, b)
    if bias is not None:
        total += bias
    return wrap32(total)


def average_pool2d(
    x: Array,
    kernel: Sequence[int],
    strides: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
    counted: Sequence[int] = (0, 0, 0, 0),
) -> Array:
    """The mean of each window, rounded half up, of the same dtype."""
    counts = reference.pool_counts(x.shape[2:], kernel, strides, pads, (1, 1), counted)
    return rounded_divide(reference.sum_pool2d(x, kernel, strides, pads), counts).astype(x.dtype)


def scaled_pool2d(
    x: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    factor: int,
    shift: int,
) -> Array:
    """Sums of windows times factor / 2**shift, rounded half up and saturated, of the same dtype."""
    total = reference.sum_pool2d(x, kernel, strides, pads).astype(np.int64) * factor
    return saturate(shifted(total, shift), x.dtype)


def reduce_mean(x: Array, axes: Sequence[int], keep_dims: bool) -> Array:
    """The mean over axes, rounded half up, of the same dtype."""
    total = x.sum(axis=tuple(axes), keepdims=keep_dims, dtype=np.int64)
    count = x.size // max(total.size, 1)
    return np.asarray(rounded_divide(np.asarray(total), count)).astype(x.dtype)


@lru_cache(maxsize=64)
def lrn_tables(beta: float, factor: float = 1.0) -> tuple[Array, Array, Array]:
    """Return the tables that ``lrn`` looks up: mantissas [257], factors [64], shifts [64].

    mantissas[i] is (1 + i/256)**-beta with 15 fraction bits. factors[e] / 2**14 / 2**shifts[e] is
    2**(-beta * (e - 20)) times ``factor``, the factor in [2**14, 2**15].
    """
    mantissas = np.rint((1 + np.arange(257) / 256) ** -beta * 2.0**15).astype(np.int64)
    powers = -beta * (np.arange(64) - 20.0) + log2(factor)
    whole = np.floor(powers)
    factors = np.rint(2.0 ** (powers - whole) * 2.0**14).astype(np.int64)
    return mantissas, factors, (-whole).astype(np.int64)


def lrn(
    x: Array,
    size: int,
    alpha: float,
    beta: float,
    bias: float,
    in_fraction: int,
    out_fraction: int,
) -> NDArray[np.int16]:
    """Local response normalisation of 16-bit images, to 16 bits at another binary point.

    With f and g the binary points in and out, all in 64-bit integers:

    1. s = sum of x*x over the window of channels (2f fraction bits).
    2. t = k + round(s * m >> (2f + 10)), with 20 fraction bits; m = rint(alpha/size * 2**30) and
       k = max(rint(bias * 2**20), 1). Needs alpha < 4 and -5 <= f <= 26: then t < 2**63.
    3. t = 2**e * (1 + u), u in [0, 1) kept to 16 bits (upper 8 the segment i, lower 8 the place
       r): p = M[i] + (((M[i+1] - M[i])*r + 128) >> 8), the mantissas' table, 15 fraction bits.
    4. scale = p * F[e], with 29 + S[e] fraction bits (``lrn_tables``).
    5. result = x * scale, shifted right by 29 + S[e] + f - g with half rounded up, saturated.
    """
    total = lrn_base(
        reference.channel_window_sum(np.square(x.astype(np.int64)), size),
        size,
        alpha,
        bias,
        in_fraction,
    )
    return lrn_scale(x, total, lrn_tables(beta), in_fraction, out_fraction)


def lrn_scale(
    x: Array,
    total: Array,
    tables: tuple[Array, Array, Array],
    in_fraction: int,
    out_fraction: int,
) -> NDArray[np.int16]:
    """Steps 3 to 5 of ``lrn``: x times ``total`` to the power that the tables hold."""
    mantissas, factors, shifts = tables
    exponent = _floor_log2(total)
    down = np.maximum(exponent - 16, 0)
    place = ((total >> down) << np.maximum(16 - exponent, 0)) & 0xFFFF
    segment, rest = place >> 8, place & 255
    low = mantissas[segment]
    scale = low + (((mantissas[segment + 1] - low) * rest + 128) >> 8)
    product = x.astype(np.int64) * scale * factors[exponent]
    shift = 29 + shifts[exponent] + (in_fraction - out_fraction)
    right = np.clip(shift, 0, 62)
    rounded = (product + ((np.int64(1) << right) >> 1)) >> right
    return saturate(rounded << np.clip(-shift, 0, 17))


def lrn_base(squares: Array, size: int, alpha: float, bias: float, in_fraction: int) -> Array:
    """Step 2 of ``lrn``: bias + alpha/size * squares with 20 fraction bits."""
    multiplier = round(alpha / size * 2**30)
    constant = max(round(bias * 2**20), 1)
    return constant + shifted(squares * multiplier, 2 * in_fraction + 10)


def _floor_log2(values: Array) -> Array:
    """floor(log2) of positive int64, exactly."""
    high = values >> 32
    upper = np.frexp(high.astype(np.float64))[1] - 1
    lower = np.frexp((values & 0xFFFFFFFF).astype(np.float64))[1] - 1
    return np.where(high > 0, upper + 32, lower).astype(np.int64)


_LOG2_E = 47274
"""log2(e) with 15 fraction bits."""

_HALVINGS = np.rint(2.0 ** (16 - np.arange(257) / 256)).astype(np.int64)
"""2**-(i/256) with 16 fraction bits."""


def exponential(distance: Array, fraction: int) -> NDArray[np.int64]:
    """exp(-distance / 2**fraction) with 16 fraction bits, of integers in [0, 2**16).

    z = distance * log2(e), log2(e) = 47274 / 2**15, rounded half up to 16 fraction bits. Its whole
    part n shifts, its upper 8 fraction bits choose a segment of the table of 2**-u, the lower 8
    the place in it; the shift by n rounds half up. Needs -29 <= fraction <= 46.
    """
    z = np.minimum(
        shifted(distance.astype(np.int64) * _LOG2_E, fraction - 1), np.int64(48) << np.int64(16)
    )
    segment, rest = (z >> 8) & 255, z & 255
    low = _HALVINGS[segment]
    value = low + (((_HALVINGS[segment + 1] - low) * rest + 128) >> 8)
    whole = z >> 16
    return (value + ((np.int64(1) << whole) >> 1)) >> whole


def shifted(values: Array, shift: int) -> Array:
    """values / 2**shift, rounded half up; a negative shift multiplies. Sums must fit 64 bits."""
    return (values + ((1 << shift) >> 1)) >> shift if shift >= 0 else values << -shift


def softmax(x: Array, axis: int, in_fraction: int, out_fraction: int) -> NDArray[np.int16]:
    """Softmax of 16-bit x along an axis, to 16 bits.

    e = exponential(max - x); result = rounded_divide(e << out_fraction, sum of e), saturated. An
    ``out_fraction`` of 14 holds 1.0 exactly. Needs out_fraction <= 40.
    """
    wide = x.astype(np.int64)
    e = exponential(wide.max(axis=axis, keepdims=True) - wide, in_fraction)
    total = e.sum(axis=axis, keepdims=True)
    return saturate(rounded_divide(shifted(e, -out_fraction), total))

"""The gradient of local response normalisation, in floats and in fixed point.

With t = bias + alpha/size * the sum of squares over a window of channels,
dx = dy * t**-beta - 2*alpha*beta/size * x * w, where w sums r = dy * x * t**-(beta + 1) over the
channels whose windows reach this one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log2, sqrt

import numpy as np
from numpy.typing import NDArray

from tilewright.numerics import fixed, reference
from tilewright.numerics.arrays import Array

LEAST = 2.0**-40
"""The least 2*alpha*beta/size that is used: no product of 16-bit numbers reaches it."""


@dataclass(frozen=True)
class Points:
    """The scales of ``in_fixed_point`` between its operands and its result."""

    factor: float
    """The factor 2*alpha*beta/size of the sums."""
    ratio: int
    """Binary point of factor * x * t**-(beta + 1)."""
    spare: int
    """Bits by which products are shortened, so that their sums have 32."""
    last: int
    """Shift of the sums times x."""
    back: int
    """Channels before the first of a window of sums."""


def settle(
    size: int, alpha: float, beta: float, bias: float, points: tuple[int, int, int]
) -> Points:
    """The scales, from the settings and the binary points of x, dy and dx.

    No 16-bit operand makes what lies between overflow.
    """
    x, gradient, result = points
    steep, share = beta + 1, alpha / size
    largest = 2.0 ** (15 - x)
    bound = largest * bias**-steep
    if share:
        # Where x / (bias + share * x**2)**steep is greatest, if x reaches that.
        at = min(sqrt(bias / (share * (2 * steep - 1))), largest)
        bound = min(bound, at / (bias + share * at**2) ** steep)
    factor = max(2 * alpha * beta / size, LEAST)
    ratio = max(min(14 - floor(log2(bound * factor)), 46), -16)
    spare = ceil(log2(size))
    last = max(min(ratio + gradient - spare + x - result, 62), -16)
    return Points(factor, ratio, spare, last, size - 1 - (size - 1) // 2)


def in_floats(
    x: Array, gradient: Array, size: int, alpha: float, beta: float, bias: float
) -> Array:
    """dx in the operands' own type."""
    total = bias + reference.channel_window_sum(np.square(x), size) * (alpha / size)
    ratio = gradient * x * total ** -(beta + 1)
    sums = _sums_back(ratio, size)
    return gradient * total**-beta - (2 * alpha * beta / size) * x * sums


def in_fixed_point(
    x: Array,
    gradient: Array,
    size: int,
    alpha: float,
    beta: float,
    bias: float,
    points: tuple[int, int, int],
) -> NDArray[np.int16]:
    """dx of 16-bit images; ``points`` are the binary points of x, dy and dx.

    1. t as ``fixed.lrn`` has it; a = dy * t**-beta at dx's point and r = factor * x *
       t**-(beta + 1) at ``ratio``, both by its steps 3 to 5.
    2. m = r * dy, shifted right by ``spare``; w sums them over windows, in 32 bits.
    3. dx = a - w * x, the latter shifted by ``last``; shifts round half up, dx saturates.
    """
    how = settle(size, alpha, beta, bias, points)
    squares = reference.channel_window_sum(np.square(x.astype(np.int64)), size)
    total = fixed.lrn_base(squares, size, alpha, bias, points[0])
    first = fixed.lrn_scale(gradient, total, fixed.lrn_tables(beta), points[1], points[2])
    steeper = fixed.lrn_tables(beta + 1, how.factor)
    ratio = fixed.lrn_scale(x, total, steeper, points[0], how.ratio)
    sums = _sums_back(fixed.shifted(ratio.astype(np.int64) * gradient, how.spare), size)
    return fixed.saturate(first - fixed.shifted(sums * x, how.last))


def _sums_back(values: Array, size: int) -> Array:
    """Sums over the channels whose windows reach each."""
    return reference.channel_window_sum(values[:, ::-1], size)[:, ::-1]

"""int8 with power-of-two scales, as FPGA CNN cores (AMD's DPUCZDX8G) compute it.

A tensor holds int8 numbers; a number stands for value = number / 2**fraction, and every tensor has
a fraction of its own, weights and biases too. Every function here is exact: integers of 64 bits
inside, one rounding at the end, half towards plus infinity, then saturation to -128 to 127.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tilewright.numerics import fixed
from tilewright.numerics.arrays import Array

Activation = Literal["none", "relu", "prelu", "leaky", "relu6"]
"""The activations after a sum; their order is that of the numbers in instructions."""

ACTIVATIONS: tuple[Activation, ...] = ("none", "relu", "prelu", "leaky", "relu6")

LEAKY = 26
"""Slope of leaky ReLU, in 256ths."""

RELU6_LIMIT = 96
"""The upper bound of ReLU6: 6 at a fraction of 4, whatever the fraction of the result is."""

GUARD_BITS = 2
"""Fraction bits that operands of an elementwise operation keep beyond the coarsest of them."""

AVERAGE_FACTORS = {3: (28, 8), 5: (10, 8), 6: (7, 8), 7: (21, 10)}
"""Width of an average pool's window -> (factor, shift): its sum times factor / 2**shift. Windows of
width 1, 2, 4 and 8 are divided by their number of elements."""

_ENOUGH = 50
"""Bits of a shift beyond which every sum rounds to 0: sums have less than 49."""


def saturate8(values: Array) -> NDArray[np.int8]:
    """Integers cut to int8."""
    return fixed.saturate(values, np.int8)


def rounded_shift(values: Array, shift: int) -> NDArray[np.int64]:
    """floor(values / 2**shift + 1/2): half rounds up; a negative shift multiplies.

    Values must lie in 49 bits, and the results too.
    """
    return fixed.shifted(np.asarray(values, np.int64), min(shift, _ENOUGH))


def requantise(
    total: Array, bias: Array | int, shift_bias: int, shift_cut: int, activation: Activation
) -> NDArray[np.int8]:
    """A convolution's sums of products to its results.

    t = (2*total + bias * 2**shift_bias) / 2**(shift_cut + 1), activated, rounded, saturated. With
    fractions fi of the input, fw of the weights, fb of the bias and fo of the result, shift_cut is
    fi + fw - fo and shift_bias fi + fw - fb + 1, so that a bias may have half a unit of the sums.
    """
    numerator = 2 * np.asarray(total, np.int64) + (np.asarray(bias, np.int64) << shift_bias)
    return saturate8(_activated(numerator, shift_cut + 1, activation))


def requantise_without_bias(
    total: Array, shift_cut: int, activation: Activation
) -> NDArray[np.int8]:
    """total / 2**shift_cut, activated, rounded, saturated."""
    return saturate8(_activated(np.asarray(total, np.int64), shift_cut, activation))


def _activated(numerator: Array, shift: int, activation: Activation) -> NDArray[np.int64]:
    """The activation of numerator / 2**shift, rounded."""
    if activation == "relu":
        numerator = np.maximum(numerator, 0)
    elif activation == "leaky":
        numerator = numerator * np.where(numerator < 0, LEAKY, 256)
        shift += 8
    elif activation == "relu6":
        limit = RELU6_LIMIT << min(shift, _ENOUGH)
        numerator = np.minimum(np.maximum(numerator, 0), limit)
    elif activation != "none":
        raise ValueError(f"{activation} has slopes of its own")
    return rounded_shift(numerator, shift)


def elementwise(
    operands: Sequence[Array],
    shifts_read: Sequence[int],
    shift_write: int,
    *,
    multiply: bool = False,
    relu: bool = False,
) -> NDArray[np.int8]:
    """The sum, or the product, of int8 operands of several fractions.

    Each operand becomes floor(x * 4 / 2**shift_read): it loses what lies below two guard bits of
    the coarsest fraction, so that a sum may be less than the exact one, where two operands lose
    bits or the sum is scaled up. The sum (product) is scaled by 2**shift_write, the guard bits are
    divided away, and it is rounded and saturated.
    """
    aligned = [
        np.asarray(x, np.int64) << GUARD_BITS >> shift
        for x, shift in zip(operands, shifts_read, strict=True)
    ]
    total = aligned[0]
    for operand in aligned[1:]:
        total = total * operand if multiply else total + operand
    if relu:
        total = np.maximum(total, 0)
    guard = GUARD_BITS * (len(aligned) if multiply else 1)
    return saturate8(rounded_shift(total, guard - shift_write))


def average(total: Array, kernel: tuple[int, int], shift: int) -> NDArray[np.int8]:
    """Sums over windows of ``kernel`` (height, width) elements to their averages times 2**shift.

    The width alone selects the factor (``AVERAGE_FACTORS``). Raises KeyError for a width that has
    none. Padding counts as elements of 0.
    """
    height, width = kernel
    if width in (1, 2, 4, 8):
        total = np.asarray(total, np.int64) << max(shift, 0)
        return saturate8(fixed.rounded_divide(total, width * height << max(-shift, 0)))
    factor, bits = AVERAGE_FACTORS[width]
    return saturate8(rounded_shift(np.asarray(total, np.int64) * factor, bits - shift))


def scaled(values: Array, shift: int) -> NDArray[np.int8]:
    """values * 2**shift, rounded and saturated: what follows the maximum of a window."""
    return saturate8(rounded_shift(values, -shift))


def sloped(
    values: Array, slope: Array | int, shift_negative: int, shift_positive: int
) -> NDArray[np.int8]:
    """PReLU: x*slope / 2**shift_negative where x is negative, else x / 2**shift_positive."""
    wide = np.asarray(values, np.int64)
    negative = rounded_shift(wide * np.asarray(slope, np.int64), shift_negative)
    return saturate8(np.where(wide < 0, negative, rounded_shift(wide, shift_positive)))


def hard_sigmoid(values: Array, shift_bias: int, shift_cut: int) -> NDArray[np.int8]:
    """clip(x*2731 + 3*2731*2**shift_bias, 0, 2**32) / 2**shift_cut, rounded and saturated."""
    wide = np.asarray(values, np.int64) * 2731 + (3 * 2731 << shift_bias)
    return saturate8(rounded_shift(np.minimum(np.maximum(wide, 0), 1 << 32), shift_cut))

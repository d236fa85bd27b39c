"""Symmetric linear quantisation: a real number is integer * scale.

Scales follow onnxruntime.quantization: the largest magnitude falls on the largest integer (127 of
8 bits), so the least integer (-128) is never needed; 0 is always exact.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilewright.numerics.arrays import Array

LEAST_SCALE = float(np.finfo(np.float32).tiny)
"""Values of no magnitude get a scale of 1 instead of one below this."""

SHRINKING = np.linspace(1.0, 0.5, 51)
"""Parts of a weight's largest magnitude that are tried as its limit."""


def levels(bits: int) -> int:
    """The largest signed integer of ``bits`` bits."""
    return (1 << (bits - 1)) - 1


def scales_of(limits: Array | float, bits: int, power_of_two: bool = False) -> NDArray[np.float32]:
    """Scales that bring magnitudes up to ``limits`` onto integers of ``bits`` bits.

    Powers of two are rounded up, so that nothing saturates.
    """
    raw = np.asarray(limits, np.float64) / levels(bits)
    raw = np.where(raw < LEAST_SCALE, 1.0, raw)
    if power_of_two:
        raw = 2.0 ** np.ceil(np.log2(raw))
    return raw.astype(np.float32)


def quantise(x: Array, scale: Array, bits: int) -> Array:
    """x / scale to the nearest integer, of two the even one, within +-``levels(bits)``."""
    limit = levels(bits)
    units = np.rint(x.astype(np.float64) / scale)
    return np.clip(units, -limit, limit).astype(np.int8 if bits == 8 else np.int16)


def weight_scales(
    weight: Array,
    axis: int | None,
    bits: int,
    power_of_two: bool = False,
    least_error: bool = False,
) -> NDArray[np.float32]:
    """Scales of a constant: one for each index of ``axis`` (that many), or one in all (shape []).

    By the largest magnitude, or, if ``least_error``, by the limit (``SHRINKING``, or halves for
    powers of two) at which the mean of squared differences is least.
    """
    wide = np.abs(weight.astype(np.float64))
    rest = tuple(i for i in range(weight.ndim) if i != axis)
    largest = wide.max(axis=rest, initial=0.0) if axis is not None else wide.max(initial=0.0)
    best = scales_of(largest, bits, power_of_two)
    if not least_error:
        return best
    shape = [1] * weight.ndim
    if axis is not None:
        shape[axis] = weight.shape[axis]
    least: Array | None = None
    for part in (1.0, 0.5, 0.25) if power_of_two else SHRINKING:
        scale = scales_of(largest * part, bits, power_of_two)
        spread = scale.reshape(shape) if weight.ndim else scale
        error = np.square(quantise(weight, spread, bits) * spread.astype(np.float64) - weight)
        total = error.sum(axis=rest) if axis is not None else error.sum()
        if least is None:
            least, best = total, scale
        else:
            best = np.where(total < least, scale, best).astype(np.float32)
            least = np.minimum(total, least)
    return best

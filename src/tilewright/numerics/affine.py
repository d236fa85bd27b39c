"""Affine quantisation: a real number is (integer - zero point) * scale.

Floats are rounded to the nearest integer, of two to the even one, and saturate. Integer sums are
exact modulo 2**32; every step in float32 is one IEEE operation, rounded by itself (no fused
multiply-add), so that C can give the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.numerics.arrays import Array

Attributes = Mapping[str, Any]


def limits(attributes: Attributes) -> tuple[int, int]:
    """The least and the greatest integer of a result: its type's, or narrower ones."""
    limits_of_type = np.iinfo(str(attributes["to"]))
    low, high = (
        attributes.get("minimum", limits_of_type.min),
        attributes.get("maximum", limits_of_type.max),
    )
    return int(low), int(high)


def rounded(units: Array, zero: Array | int, low: int, high: int) -> NDArray[np.int32]:
    """float32 in units of the scale to integers in [low, high]; NaN gives the least."""
    below = np.asarray(np.int64(low) - zero).astype(np.float32)
    above = np.asarray(np.int64(high) - zero).astype(np.float32)
    kept = np.where(units > below, units, below)
    kept = np.where(kept < above, kept, above)
    return np.asarray(np.rint(kept).astype(np.int32) + zero, np.int32)


def quantise(x: Array, scale: Array, zero: Array) -> Array:
    """x / scale rounded, plus the zero point, in the zero point's type (8 or 16 bits)."""
    limits_of_type = np.iinfo(zero.dtype)
    with np.errstate(all="ignore"):
        units = x.astype(np.float32) / scale
    return rounded(units, zero.astype(np.int32), limits_of_type.min, limits_of_type.max).astype(
        zero.dtype
    )


def quantise_by(x: Array, attributes: Attributes) -> Array:
    """x / ``scale`` rounded, plus ``zero``, in the type ``to``."""
    with np.errstate(all="ignore"):
        units = x.astype(np.float32) / np.float32(attributes["scale"])
    return _result(units, attributes)


def dequantise(x: Array, scale: Array, zero: Array) -> NDArray[np.float32]:
    """(x - zero) * scale; the difference is taken in int32."""
    with np.errstate(all="ignore"):
        difference = x.astype(np.int32) - zero.astype(np.int32)
        return np.asarray(difference.astype(np.float32) * scale, np.float32)


def requantise(x: Array, factor: Array, attributes: Attributes) -> Array:
    """int32 accumulators times a factor, rounded, plus the zero point."""
    with np.errstate(all="ignore"):
        units = x.astype(np.float32) * factor
    return _result(units, attributes)


def add(x: Array, y: Array, attributes: Attributes) -> Array:
    """(x - its zero) * its factor + (y - its zero) * its factor, rounded, plus the zero point."""
    first = _centred(x, attributes["first_zero"]) * np.float32(attributes["first_factor"])
    second = _centred(y, attributes["second_zero"]) * np.float32(attributes["second_factor"])
    return _result(first + second, attributes)


def multiply(x: Array, y: Array, attributes: Attributes) -> Array:
    """(x - its zero) * (y - its zero), exact, times a factor, rounded, plus the zero point."""
    wide = x.astype(np.int32) - np.int32(attributes["first_zero"])
    product = wide * (y.astype(np.int32) - np.int32(attributes["second_zero"]))
    return _result(product.astype(np.float32) * np.float32(attributes["factor"]), attributes)


def look_up(x: Array, attributes: Attributes) -> Array:
    """Look x up in a table of 256 entries, which begins at the least number of x's type."""
    table = np.asarray(attributes["table"], str(attributes["to"]))
    return table[x.astype(np.int32) - int(np.iinfo(x.dtype).min)]


def _centred(x: Array, zero: int) -> NDArray[np.float32]:
    return (x.astype(np.int32) - np.int32(zero)).astype(np.float32)


def _result(units: Array, attributes: Attributes) -> Array:
    low, high = limits(attributes)
    return rounded(units, int(attributes["zero"]), low, high).astype(str(attributes["to"]))

"""Measures of the difference between a computed array and the expected one."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log10

import numpy as np

from tilewright.ir import SSAValue
from tilewright.ir.types import Array, FixedType, fraction_of, tensor_type


@dataclass(frozen=True)
class Measures:
    """Differences of an array from its reference."""

    max_abs: float
    max_rel: float
    """The largest difference over the reference's largest magnitude."""
    snr: float
    """Signal-to-noise ratio in dB: ten times the logarithm of the sum of the reference's squares
    over that of the differences; infinite if there are none."""

    @property
    def relative(self) -> float:
        """Root mean square of the differences over that of the reference."""
        return float(10 ** (-self.snr / 20)) if self.snr > -6000 else inf

    @property
    def exact(self) -> bool:
        """True if no element differs from the expected one."""
        return self.max_abs == 0


def measure(computed: Array, want: Array) -> Measures:
    """Compare two arrays of one shape; what is not a number must be so in both."""
    expected, got = want.astype(np.float64), computed.astype(np.float64)
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.where(same, 0.0, np.abs(got - expected))
    error = np.where(np.isnan(error), inf, error)
    finite = np.where(np.isfinite(expected), expected, 0.0)
    largest = float(np.abs(finite).max(initial=0.0))
    worst = float(error.max(initial=0.0))
    if worst == 0:
        return Measures(0.0, 0.0, inf)
    with np.errstate(over="ignore"):
        noise, signal = float(np.sum(error**2)), float(np.sum(finite**2))
    ratio = 10 * log10(signal / noise) if signal and noise < inf else -inf
    return Measures(worst, worst / largest if largest else inf, ratio)


def plain(value: SSAValue, array: Array) -> Array:
    """An array of a value as real numbers: fixed-point integers by their binary point."""
    if not isinstance(tensor_type(value).element_type, FixedType):
        return array
    return array.astype(np.float64) * 2.0 ** -fraction_of(value)

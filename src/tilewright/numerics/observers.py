"""Observers: which range of a tensor's values its integers shall cover.

An observer is shown a value's arrays, sample by sample, and then names a range. Values beyond it
saturate; a smaller range has finer steps. All ranges are symmetric clippings of what was seen:
(max(minimum, -limit), min(maximum, limit)).

- ``minimum-maximum``: everything seen; no value saturates.
- ``percentile``: the least limit below which the stated part of all magnitudes lies.
- ``mean-squared-error``: the limit whose integers differ least from the values, in the mean of
  squares; the clipping of Banner et al., "Post training 4-bit quantization of convolutional
  networks for rapid-deployment" (NeurIPS 2019, section 3), searched instead of modelled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import frexp

import numpy as np
from numpy.typing import NDArray

from tilewright.numerics.arrays import Array
from tilewright.numerics.formats import ObserverName

PERCENTILE = 99.99
"""Percent of a value's magnitudes that the observer ``percentile`` keeps from saturating."""

BINS = 4096
"""Bins of a histogram of magnitudes."""

CANDIDATES = 128
"""Limits that the search for the least error tries, evenly spaced up to the largest magnitude."""


@dataclass
class Histogram:
    """Counts of magnitudes in ``BINS`` bins of equal width, from 0 on.

    The width is a power of two and doubles as larger magnitudes come, which joins bins in pairs:
    counts depend on what was seen, not on its order. Zeros are left out: every scale keeps them.
    """

    exponent: int | None = None
    """The bins end at 2**exponent; None until something other than zero was seen."""
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))

    def add(self, magnitudes: Array) -> None:
        """Count finite magnitudes, float32 or float64."""
        magnitudes = magnitudes[magnitudes > 0]
        if magnitudes.size == 0:
            return
        # frexp: the largest lies below 2**needed.
        needed = frexp(float(magnitudes.max()))[1]
        if self.exponent is None:
            self.exponent = needed
        while self.exponent < needed:
            if needed - self.exponent > BINS.bit_length():
                # Whatever was counted joins the lowest bin at once.
                total, self.exponent = int(self.counts.sum()), needed
                self.counts[:] = 0
                self.counts[0] = total
                break
            pairs = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts = np.concatenate([pairs, np.zeros(BINS // 2, np.int64)])
            self.exponent += 1
        index = (magnitudes.astype(np.float64) / self.width).astype(np.int64)
        self.counts += np.bincount(index, minlength=BINS)

    @property
    def width(self) -> float:
        """Width of a bin."""
        return 2.0 ** (self.exponent or 0) / BINS

    @property
    def centres(self) -> NDArray[np.float64]:
        """The middle of every bin."""
        return (np.arange(BINS, dtype=np.float64) + 0.5) * self.width


@dataclass
class Observer:
    """Statistics of one value over all samples."""

    name: ObserverName = "minimum-maximum"
    levels: int = 127
    """Largest integer of the format, for ``mean-squared-error``."""
    power_of_two: bool = False
    """True if only limits whose scale is a power of two are tried."""
    percentile: float = PERCENTILE
    low: float = 0.0
    high: float = 0.0
    _histogram: Histogram = field(default_factory=Histogram)

    def see(self, array: Array) -> None:
        """Show the observer an array; what is not finite counts as absent."""
        values = array.reshape(-1)
        if not np.isfinite(values).all():
            values = values[np.isfinite(values)]
        if values.size == 0:
            return
        self.low = min(self.low, float(values.min()))
        self.high = max(self.high, float(values.max()))
        if self.name != "minimum-maximum":
            self._histogram.add(np.abs(values))

    @property
    def range(self) -> tuple[float, float]:
        """The range to cover; it contains 0."""
        largest = max(-self.low, self.high)
        if self.name == "minimum-maximum" or self._histogram.exponent is None:
            return self.low, self.high
        if self.name == "percentile":
            limit = min(self._percentile(), largest)
        else:
            limit = self._least_error(largest)
        return max(self.low, -limit), min(self.high, limit)

    def _percentile(self) -> float:
        """The upper end of the bin in which the percentile lies."""
        sums = np.cumsum(self._histogram.counts)
        wanted = self.percentile / 100 * float(sums[-1])
        return float(np.searchsorted(sums, wanted) + 1) * self._histogram.width

    def _least_error(self, largest: float) -> float:
        if self.power_of_two:
            top = power_of_two_at_least(largest / self.levels)
            limits = np.array([top * 2.0**-k * self.levels for k in range(9)])
        else:
            limits = largest * np.arange(CANDIDATES, 0, -1) / CANDIDATES
        errors = [self.error(float(limit)) for limit in limits]
        # Of equal errors the first: the one that clips least.
        return float(limits[int(np.argmin(errors))])

    def error(self, limit: float) -> float:
        """Sum of squared differences between values and their integers at a limit."""
        scale = limit / self.levels
        if scale <= 0:
            return float("inf")
        bins, counts = self._histogram, self._histogram.counts
        centres = bins.centres
        kept = np.minimum(np.rint(centres / scale), self.levels) * scale
        squares = (kept - centres) ** 2
        if bins.width > scale / 2:
            # Steps are finer than bins: within a bin the error is spread evenly over a step.
            squares = np.where(centres > limit, squares, scale**2 / 12)
        return float(np.sum(counts * squares))


def power_of_two_at_least(value: float) -> float:
    """The least power of two that is not below a positive value."""
    mantissa, exponent = frexp(value)
    return 2.0 ** (exponent - 1 if mantissa == 0.5 else exponent)

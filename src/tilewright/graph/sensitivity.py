"""The error to expect of a network that is computed in another order or precision.

A right implementation of an operation gives the exact result for operands that differ from the true
ones by a few units in the last place (Higham, "Accuracy and stability of numerical algorithms", 2nd
edition, sections 1.5 and 3.1). So the network is run several times with every operand of every
operation disturbed at random in that way, which is Monte Carlo arithmetic (Parker, "Monte Carlo
arithmetic: exploiting randomness in floating-point arithmetic", 1997). What the runs differ by is
the error to expect: it follows the magnitude of sums that cancel, grows along the network, and is
large where a result hangs on a comparison that is about equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import ml_dtypes
import numpy as np

from tilewright.graph.interpreter import WeightSource, interpret
from tilewright.ir import Operation
from tilewright.ir.types import Array

UNITS = 4.0
"""Units in the last place by which operands are disturbed at most: functions such as tanh are
computed to about this accuracy."""

MARGIN = 32.0
"""The allowed ratio of an engine's error to the expected one: sums in another order and Winograd's
convolutions add about ten times as much (benchmarks/results/cpu.md)."""

UNIT_ROUNDOFF = 2.0**-24
"""The rounding error of float32: half a unit in the last place of 1."""

COARSE_MARGIN = 4.0
"""The allowed ratio of the error of an engine of coarser numbers to the expected one, where
operands were disturbed by one rounding of these numbers: the order of sums adds little to such
errors, and four runs do not meet the worst."""

PERCENTILE = 90
"""Elements that happened to be hit little are given what this part of the others stays below."""


def spread(
    module: Operation,
    weights: WeightSource,
    inputs: Mapping[str, Array],
    runs: int = 4,
    units: float = UNITS,
    seed: int = 0,
) -> dict[str, Array]:
    """For each output the error to expect of each element, in its own units (float64).

    Results of integers have 0 wherever all runs agree; what is not a finite number in any run has
    infinity: nothing can be said of it. Raises what ``interpret`` raises.
    """
    generator = np.random.default_rng(seed)

    def disturbed(array: Array) -> Array:
        if not is_float(array):
            return array
        wide = array.astype(np.float64)
        # Functions of short floats are computed in float32, and rounded once.
        unit = (units if array.dtype.itemsize > 2 else 1.0) * epsilon(array) / 2
        # Whole numbers are exact in every implementation: counts, exponents, comparisons. Large
        # ones are not: from 1 / epsilon on there are no others.
        rounded = (wide != np.rint(wide)) | (np.abs(wide) >= 1 / epsilon(array))
        factor = 1 + unit * generator.uniform(-1, 1, array.shape) * rounded
        with np.errstate(all="ignore"):
            return (wide * factor).astype(array.dtype)

    with np.errstate(all="ignore"):
        plain = interpret(module, weights, inputs)
        largest = {name: np.zeros(array.shape) for name, array in plain.items()}
        for _ in range(runs):
            for name, array in interpret(module, weights, inputs, rounding=disturbed).items():
                apart = np.abs(array.astype(np.float64) - plain[name].astype(np.float64))
                largest[name] = np.maximum(
                    largest[name], np.where(np.isfinite(apart), apart, np.inf)
                )
    for name, array in largest.items():
        finite = array[np.isfinite(array)]
        if is_float(plain[name]):
            usual = float(np.percentile(finite, PERCENTILE)) if finite.size else 0.0
            largest[name] = np.maximum(array, usual)
    return largest


def rounding_errors(
    module: Operation,
    weights: WeightSource,
    inputs: Mapping[str, Array],
    plain: Mapping[str, Array],
    step: float,
    *,
    relative: bool,
    runs: int = 4,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """For each output the largest and the root-mean-square error of runs in which every operand
    of every operation was rounded to coarser numbers.

    Their ``step`` is of each number itself where it is ``relative``, else of the largest magnitude
    of a tensor. ``plain`` is what the network gives as it is. Zeros stay what they are. Elements
    that are no numbers in a run count for nothing. Raises what ``interpret`` raises.
    """
    generator = np.random.default_rng(seed)

    def rounded(array: Array, start: np.uint32) -> Array:
        if not is_float(array) or not array.size:
            return array
        if relative:
            noise = _drawn(array, start)
            noise *= step * array.astype(np.float32, copy=False)
        else:
            noise = generator.random(array.shape, np.float32)
            noise -= 0.5
            finite = np.isfinite(array)
            noise *= step * float(np.abs(array[finite]).max(initial=0))
            noise[array == 0] = 0
        noise[~np.isfinite(noise)] = 0
        return array + noise.astype(array.dtype)

    worst, squares = dict.fromkeys(plain, 0.0), dict.fromkeys(plain, 0.0)
    for start in generator.integers(2**32, size=runs, dtype=np.uint32):
        with np.errstate(all="ignore"):
            results = interpret(module, weights, inputs, rounding=partial(rounded, start=start))
            for name, array in results.items():
                apart = np.abs(array.astype(np.float64) - plain[name].astype(np.float64))
                apart = np.where(np.isfinite(apart), apart, 0.0)
                worst[name] = max(worst[name], float(apart.max(initial=0.0)))
                squares[name] += float(np.mean(np.square(apart))) if apart.size else 0.0
    return {name: (worst[name], (squares[name] / runs) ** 0.5) for name in plain}


def _drawn(array: Array, start: np.uint32) -> Array:
    """Numbers from -1/2 to 1/2 for the numbers of an array: equal ones are rounded alike, as they
    are by a format, so that a row of equal scores stays one and 1 - 1 is 0.

    The bits of a float32 are mixed as MurmurHash3 ends (Appleby, 2011), from a ``start`` of each
    run.
    """
    bits = array.astype(np.float32).reshape(-1).view(np.uint32)
    bits ^= start
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        bits ^= bits >> np.uint32(shift)
        bits *= np.uint32(factor)
    return (bits.astype(np.float32) * np.float32(2.0**-32) - np.float32(0.5)).reshape(array.shape)


def is_float(array: Array) -> bool:
    """Return True if elements are floats, of whatever width."""
    return array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16


def epsilon(array: Array) -> float:
    """The distance from 1 to the next float of an array's type."""
    return float(ml_dtypes.finfo(array.dtype).eps)

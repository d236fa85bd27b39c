"""Functions on fixed point: tables of 257 entries with linear interpolation.

A 16-bit operand's upper 8 bits choose a segment, its lower 8 bits the place in it:

    i = (x + 32768) >> 8,  r = x & 255,  y = t[i] + (((t[i + 1] - t[i])*r + 128) >> 8)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import erf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.numerics.arrays import Array
from tilewright.numerics.operators import PARAMETERS

Function = Callable[..., Array]


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def hard_sigmoid(x: Array, alpha: float = 0.2, beta: float = 0.5) -> Array:
    """min(max(alpha * x + beta, 0), 1)."""
    return np.minimum(np.maximum(x * alpha + beta, 0), 1)


def hard_swish(x: Array) -> Array:
    """x * min(max(x/6 + 1/2, 0), 1)."""
    return x * hard_sigmoid(x, 1 / 6, 0.5)


def silu(x: Array) -> Array:
    """Return x * sigmoid(x), element by element."""
    return x * sigmoid(x)


def exp(x: Array) -> Array:
    """exp(x); infinite where that overflows."""
    with np.errstate(over="ignore", under="ignore"):
        return np.exp(x)


def log(x: Array) -> Array:
    """The natural logarithm; NaN below 0 and -infinity at 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(x)


def sqrt(x: Array) -> Array:
    """The square root; NaN below 0."""
    with np.errstate(invalid="ignore"):
        return np.sqrt(x)


def error_function(x: Array) -> Array:
    """The error function, in float64 inside."""
    flat = [erf(value) for value in x.ravel().tolist()]
    return np.array(flat, dtype=np.float64).reshape(x.shape).astype(x.dtype)


def gelu(x: Array) -> Array:
    """x times the normal distribution's function at x, in float64 inside."""
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore"):  # -infinity * 0
        return (0.5 * wide * (1 + error_function(wide * np.sqrt(0.5)))).astype(x.dtype)


def elu(x: Array, alpha: float = 1.0) -> Array:
    """x, or alpha * (exp(x) - 1) where x is negative."""
    return np.where(x < 0, np.expm1(np.minimum(x, 0)) * alpha, x)


def softplus(x: Array) -> Array:
    """log(1 + exp(x)), without overflow."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


FUNCTIONS: dict[str, Function] = {
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "hard_sigmoid": hard_sigmoid,
    "hard_swish": hard_swish,
    "silu": silu,
    "exp": exp,
    "log": log,
    "sqrt": sqrt,
    "erf": error_function,
    "gelu": gelu,
    "elu": elu,
    "softplus": softplus,
}
"""Operation -> float function; it takes the operation's attributes, too, in order."""


def parameters_of(operation: str, attributes: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the parameters of a function after its operand, from an operation's attributes."""
    return tuple(float(attributes[name]) for name in PARAMETERS[operation])


def table_of(
    function: Callable[[Array], Array], in_fraction: int, out_fraction: int
) -> NDArray[np.int16]:
    """The 257 entries of a float function between two binary points.

    Entry i is the function at (256*i - 32768) / 2**in_fraction, rounded half to even and
    saturated. Where the function is not a number (a root or logarithm of a negative operand) the
    entry is that of the nearest larger operand that has a number.
    """
    points = (np.arange(257, dtype=np.float64) * 256 - 32768) * 2.0**-in_fraction
    with np.errstate(over="ignore"):  # saturated below
        values = np.asarray(function(points), dtype=np.float64) * 2.0**out_fraction
    known = ~np.isnan(values)
    if not known.all():
        first = int(np.argmax(known)) if known.any() else 0
        values[:first] = values[first] if known.any() else 0
    return np.clip(np.rint(values), -32768, 32767).astype(np.int16)


@lru_cache(maxsize=256)
def table(
    operation: str, in_fraction: int, out_fraction: int, parameters: tuple[float, ...] = ()
) -> NDArray[np.int16]:
    """The table of an operation in ``FUNCTIONS``; read-only, made once.

    ``parameters`` are the values of the operation's attributes, in order. Raises KeyError.
    """
    function, count = FUNCTIONS[operation], len(PARAMETERS[operation])
    if len(parameters) > count:
        raise KeyError(f"{operation} takes {count} parameters")
    result = table_of(lambda x: function(x, *parameters), in_fraction, out_fraction)
    result.setflags(write=False)
    return result


def interpolate(entries: Array, x: Array) -> NDArray[np.int16]:
    """The interpolated table at 16-bit operands."""
    wide = entries.astype(np.int32)
    place = x.astype(np.int32)
    segment = (place + 32768) >> 8
    low = wide[segment]
    rise = np.diff(wide)[segment]
    return (low + ((rise * (place & 255) + 128) >> 8)).astype(np.int16)

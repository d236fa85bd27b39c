"""Functions of one element that units look up or interpolate; compiled.

The same integers as tilewright.numerics: ``tables.interpolate``, ``fixed.exponential`` and
``fixed.lrn_scale``.
"""

from __future__ import annotations

import numpy as np

from tilewright.numerics import tables
from tilewright.numerics.compiled import compiled_together
from tilewright.targets.cambricon.simulate.state import Array

LOG2_E = 47274
"""log2(e) with 15 fraction bits."""

HALVINGS = np.rint(2.0 ** (16 - np.arange(257) / 256)).astype(np.int64)
"""2**-(i/256) with 16 fraction bits."""

PLAIN_FRACTION = 8
"""Fraction bits of VEXP and VLOG without a table."""

EXP = tables.table("exp", PLAIN_FRACTION, PLAIN_FRACTION)
LOG = tables.table("log", PLAIN_FRACTION, PLAIN_FRACTION)

TABLE_WANTED = 257
POWERS_WANTED = 385
"""Elements of a function's table, and of the tables of powers: 257 mantissas, 64 factors, 64
shifts."""


@compiled_together
def saturate16(value: int) -> int:
    """A number cut to 16 bits."""
    return min(max(value, -32768), 32767)


@compiled_together
def interpolate(table: Array, values: Array, count: int) -> None:
    """The interpolated table at values cut to 16 bits, in place."""
    for i in range(count):
        x = saturate16(values[i])
        segment = (x + 32768) >> 8
        low = np.int64(table[segment])
        rise = np.int64(table[segment + 1]) - low
        values[i] = low + ((rise * (x & 255) + 128) >> 8)


@compiled_together
def decay(values: Array, count: int, fraction: int) -> None:
    """exp(-v / 2**fraction) with 16 fraction bits of v cut to [0, 2**16), in place."""
    fraction = min(max(fraction, -29), 46)
    shift = fraction - 1
    half = (np.int64(1) << max(shift, 0)) >> 1
    for i in range(count):
        product = min(max(values[i], 0), 65535) * LOG2_E
        z = (product + half) >> shift if shift >= 0 else product << -shift
        z = min(z, np.int64(48) << 16)
        segment, rest = (z >> 8) & 255, z & 255
        low = HALVINGS[segment]
        value = low + (((HALVINGS[segment + 1] - low) * rest + 128) >> 8)
        whole = z >> 16
        values[i] = (value + ((np.int64(1) << whole) >> 1)) >> whole


@compiled_together
def _log2(value: int) -> int:
    """floor(log2) of a positive number."""
    logarithm = 0
    for step in (32, 16, 8, 4, 2, 1):
        if value >> step:
            value >>= step
            logarithm += step
    return logarithm


@compiled_together
def powers(table: Array, values: Array, bases: Array, count: int, shift: int) -> None:
    """Each value times its base (20 fraction bits, at least 1) to the power of the table, in place.

    ``shift`` is the binary point of the values minus that of the results; these have 16 bits.
    """
    for i in range(count):
        base = max(bases[i], 1)
        exponent = _log2(base)
        down = exponent - 16
        place = (base >> down if down >= 0 else base << -down) & 0xFFFF
        segment, rest = place >> 8, place & 255
        low = np.int64(table[segment]) & 0xFFFF
        high = np.int64(table[segment + 1]) & 0xFFFF
        scale = low + (((high - low) * rest + 128) >> 8)
        product = values[i] * scale * (np.int64(table[257 + exponent]) & 0xFFFF)
        total = 29 + np.int64(table[321 + exponent]) + shift
        right = min(max(total, 0), 62)
        rounded = (product + ((np.int64(1) << right) >> 1)) >> right
        values[i] = saturate16(rounded << min(max(-total, 0), 17))

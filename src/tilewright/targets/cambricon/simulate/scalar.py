"""The calculations of scalar instructions, compiled with Numba."""

from __future__ import annotations

from math import exp, floor, log

import numpy as np

from tilewright.numerics.compiled import compiled_together

FRACTION = 16
"""Fraction bits of SEXP and SLOG."""

LEAST, MOST = -(1 << 31), (1 << 31) - 1


@compiled_together
def calculate(opcode: int, first: int, second: int, shift: int) -> int:
    """The result of a scalar instruction; SDIV's second operand is not 0."""
    if opcode == 0x50:  # SADD
        value = first + second
    elif opcode == 0x51:  # SSUB
        value = first - second
    elif opcode == 0x52:  # SMUL
        value = first * second
        if shift > 0:
            value = (value + (np.int64(1) << (shift - 1))) >> shift
    elif opcode == 0x53:  # SDIV
        over = first << shift
        quotient = abs(over) // abs(second)
        value = quotient if (over < 0) == (second < 0) else -quotient
    elif opcode == 0x54:  # SEXP
        value = _rounded(exp(min(first / 65536.0, 20.0)))
    elif opcode == 0x55:  # SLOG
        value = _rounded(log(first / 65536.0)) if first > 0 else LEAST
    elif opcode == 0x56:  # SGT
        value = np.int64(first > second)
    elif opcode == 0x57:  # SE
        value = np.int64(first == second)
    elif opcode == 0x58:  # SAND
        value = first & second
    else:  # SMOVE
        value = second
    return int(np.int32(value))


@compiled_together
def _rounded(value: float) -> int:
    return int(min(max(floor(value * 65536.0 + 0.5), LEAST), MOST))

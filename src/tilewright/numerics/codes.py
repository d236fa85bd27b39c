"""Formats of at most 8 bits: integers of 2 and 4, floats of 4 and 8. Their numbers are codes.

A code lies in the lowest bits of a byte, as ml_dtypes has it; the others are 0. A float's code is
its sign, the exponent, and the fraction; codes of one sign stand in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """A format: what its codes stand for."""

    bits: int
    signed: bool
    fraction: int | None = None
    """Bits after the leading one; None for integers."""
    bias: int = 0
    """Number added to a float's exponent; where the sum is 0, numbers are subnormal."""
    most: int = 0
    """The code of the largest finite float."""
    beyond: int = 0
    """The code of what is larger, without the sign."""
    nan: int = 0
    """The code of what is no number; the sign is flipped for one with a sign."""
    minus_zero: bool = True
    """False if the code of -0 is that of what is no number."""

    @property
    def wide(self) -> str:
        """The element type that has all of its numbers, and in which they are computed on."""
        return "float32" if self.fraction is not None else "int8" if self.signed else "uint8"

    @property
    def sign(self) -> int:
        """The bit of the sign, above all others where there is none."""
        return 1 << (self.bits - self.signed)


FORMATS: Mapping[str, Format] = {
    "int2": Format(2, True),
    "uint2": Format(2, False),
    "int4": Format(4, True),
    "uint4": Format(4, False),
    "float4_e2m1fn": Format(4, True, 1, 1, 0x7, 0x7, 0x8),
    "float8_e4m3fn": Format(8, True, 3, 7, 0x7E, 0x7F, 0x7F),
    "float8_e4m3fnuz": Format(8, True, 3, 8, 0x7F, 0x80, 0x80, minus_zero=False),
    "float8_e5m2": Format(8, True, 2, 15, 0x7B, 0x7C, 0x7E),
    "float8_e5m2fnuz": Format(8, True, 2, 16, 0x7F, 0x80, 0x80, minus_zero=False),
    "float8_e8m0fnu": Format(8, False, 0, 127, 0xFE, 0xFF, 0xFF),
}
"""The formats by the names that ml_dtypes has for them; e8m0 are powers of two, and no zero."""

FLOAT_CODES = tuple(name for name, form in FORMATS.items() if form.fraction is not None)
"""Names of the formats of floats."""

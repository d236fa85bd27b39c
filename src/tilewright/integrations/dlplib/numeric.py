"""Numeric types of device memory: float32, and fixed point with a binary point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tilewright.errors import refuse
from tilewright.ir import Attribute, f32
from tilewright.ir.types import Array, FixedType, element_dtype
from tilewright.numerics import fixed

Kind = Literal["float32", "fixed16", "fixed32"]

FRACTIONS = {"float32": (0, 0), "fixed16": (-16, 30), "fixed32": (-32, 60)}
"""Bounds of the binary point by kind."""


@dataclass(frozen=True)
class NumericType:
    """The format of an element: ``fixed16`` and ``fixed32`` mean integer / 2**fraction.

    Raises TilewrightError (``dlp-type``) for an unknown kind or a binary point out of bounds.
    """

    kind: Kind = "float32"
    fraction: int = 0

    def __post_init__(self) -> None:
        if self.kind not in FRACTIONS:
            raise refuse("dlp-type", f"no numeric type {self.kind!r}", help=", ".join(FRACTIONS))
        low, high = FRACTIONS[self.kind]
        if type(self.fraction) is not int or not low <= self.fraction <= high:
            raise refuse(
                "dlp-type", f"the binary point of {self.kind} lies in [{low}, {high}], "
                f"not at {self.fraction}",
            )  # fmt: skip

    def __str__(self) -> str:
        return self.kind if self.kind == "float32" else f"{self.kind}<{self.fraction}>"

    @property
    def is_fixed(self) -> bool:
        """True if elements are integers with a binary point."""
        return self.kind != "float32"

    @property
    def element(self) -> Attribute:
        """The element type in the graph."""
        if not self.is_fixed:
            return f32
        return FixedType.of(16 if self.kind == "fixed16" else 32, self.fraction)

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's type of an element in memory."""
        return element_dtype(self.element)

    def encode(self, values: Array) -> Array:
        """Real numbers as elements: rounded half to even, saturated; NaN gives 0."""
        if self.kind == "float32":
            return np.asarray(values, np.float32)
        convert = fixed.quantise if self.kind == "fixed16" else fixed.quantise32
        return convert(np.asarray(values), self.fraction)

    def decode(self, elements: Array) -> Array:
        """Return the elements as float64 numbers."""
        return np.asarray(elements).astype(np.float64) * 2.0**-(self.fraction)


FLOAT32 = NumericType()
"""The type in which the cpu engine computes."""


def fixed16(fraction: int) -> NumericType:
    """16-bit fixed point: what the accelerators compute in."""
    return NumericType("fixed16", fraction)


def fixed32(fraction: int) -> NumericType:
    """32-bit fixed point: biases, at the sum of the binary points of input and weights."""
    return NumericType("fixed32", fraction)


def finest(largest: float) -> NumericType:
    """The finest ``fixed16`` in which numbers up to ``largest`` in magnitude fit."""
    low, high = FRACTIONS["fixed16"]
    if not np.isfinite(largest):
        raise refuse("dlp-type", f"no binary point holds numbers up to {largest}")
    if largest < 2.0 ** (14 - high):
        return fixed16(high)
    return fixed16(max(min(int(np.floor(np.log2(32767 / largest))), high), low))

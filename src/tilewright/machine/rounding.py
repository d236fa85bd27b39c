"""The rules by which a machine of fixed point rounds, as graph operations state them.

The compiler writes these rules into the operations' attributes (fix-numbers), so that the graph
means what the machine computes, and the interpreter is its oracle.
"""

from __future__ import annotations

from math import log2

from pydantic import BaseModel, ConfigDict, Field


class Rounding(BaseModel):
    """Rules of a machine; the defaults are exact, with one rounding at the end."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    bias_bits: int = Field(default=32, ge=2, le=32)
    """Bits of a bias, which has a binary point of its own. It is added at its sum's point."""
    guard_bits: int | None = Field(default=None, ge=0, le=8)
    """Fraction bits that operands of a sum keep beyond the coarsest of them: what lies below is
    cut off. None: operands are aligned exactly."""
    average_bits: int = Field(default=0, ge=0, le=15)
    """Bits of the factor that stands for division in averages; 0: they divide."""
    averages: dict[str, tuple[int, int]] = {}
    """Kernel of a pool (``3x3``) -> (factor, shift) of its averages: sum * factor / 2**shift."""
    slope: tuple[int, int] | None = None
    """(factor, shift) of leaky ReLU after a sum: x * factor / 2**shift where x is negative.

    It is rounded with the sum, and stands for slopes that are nearest to it in units of 2**-shift.
    """
    shifts: dict[str, tuple[int, int]] = {}
    """Operation -> least and greatest right shift from its sums to results; binary points are
    chosen so that the shift lies there."""

    def slope_of(self, alpha: float) -> tuple[int, int] | None:
        """(factor, shift) of leaky ReLU of slope ``alpha`` after a sum; None where the pair stands
        for another slope."""
        if self.slope is None or round(alpha * 2 ** self.slope[1]) != self.slope[0]:
            return None
        return self.slope

    def average(self, height: int, width: int) -> tuple[int, int] | None:
        """(factor, shift) of averages over windows of that size; None: they divide.

        Of all factors of ``average_bits`` bits the nearest to 1/n, with the least shift.
        """
        listed = self.averages.get(f"{height}x{width}")
        if listed is not None or not self.average_bits:
            return listed
        count = height * width
        most = int(log2(count)) + self.average_bits + 1
        factors = [(round(2**shift / count), shift) for shift in range(most + 1)]
        return min(
            (factor for factor in factors if 0 < factor[0] < 2**self.average_bits),
            key=lambda factor: abs(factor[0] / 2 ** factor[1] - 1 / count),
        )

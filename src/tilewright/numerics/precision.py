"""Bounds of the error that a number format may cause in a model (docs/number-formats.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, sqrt

from tilewright.numerics.element_types import ElementType


@dataclass(frozen=True)
class Precision:
    """The error of one rounding to a number format, and the most that an output may lose in all."""

    step: float
    """The distance of neighbouring numbers: of the largest magnitude of a tensor for formats with
    one scale for it, of each number itself for floats."""
    relative: bool
    """True if every number has a step of its own, as floats do."""
    most: float = inf
    """The largest root-mean-square error of an output, of its largest magnitude, that is borne
    however much a network magnifies roundings. One scale for a tensor lets a few large numbers
    coarsen all others, which no network asked for; floats have no such limit."""

    table: float = 0.0
    """The error that a function by table may add, relative to the largest magnitude."""

    def expected(self, roundings: int, tables: int = 0) -> float:
        """The root-mean-square error after ``roundings`` roundings in a row, of the largest
        magnitude, and ``tables`` functions by table.

        They err independently, so their errors add up as the root of their number.
        """
        return sqrt(self.step**2 * max(1, roundings) + self.table**2 * tables)


TABLE = 2.0**-9
"""A table of 256 straight pieces, in each of which exp is off by h^2 / 8 of itself, where the
piece's width h is 1/8 for operands up to 16 (numerics/tables.py)."""

PRECISIONS: Mapping[ElementType, Precision] = {
    "float32": Precision(2.0**-18, True),
    "float16": Precision(2.0**-10, True),
    "bfloat16": Precision(2.0**-7, True),
    "fixed16": Precision(2.0**-10, False, 0.02, TABLE),
    "int16": Precision(2.0**-14, False, 0.02),
    "uint16": Precision(2.0**-15, False, 0.02),
    "int8": Precision(2.0**-7, False, 0.25),
    "uint8": Precision(2.0**-7, False, 0.25),
    "fixed8": Precision(2.0**-6, False, 0.25),
}
"""By element type. Steps are those of

- float32: 32 units in the last place, as sums in another order and Winograd's convolutions have;
- fixed point: 2 / 2^(bits - 1), since the range of a binary point is up to twice that of a tensor.
  With 16 bits weights give up four bits more, so that sums of products have room in 32 bits (pass
  fix-numbers); products of 8 bits leave room enough;
- integers with scales: 1 / 2^(bits - 1).
"""


def coarsest(elements: set[ElementType]) -> ElementType:
    """The element type of which one rounding errs most; float32 where none rounds."""
    known: list[ElementType] = [element for element in PRECISIONS if element in elements]
    return max(known, key=lambda element: PRECISIONS[element].step) if known else "float32"

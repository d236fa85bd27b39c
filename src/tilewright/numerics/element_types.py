"""Names of element types, and what they are: bytes, integers or floats, what sums of them take.

NumPy is imported where arrays are at hand: reading a package's manifest needs the names alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np

ElementType = Literal[
    "float32", "fixed8", "fixed16", "fixed32", "float64", "float16", "bfloat16", "bool",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip

Kind = Literal["float", "fixed", "integer"]


@dataclass(frozen=True)
class Element:
    """What an element type is.

    ``fixed`` are integers with a binary point, which tensor types state; ``integer`` are plain
    ones, whose scales are operands of the operations that need them.
    """

    name: ElementType
    kind: Kind
    bytes: int
    accumulator: ElementType | None = None
    """What sums of products of them are kept in, on machines that compute on them; None where
    no machine does."""

    @property
    def bits(self) -> int:
        """Bits of an element in memory."""
        return 8 * self.bytes

    @property
    def is_integer(self) -> bool:
        """Whether arithmetic is exact: integers, with or without a binary point."""
        return self.kind != "float"

    @property
    def is_plain(self) -> bool:
        """Whether it is the float that models come in, before other numbers are chosen."""
        return self.kind == "float" and self.bits == 32

    @property
    def is_short_float(self) -> bool:
        """Whether it is a float that is computed on in another, wider one."""
        return self.kind == "float" and self.bits == 16

    @property
    def is_narrow(self) -> bool:
        """Whether sums take more bits than the elements."""
        return self.accumulator is not None and self.accumulator != self.name

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype that holds elements."""
        import ml_dtypes
        import numpy as np

        if self.kind == "fixed":
            return np.dtype(f"int{self.bits}")
        return np.dtype(ml_dtypes.bfloat16 if self.name == "bfloat16" else self.name)


_ELEMENTS = (
    Element("float32", "float", 4, "float32"),
    Element("float16", "float", 2, "float32"),
    Element("bfloat16", "float", 2, "float32"),
    Element("fixed8", "fixed", 1, "fixed32"),
    Element("fixed16", "fixed", 2, "fixed32"),
    Element("int8", "integer", 1, "int32"),
    Element("fixed32", "fixed", 4),
    Element("float64", "float", 8),
    Element("bool", "integer", 1),
    Element("int16", "integer", 2),
    Element("int32", "integer", 4),
    Element("int64", "integer", 8),
    Element("uint8", "integer", 1),
    Element("uint16", "integer", 2),
    Element("uint32", "integer", 4),
    Element("uint64", "integer", 8),
)

ELEMENTS: Mapping[str, Element] = {element.name: element for element in _ELEMENTS}
"""Every element type by its name."""

ELEMENT_BYTES: Mapping[str, int] = {element.name: element.bytes for element in _ELEMENTS}
"""Bytes of an element, by its name."""


@cache
def _short() -> tuple[np.dtype[Any], ...]:
    """The dtypes of floats of 16 bits."""
    return tuple(element.dtype for element in _ELEMENTS if element.is_short_float)


def element_of_dtype(dtype: np.dtype[Any]) -> Element:
    """The plain element type of arrays of a dtype; raises KeyError if there is none."""
    return ELEMENTS[str(dtype)]


def widened(arrays: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """Floats of 16 bits as float32, in which they are computed on; other arrays as they are."""
    short = _short()
    return [array.astype("float32") if array.dtype in short else array for array in arrays]


def largest(element: Element) -> float:
    """The largest finite number of a float type."""
    import ml_dtypes

    return float(ml_dtypes.finfo(element.dtype).max)


def rounded(x: np.ndarray[Any, Any], element: Element, *, saturate: bool) -> np.ndarray[Any, Any]:
    """Floats to the nearest of an element type, of two to the even one.

    What lies beyond its largest number becomes infinite, or that number with ``saturate``;
    infinities and NaN stay what they are.
    """
    import numpy as np

    if saturate:
        limit = x.dtype.type(largest(element))
        x = np.where(np.isfinite(x), np.clip(x, -limit, limit), x)
    with np.errstate(over="ignore"):
        return x.astype(element.dtype)

"""Names of element types, and what they are: bits, integers or floats, what sums of them take.

NumPy is imported where arrays are at hand: reading a package's manifest needs the names alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from tilewright.numerics.codes import FORMATS

if TYPE_CHECKING:
    import numpy as np

Kind = Literal["float", "fixed", "integer", "code"]


@dataclass(frozen=True)
class Element:
    """An element type: kind, bits, and the type of its sums.

    ``fixed`` are integers with a binary point, which tensor types state; ``integer`` are plain
    ones, whose scales are operands of the operations that need them. A ``code`` is a number of a
    format of at most 8 bits, which lie in the lowest bits of a byte: it is moved and converted, and
    no operation computes on it.
    """

    name: str
    kind: Kind
    bits: int
    """The bits of an element in memory; elements lie beside one another without gaps."""
    accumulator: str | None = None
    """The type of sums of products, on machines that compute on the elements; None where no machine
    does."""

    @property
    def bytes(self) -> int:
        """Bytes that hold one element."""
        return self.size(1)

    def size(self, count: int) -> int:
        """Bytes that hold ``count`` elements beside one another."""
        return -(-(count * self.bits) // 8)

    @property
    def is_integer(self) -> bool:
        """True if arithmetic is exact: integers, with or without a binary point."""
        return self.kind != "float"

    @property
    def is_plain(self) -> bool:
        """True if it is the float that models come in, before other numbers are chosen."""
        return self.kind == "float" and self.bits == 32

    @property
    def is_short_float(self) -> bool:
        """True if it is a float that is computed on in another, wider one."""
        return self.kind == "float" and self.bits == 16

    @property
    def is_narrow(self) -> bool:
        """True if sums take more bits than the elements."""
        return self.accumulator is not None and self.accumulator != self.name

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype that holds elements."""
        import ml_dtypes
        import numpy as np

        if self.kind == "fixed":
            return np.dtype(f"int{self.bits}")
        return np.dtype(getattr(ml_dtypes, self.name, self.name))


_ELEMENTS = (
    Element("float32", "float", 32, "float32"),
    Element("float16", "float", 16, "float32"),
    Element("bfloat16", "float", 16, "float32"),
    Element("fixed16", "fixed", 16, "fixed32"),
    Element("fixed8", "fixed", 8, "fixed32"),
    Element("int8", "integer", 8, "int32"),
    Element("fixed32", "fixed", 32),
    Element("float64", "float", 64),
    Element("bool", "integer", 8),
    Element("int16", "integer", 16),
    Element("int32", "integer", 32),
    Element("int64", "integer", 64),
    Element("uint8", "integer", 8),
    Element("uint16", "integer", 16),
    Element("uint32", "integer", 32),
    Element("uint64", "integer", 64),
    *(Element(name, "code", 8) for name in FORMATS),
)

ELEMENTS: Mapping[str, Element] = {element.name: element for element in _ELEMENTS}
"""Every element type by its name."""

if TYPE_CHECKING:
    ElementType = str
    MachineElement = str
    Accumulator = str
else:
    _SUMS = {element.name: element.accumulator for element in _ELEMENTS if element.accumulator}
    ElementType = Literal[tuple(ELEMENTS)]
    MachineElement = Literal[tuple(_SUMS)]
    Accumulator = Literal[tuple(dict.fromkeys(_SUMS.values()))]
"""The names of element types: all, those that machines compute on, and those of sums of these."""


def size_of(element: str, count: int = 1) -> int:
    """Bytes of ``count`` elements of a type beside one another."""
    return ELEMENTS[element].size(count)


@cache
def _short() -> tuple[np.dtype[Any], ...]:
    """The dtypes of floats of 16 bits."""
    return tuple(element.dtype for element in _ELEMENTS if element.is_short_float)


def dtype_named(name: str) -> np.dtype[Any]:
    """The dtype of that name, as NumPy prints it; raises TypeError if there is none.

    ``np.dtype`` alone knows no bfloat16 and no codes before ml_dtypes has been imported.
    """
    import numpy as np

    return ELEMENTS[name].dtype if name in (*FORMATS, "bfloat16") else np.dtype(name)


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

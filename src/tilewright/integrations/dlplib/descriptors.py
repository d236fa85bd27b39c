"""Descriptors: what a piece of device memory, or an operator, is. Made, set, read, destroyed.

Memory holds float32, or fixed point with a binary point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar

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


DataFormat = Literal["NCHW", "NHWC"]
"""Order of the dims in memory, the last the innermost; of filters OC, IC, Kh, Kw accordingly."""

LARGEST_EXTENT = 1 << 24
LARGEST_BYTES = 1 << 32
"""The size limit of one tensor or filter, in bytes."""

ORDERS = {"NCHW": (0, 1, 2, 3), "NHWC": (0, 2, 3, 1)}
"""Place in memory -> logical axis."""


@dataclass(frozen=True)
class Shape:
    """The shape, format and type of a tensor's or filter's descriptor.

    ``dims`` are N, C, H, W, or OC, IC, Kh, Kw of a filter. Raises TilewrightError
    (``dlp-parameter``) for extents out of bounds or an unknown format.
    """

    dims: tuple[int, int, int, int]
    format: DataFormat = "NCHW"
    type: NumericType = FLOAT32

    def __post_init__(self) -> None:
        if self.format not in ORDERS:
            raise refuse("dlp-parameter", f"no data format {self.format!r}", help="NCHW or NHWC")
        if len(self.dims) != 4 or any(
            type(extent) is not int or not 1 <= extent <= LARGEST_EXTENT for extent in self.dims
        ):
            raise refuse(
                "dlp-parameter", f"{self.dims}: four extents from 1 to {LARGEST_EXTENT} are needed"
            )
        if self.bytes > LARGEST_BYTES:
            raise refuse("dlp-parameter", f"{self.dims} are more than {LARGEST_BYTES} bytes")

    def __str__(self) -> str:
        return f"{'x'.join(map(str, self.dims))} {self.format} {self.type}"

    @property
    def elements(self) -> int:
        """The number of elements of the tensor."""
        return prod(self.dims)

    @property
    def bytes(self) -> int:
        """The size in memory, in bytes."""
        return self.elements * self.type.dtype.itemsize

    @property
    def stored(self) -> tuple[int, ...]:
        """The dims in the order in which they lie in memory."""
        return tuple(self.dims[axis] for axis in ORDERS[self.format])


S = TypeVar("S")
P = ParamSpec("P")


class Descriptor(Generic[S]):
    """A value with a life: ``set`` fills it, ``get`` reads it, ``destroy`` ends it.

    Reading one that was never set, and any use of a destroyed one, is refused (``dlp-descriptor``).
    """

    label = "descriptor"

    def __init__(self) -> None:
        self._value: S | None = None
        self._alive = True

    def get(self) -> S:
        """Return the settings; refuses a descriptor that was not set."""
        self._check()
        if self._value is None:
            raise refuse("dlp-descriptor", f"the {self.label} has not been set")
        return self._value

    def destroy(self) -> None:
        """End the descriptor's life; a second time is refused."""
        self._check()
        self._alive = False

    def put(self, value: S) -> None:
        """Set the descriptor; ``set`` makes the value of its attributes."""
        self._check()
        self._value = value

    def _check(self) -> None:
        if not self._alive:
            raise refuse("dlp-descriptor", f"the {self.label} has been destroyed")


def setter(make: Callable[P, S]) -> Callable[Concatenate[Descriptor[S], P], None]:
    """A method that sets all attributes of a descriptor, to the value of ``make`` for its
    arguments."""

    def set(self: Descriptor[S], *attributes: P.args, **named: P.kwargs) -> None:
        self.put(make(*attributes, **named))

    return set


class _ShapeDescriptor(Descriptor[Shape]):
    """A descriptor of elements in memory."""

    def __init__(
        self,
        dims: Sequence[int] | None = None,
        type: NumericType = FLOAT32,
        format: DataFormat = "NCHW",
    ) -> None:
        """An empty descriptor, or one that is set at once."""
        super().__init__()
        if dims is not None:
            self.set(dims, type, format)

    def set(
        self,
        dims: Sequence[int],
        type: NumericType = FLOAT32,
        format: DataFormat = "NCHW",
    ) -> None:
        """Set all six attributes: four extents, the numeric type, the data format."""
        if len(dims) != 4:
            raise refuse("dlp-parameter", f"{tuple(dims)}: four extents are needed")
        n, c, h, w = dims
        self.put(Shape((n, c, h, w), format, type))


class TensorDescriptor(_ShapeDescriptor):
    """Neurons and biases (thesis, table 3.1): N, C, H, W, data format, numeric type.

    Tensors of fewer dims have extents of 1; a bias of C channels is 1 x C x 1 x 1.
    """

    label = "tensor descriptor"


class FilterDescriptor(_ShapeDescriptor):
    """Synapses (thesis, table 3.2): OC, IC, Kh, Kw, data format, numeric type.

    IC counts the channels of one group.
    """

    label = "filter descriptor"

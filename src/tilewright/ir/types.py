"""Element types and tensor types that both dialects share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

import ml_dtypes
import numpy as np

from tilewright.ir import (
    Attribute,
    AttrParser,
    Dialect,
    IntAttr,
    IntegerType,
    NoneAttr,
    ParametrizedAttribute,
    Printer,
    Signedness,
    SSAValue,
    StringAttr,
    TensorType,
    TypeAttribute,
    VerifyException,
    bf16,
    f16,
    f32,
    f64,
    i1,
    i8,
    i16,
    i32,
    i64,
    irdl_attr_definition,
    param_def,
)
from tilewright.numerics.arrays import Array as Array
from tilewright.numerics.codes import FORMATS
from tilewright.numerics.element_types import ELEMENTS, ElementType, size_of


@irdl_attr_definition
class FixedType(ParametrizedAttribute, TypeAttribute):
    """A fixed-point number: ``bits`` bits in two's complement; value = integer / 2**fraction."""

    name = "tilewright.fixed"
    bits: IntAttr = param_def()
    fraction: IntAttr = param_def()

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        """Read the parameters ``<bits, fraction>`` of the type."""
        with parser.in_angle_brackets():
            bits = parser.parse_integer(allow_boolean=False, allow_negative=False)
            if f"fixed{bits}" not in ELEMENTS:
                parser.raise_error(f"fixed point has 8, 16 or 32 bits, not {bits}")
            parser.parse_punctuation(",")
            return IntAttr(bits), IntAttr(parser.parse_integer(allow_boolean=False))

    def print_parameters(self, printer: Printer) -> None:
        """Print the parameters ``<bits, fraction>`` of the type."""
        with printer.in_angle_brackets():
            printer.print_string(f"{self.bits.data}, {self.fraction.data}")

    @classmethod
    def of(cls, bits: int, fraction: int) -> FixedType:
        """The type of ``bits`` bits, ``fraction`` of them after the binary point."""
        return cls(IntAttr(bits), IntAttr(fraction))


@irdl_attr_definition
class CodeType(ParametrizedAttribute, TypeAttribute):
    """A number of a format of at most 8 bits, by its name (numerics/codes.py)."""

    name = "tilewright.code"
    format: StringAttr = param_def()

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        """Read the parameter ``<"int4">`` of the type."""
        with parser.in_angle_brackets():
            name = parser.parse_str_literal()
            if name not in FORMATS:
                parser.raise_error(f"there is no format {name!r}")
            return (StringAttr(name),)


TYPES = Dialect("tilewright", [], [FixedType, CodeType])
"""The types that both dialects share, for a context."""

UNSIGNED = {bits: IntegerType(bits, Signedness.UNSIGNED) for bits in (8, 16, 32, 64)}
"""Element types of natural numbers, by their bits; integers without a sign mark are signed."""

_NUMPY: list[tuple[Attribute, type[np.generic]]] = [
    (f32, np.float32),
    (f64, np.float64),
    (i1, np.bool_),
    (i8, np.int8),
    (i32, np.int32),
    (i64, np.int64),
    (i16, np.int16),
    (f16, np.float16),
    (bf16, ml_dtypes.bfloat16),
    (UNSIGNED[8], np.uint8),
    (UNSIGNED[16], np.uint16),
    (UNSIGNED[32], np.uint32),
    (UNSIGNED[64], np.uint64),
    *((CodeType(StringAttr(name)), getattr(ml_dtypes, name)) for name in FORMATS),
]


def element_dtype(element: Attribute) -> np.dtype[Any]:
    """The NumPy dtype that holds elements of a type; raises VerifyException if there is none."""
    if isinstance(element, FixedType):
        return np.dtype(f"int{element.bits.data}")
    for attribute, dtype in _NUMPY:
        if element == attribute:
            return np.dtype(dtype)
    raise VerifyException(f"no array type for elements of {element}")


def element_of(dtype: np.dtype[Any]) -> Attribute:
    """The element type of arrays of ``dtype``; raises VerifyException if there is none."""
    for attribute, candidate in _NUMPY:
        if dtype == candidate:
            return attribute
    raise VerifyException(f"arrays of {dtype} are not supported")


@lru_cache(maxsize=1024)
def element_name(element: Attribute) -> ElementType:
    """Planning's name for an element type (``fixed16``, ``float32``)."""
    if isinstance(element, FixedType):
        return f"fixed{element.bits.data}"
    return str(element_dtype(element))


def element_size(element: Attribute, count: int = 1) -> int:
    """Bytes of ``count`` elements of a type beside one another."""
    return size_of(element_name(element), count)


def tensor(shape: Sequence[int], element: Attribute = f32, layout: str = "") -> TensorType[Any]:
    """A tensor type; ``layout`` "" means row-major in logical order."""
    return _tensor(tuple(int(extent) for extent in shape), element, layout)


@lru_cache(maxsize=4096)
def _tensor(shape: tuple[int, ...], element: Attribute, layout: str) -> TensorType[Any]:
    # Making one takes long, and every verification infers the same types again.
    return TensorType(element, shape, StringAttr(layout) if layout else NoneAttr())


def tensor_type(value: SSAValue | Attribute) -> TensorType[Any]:
    """The tensor type of a value; raises VerifyException if it is no tensor."""
    kind = value.type if isinstance(value, SSAValue) else value
    if not isinstance(kind, TensorType):
        raise VerifyException(f"expected a tensor, found {kind}")
    return cast("TensorType[Any]", kind)


def dtype_of(value: SSAValue) -> np.dtype[Any]:
    """NumPy's type of a tensor's elements."""
    return element_dtype(tensor_type(value).element_type)


def shape_of(value: SSAValue) -> tuple[int, ...]:
    """The shape of a tensor value."""
    return tensor_type(value).get_shape()


def layout_of(value: SSAValue | Attribute) -> str:
    """The layout of a tensor value; "" is row-major logical order."""
    encoding = tensor_type(value).encoding
    return encoding.data if isinstance(encoding, StringAttr) else ""


def fraction_of(value: SSAValue | Attribute) -> int:
    """The binary point of a fixed-point tensor; 0 for any other."""
    element = tensor_type(value).element_type
    return element.fraction.data if isinstance(element, FixedType) else 0

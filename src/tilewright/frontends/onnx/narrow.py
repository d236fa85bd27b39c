"""Tensors in formats of at most 8 bits, whose codes (numerics/codes.py) have a byte each.

In a model's files elements of less than 8 bits lie several in a byte, the first in its lowest bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from tilewright.ir.types import Array
from tilewright.numerics.codes import FORMATS
from tilewright.numerics.element_types import dtype_named

_NAMES: Mapping[int, str] = {
    TensorProto.UINT4: "uint4",
    TensorProto.INT4: "int4",
    TensorProto.UINT2: "uint2",
    TensorProto.INT2: "int2",
    TensorProto.FLOAT4E2M1: "float4_e2m1fn",
    TensorProto.FLOAT8E4M3FN: "float8_e4m3fn",
    TensorProto.FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
    TensorProto.FLOAT8E5M2: "float8_e5m2",
    TensorProto.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
    TensorProto.FLOAT8E8M0: "float8_e8m0fnu",
}

NARROW: Mapping[int, np.dtype[Any]] = {kind: dtype_named(name) for kind, name in _NAMES.items()}
"""The element types of ONNX that are such formats."""


def bytes_of(data_type: int, count: int) -> int:
    """The bytes of a tensor's elements in a model's file."""
    return -(-count * FORMATS[_NAMES[data_type]].bits // 8)


def unpacked(data: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """The codes of ``bits`` bits that lie in bytes along the last axis, all of each byte."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    fields = (data[..., None] >> shifts) & np.uint8(2**bits - 1)
    return fields.reshape(*data.shape[:-1], data.shape[-1] * shifts.size)


def decoded(data_type: int, data: NDArray[np.uint8], shape: tuple[int, ...]) -> Array:
    """The elements of a tensor by its bytes, of which there are as many as it takes."""
    name = _NAMES[data_type]
    codes = (
        unpacked(data, FORMATS[name].bits)[: math.prod(shape)] if FORMATS[name].bits < 8 else data
    )
    return codes.view(NARROW[data_type]).reshape(shape)

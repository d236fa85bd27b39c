"""Constants in formats of less than 8 bits, and floats of 8: arrays of wider elements hold them.

Integers of 2 and 4 bits become int8 or uint8, floats of 4 and 8 bits float32, of which each is one.
Elements of less than 8 bits lie several in a byte, the first in its lowest bits.
"""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from tilewright.ir.types import Array

INTEGERS: Mapping[int, tuple[int, bool]] = {
    TensorProto.UINT4: (4, False),
    TensorProto.INT4: (4, True),
    TensorProto.UINT2: (2, False),
    TensorProto.INT2: (2, True),
}
"""For each type of integers, its bits and whether it has a sign."""

FLOATS: Mapping[int, type] = {
    TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    TensorProto.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    TensorProto.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    TensorProto.FLOAT8E8M0: ml_dtypes.float8_e8m0fnu,
}
"""Floats of 8 bits."""

NARROW = frozenset({*INTEGERS, *FLOATS, TensorProto.FLOAT4E2M1})

_FLOAT4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def bytes_of(data_type: int, count: int) -> int:
    """The bytes of a tensor's elements."""
    return -(-count * bits_of(data_type) // 8)


def bits_of(data_type: int) -> int:
    """The bits of an element."""
    if data_type in INTEGERS:
        return INTEGERS[data_type][0]
    return 4 if data_type == TensorProto.FLOAT4E2M1 else 8


def range_of(data_type: int) -> tuple[int, int] | None:
    """The least and the greatest integer of a type; None for floats."""
    if data_type not in INTEGERS:
        return None
    bits, signed = INTEGERS[data_type]
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)


def unpacked(data: NDArray[np.uint8], bits: int, *, signed: bool = False) -> Array:
    """The integers of ``bits`` bits that lie in bytes along the last axis, all of each byte."""
    if bits == 8:
        return data.view(np.int8) if signed else data
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    fields = (data[..., None] >> shifts) & np.uint8(2**bits - 1)
    values = fields.reshape(*data.shape[:-1], data.shape[-1] * shifts.size)
    if not signed:
        return values
    return (values.astype(np.int8) ^ np.int8(2 ** (bits - 1))) - np.int8(2 ** (bits - 1))


def decoded(data_type: int, data: NDArray[np.uint8], shape: tuple[int, ...]) -> Array:
    """The elements of a tensor by its bytes, of which there are as many as it takes."""
    count = int(np.prod(shape, dtype=np.int64))
    if data_type in FLOATS:
        return data.view(FLOATS[data_type]).astype(np.float32).reshape(shape)
    if data_type == TensorProto.FLOAT4E2M1:
        codes = unpacked(data, 4)[:count]
        values = np.where(codes & 8, -_FLOAT4[codes & 7], _FLOAT4[codes & 7])
        return values.astype(np.float32).reshape(shape)
    bits, signed = INTEGERS[data_type]
    return unpacked(data, bits, signed=signed)[:count].reshape(shape)

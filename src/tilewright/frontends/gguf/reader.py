"""GGUF files, read by the package ``gguf``: metadata, and tensors as blocks or floats.

The format is that of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; blocks are those
that the package's ``quants`` defines. A row of a tensor [n, k] is a run of blocks:

| type | numbers | bytes of a block |
|---|---|---|
| Q8_0 | 32 | scale (float16), 32 signed bytes |
| Q4_0 | 32 | scale, 16 bytes: number i in the lower half of byte i, i + 16 in the upper; less 8 |
| Q4_1 | 32 | scale, minimum (float16), 16 bytes as above |
| Q6_K | 256 | 128 bytes of lower halves, 64 of upper pairs of bits, 16 signed scales, scale; less 32 |
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError, refuse
from tilewright.numerics.arrays import Array
from tilewright.numerics.blocks import Blocks

FLOATS = ("F32", "F16")
"""Types of tensors that are plain floats."""


@dataclass(frozen=True)
class GgufFile:
    """What a file holds."""

    path: Path
    fields: Mapping[str, Any]
    """Metadata by key, as plain values and lists."""
    tensors: Mapping[str, tuple[str, tuple[int, ...], Array]]
    """Type, shape (rows first) and data of each tensor."""

    def refuse(self, reason: str, *, code: str = "gguf-model", help: str = "") -> TilewrightError:
        """The refusal of the file; ``raise file.refuse(...)``."""
        return refuse(code, reason, repr(str(self.path)), help)

    def field(self, key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """A field of the metadata, checked for its type; refuses one that is absent unless there
        is a default."""
        value = self.fields.get(key, default)
        if value is None:
            raise self.refuse(f"it does not state {key}")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            raise self.refuse(f"{key} is {str(value)[:80]}")
        return value

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor that there must be."""
        if name not in self.tensors:
            raise self.refuse(f"it has no tensor {name}")
        return self.tensors[name][1]

    def floats(self, name: str, shape: tuple[int, ...]) -> Array:
        """A tensor of plain floats in float32, of a shape that it must have."""
        kind, _, data = self._checked(name, shape)
        if kind not in FLOATS:
            raise self.refuse(f"{name} is {kind}, not floats")
        return data.reshape(shape).astype(np.float32)

    def matrix(self, name: str, shape: tuple[int, int]) -> Blocks | Array:
        """A matrix [n, k]: in blocks, or floats of 16 or 32 bits as they are."""
        kind, _, data = self._checked(name, shape)
        if kind in FLOATS:
            return data.reshape(shape)
        if kind not in _READERS:
            known = ", ".join((*FLOATS, *_READERS))
            raise self.refuse(f"{name} is {kind}", code="gguf-type", help=f"types are {known}")
        count, size, take = _READERS[kind]
        if shape[1] % count:
            raise self.refuse(f"{name} has rows of {shape[1]}, not whole blocks of {count}")
        return take(data.reshape(shape[0], shape[1] // count, size))

    def _checked(self, name: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...], Array]:
        if self.shape(name) != shape:
            raise self.refuse(f"{name} has shape {list(self.shape(name))}, not {list(shape)}")
        return self.tensors[name]


def read_gguf(path: Path) -> GgufFile:
    """Read a file; tensors are views of it in memory. Refuses (``gguf-file``) what is none, is cut
    off, or states sizes that it does not have."""
    try:
        from gguf import GGUFReader
    except ImportError:
        raise refuse(
            "gguf-missing", "the package gguf, which reads such files, is not installed",
            help="pip install 'tilewright[llm]'",
        ) from None  # fmt: skip
    try:
        reader = GGUFReader(path, "r")
        fields = {name: field.contents() for name, field in reader.fields.items()}
        tensors = {
            tensor.name: (
                tensor.tensor_type.name,
                tuple(map(int, reversed(tensor.shape))),
                tensor.data,
            )
            for tensor in reader.tensors
        }
    except OSError as error:
        raise refuse("gguf-file", error.strerror or "cannot be read", repr(str(path))) from error
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error) as error:
        raise refuse(
            "gguf-file", f"is no whole GGUF file: {' '.join(str(error).split())[:200]}",
            repr(str(path)),
        ) from error  # fmt: skip
    return GgufFile(path, fields, tensors)


_Bytes = NDArray[np.uint8]


def _halves(data: _Bytes) -> Array:
    """Bytes [..., 2] as numbers of float16."""
    return np.ascontiguousarray(data).view(np.float16)[..., 0]


def _nibbles(data: _Bytes) -> _Bytes:
    """The lower halves of each block's bytes, then the upper ones; rows of codes."""
    return np.concatenate([data & 15, data >> 4], axis=-1).reshape(len(data), -1)


def _q8_0(data: _Bytes) -> Blocks:
    codes = (data[..., 2:] ^ 128).reshape(len(data), -1)
    return Blocks(codes, _halves(data[..., :2]), bits=8, zero=128)


def _q4_0(data: _Bytes) -> Blocks:
    return Blocks(_nibbles(data[..., 2:]), _halves(data[..., :2]), zero=8)


def _q4_1(data: _Bytes) -> Blocks:
    return Blocks(_nibbles(data[..., 4:]), _halves(data[..., :2]), _halves(data[..., 2:4]))


def _q6_k(data: _Bytes) -> Blocks:
    """Codes of 6 bits become bytes; the scales of 16 numbers are products of two."""
    rows, blocks = data.shape[:2]
    low = data[..., :128].reshape(rows, blocks, 2, 1, 64) >> np.array([[0], [4]], np.uint8) & 15
    high = data[..., 128:192].reshape(rows, blocks, 2, 1, 32)
    high = high >> np.array([[0], [2], [4], [6]], np.uint8) & 3
    codes = low.reshape(rows, -1) | high.reshape(rows, -1) << 4
    scales = np.ascontiguousarray(data[..., 192:208]).view(np.int8).astype(np.float32)
    scales *= _halves(data[..., 208:])[..., None].astype(np.float32)
    return Blocks(codes, scales.reshape(rows, -1), bits=8, zero=32)


_READERS = {
    "Q4_0": (32, 18, _q4_0),
    "Q4_1": (32, 20, _q4_1),
    "Q8_0": (32, 34, _q8_0),
    "Q6_K": (256, 210, _q6_k),
}
"""Numbers and bytes of a block of each type, and what reads rows of blocks."""

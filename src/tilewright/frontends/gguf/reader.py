"""GGUF files: metadata, and tensors as blocks or floats.

The format is that of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, with the blocks of
its tensor types. Every length is checked before it is used: the package ``gguf`` would follow a
false one for hours, and takes seconds for a vocabulary. A row of a tensor [n, k] is a run of
blocks:

| type | numbers | bytes of a block |
|---|---|---|
| Q8_0 | 32 | scale (float16), 32 signed bytes |
| Q4_0 | 32 | scale, 16 bytes: number i in the lower half of byte i, i + 16 in the upper; less 8 |
| Q4_1 | 32 | scale, minimum (float16), 16 bytes as above |
| Q6_K | 256 | 128 bytes of lower halves, 64 of upper pairs, 16 signed scales, scale; less 32 |
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError, refuse
from tilewright.numerics.arrays import Array
from tilewright.numerics.blocks import Blocks

FLOATS = {"F32": np.float32, "F16": np.float16}
"""Types of tensors that are plain floats."""


@dataclass(frozen=True)
class GgufFile:
    """The content of a GGUF file."""

    path: Path
    fields: Mapping[str, Any]
    """Metadata by key, as plain values and lists."""
    tensors: Mapping[str, tuple[str, tuple[int, ...], Array]]
    """Type, shape (rows first) and data of each tensor."""

    def refuse(self, reason: str, *, code: str = "llm-model", help: str = "") -> TilewrightError:
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
        return np.array(data.reshape(shape), np.float32)

    def matrix(self, name: str, shape: tuple[int, ...]) -> Blocks | Array:
        """A matrix [n, k]: in blocks, or floats of 16 or 32 bits as they are."""
        kind, _, data = self._checked(name, shape)
        if kind in FLOATS:
            return np.array(data.reshape(shape))
        if kind not in _READERS:
            known = ", ".join((*FLOATS, *_READERS))
            raise self.refuse(f"{name} is {kind}", code="gguf-type", help=f"types are {known}")
        count, size = next(sizes for known, *sizes in TYPES.values() if known == kind)
        return _READERS[kind](data.reshape(shape[0], shape[1] // count, size))

    def _checked(self, name: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...], Array]:
        if self.shape(name) != shape:
            raise self.refuse(f"{name} has shape {list(self.shape(name))}, not {list(shape)}")
        return self.tensors[name]


def read_gguf(path: Path) -> GgufFile:
    """Read a file; tensors are views of it in memory. Refuses (``gguf-file``) a file of another
    format, one that is cut off, and one that states sizes which it does not have."""
    try:
        data = np.memmap(path, np.uint8, "r")
    except OSError as error:
        raise refuse("gguf-file", error.strerror or "cannot be read", repr(str(path))) from error
    except ValueError:  # An empty file cannot be mapped.
        data = np.empty(0, np.uint8)
    try:
        return GgufFile(path, *_Cursor(data).content())
    except (ValueError, struct.error) as error:
        reason = f"is no whole GGUF file: {' '.join(str(error).split())[:200]}"
        raise refuse("gguf-file", reason, repr(str(path))) from error


_STRING, _ARRAY = 8, 9
"""Types of values that have a length."""

_VALUES = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
"""Codes of plain values, with the letters that ``struct`` has for them."""

_LEAST = {_STRING: 8, _ARRAY: 12, **{kind: struct.calcsize(c) for kind, c in _VALUES.items()}}
"""Bytes of a value of each type at least."""

_DEEP = 4
"""Arrays within one another at most."""


class _Cursor:
    """A place in a file; what lies beyond its end raises ValueError."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self.data, self.view, self.at = data, data.data, 0

    def content(self) -> tuple[dict[str, Any], dict[str, tuple[str, tuple[int, ...], Array]]]:
        """The metadata and the tensors of a whole file."""
        if bytes(self.view[:4]) != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        self.at = 4
        version = self.number("I")
        if version not in (2, 3):
            raise ValueError(f"version {version}")
        tensors, count = self.number("Q"), self.counted(13)
        fields: dict[str, Any] = {}
        for _ in range(count):
            key = self.text()
            fields[key] = self.value(self.number("I"))
        if tensors * 24 > len(self.data):
            raise ValueError(f"{tensors} tensors do not fit into {len(self.data)} bytes")
        told = [self.tensor() for _ in range(tensors)]
        step = fields.get("general.alignment", 32)
        if not isinstance(step, int) or not 0 < step <= 1 << 20:
            raise ValueError(f"an alignment of {step}")
        start = -(-self.at // step) * step
        return fields, {name: self.placed(start, *rest) for name, rest in told}

    def number(self, letter: str) -> Any:
        """A plain value."""
        size = struct.calcsize(letter)
        (value,) = struct.unpack(f"<{letter}", self.taken(size))
        return value

    def taken(self, size: int) -> memoryview:
        """The next ``size`` bytes of the file."""
        if size > len(self.view) - self.at:
            raise ValueError(f"{size} bytes at {self.at} of {len(self.view)}")
        self.at += size
        return self.view[self.at - size : self.at]

    def counted(self, least: int) -> int:
        """A number of entries that follow, each of ``least`` bytes at least."""
        count = self.number("Q")
        if count * least > len(self.view) - self.at:
            raise ValueError(f"it states {count} entries at {self.at}, more than there are bytes")
        return count

    def text(self) -> str:
        """A string; what is no UTF-8 raises UnicodeDecodeError, a ValueError."""
        return str(self.taken(self.number("Q")), "utf-8")

    def value(self, kind: int, depth: int = 0) -> Any:
        """A value of a type."""
        if kind == _STRING:
            return self.text()
        if kind in _VALUES:
            return self.number(_VALUES[kind])
        if kind != _ARRAY or depth == _DEEP:
            raise ValueError(f"a value of type {kind}")
        inner = self.number("I")
        if inner not in _LEAST:
            raise ValueError(f"values of type {inner}")
        count = self.counted(_LEAST[inner])
        if inner in _VALUES:
            letter = _VALUES[inner]
            return [*struct.unpack(f"<{count}{letter}", self.taken(count * _LEAST[inner]))]
        return [self.value(inner, depth + 1) for _ in range(count)]

    def tensor(self) -> tuple[str, tuple[int, tuple[int, ...], int]]:
        """Name, and type, shape and offset of a tensor."""
        name, rank = self.text(), self.number("I")
        if rank > 4:
            raise ValueError(f"{name[:80]} has rank {rank}")
        shape = tuple(reversed([self.number("Q") for _ in range(rank)]))
        return name, (self.number("I"), shape, self.number("Q"))

    def placed(
        self, start: int, kind: int, shape: tuple[int, ...], offset: int
    ) -> tuple[str, tuple[int, ...], Array]:
        """Type, shape and data of a tensor: floats, or bytes of blocks; none of other types."""
        name, count, size = TYPES.get(kind, (f"of type {kind}", 1, 0))
        elements = prod(shape)
        if elements % count or (shape and shape[-1] % count):
            raise ValueError(f"a tensor of {name} with rows of {shape[-1]}")
        self.at = start + offset
        content = np.frombuffer(self.taken(elements // count * size), np.uint8)
        if name in FLOATS:
            content = content.view(FLOATS[name])
        return name, shape, content


_Bytes = NDArray[np.uint8]


def _halves(data: _Bytes) -> Array:
    """Bytes [..., 2] as numbers of float16."""
    return np.ascontiguousarray(data).view(np.float16)[..., 0]


def _nibbles(data: _Bytes) -> _Bytes:
    """The lower halves of each block's bytes, then the upper ones; rows of codes."""
    codes = np.concatenate([data & 15, data >> 4], axis=-1)
    return codes.astype(np.uint8).reshape(len(data), -1)


def _q8_0(data: _Bytes) -> Blocks:
    codes = (data[..., 2:] ^ 128).astype(np.uint8)
    return Blocks(codes.reshape(len(data), -1), _halves(data[..., :2]), bits=8, zero=128)


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
    codes = (low.reshape(rows, -1) | high.reshape(rows, -1) << 4).astype(np.uint8)
    scales = np.ascontiguousarray(data[..., 192:208]).view(np.int8).astype(np.float32)
    scales *= _halves(data[..., 208:])[..., None].astype(np.float32)
    return Blocks(codes, scales.reshape(rows, -1), bits=8, zero=32)


_READERS = {"Q4_0": _q4_0, "Q4_1": _q4_1, "Q8_0": _q8_0, "Q6_K": _q6_k}
"""Functions that read rows of blocks, by the type's name."""

TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    8: ("Q8_0", 32, 34),
    14: ("Q6_K", 256, 210),
}
"""Name of each type that is read by its number, with the numbers and the bytes of a block."""

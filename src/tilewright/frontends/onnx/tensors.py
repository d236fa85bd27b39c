"""Constants of a model: a TensorProto becomes an array, checked against what its header says.

Its data may lie in a file: beside the model, or the model's own (lean.py). The location comes from
the model and is not trusted: it must stay inside the model's folder, also after symbolic links are
followed, and the run of bytes must lie inside the file. Files are mapped: arrays are views of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper

from tilewright.errors import TilewrightError, refuse
from tilewright.frontends.limits import MAX_ELEMENTS, shown, too_large
from tilewright.frontends.mapped import MappedFile
from tilewright.frontends.onnx.lean import WITHIN
from tilewright.frontends.onnx.limits import MAX_DIMENSIONS
from tilewright.frontends.onnx.narrow import NARROW, bytes_of, decoded
from tilewright.frontends.onnx.nodes import AttributeValue, Node
from tilewright.ir.types import Array


@dataclass(frozen=True)
class Constant:
    """A value known at import, and the model's name for it."""

    array: Array
    name: str


DTYPES: dict[int, np.dtype[Any]] = {
    TensorProto.FLOAT: np.dtype("<f4"),
    TensorProto.DOUBLE: np.dtype("<f8"),
    TensorProto.FLOAT16: np.dtype("<f2"),
    TensorProto.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    TensorProto.BOOL: np.dtype(np.bool_),
    TensorProto.INT8: np.dtype("i1"),
    TensorProto.INT16: np.dtype("<i2"),
    TensorProto.INT32: np.dtype("<i4"),
    TensorProto.INT64: np.dtype("<i8"),
    TensorProto.UINT8: np.dtype("u1"),
    TensorProto.UINT16: np.dtype("<u2"),
    TensorProto.UINT32: np.dtype("<u4"),
    TensorProto.UINT64: np.dtype("<u8"),
    **NARROW,
}
"""Element types that are read, as little-endian arrays."""


def type_name(data_type: int) -> str:
    """ONNX's name of an element type, or the number if it has none."""
    names = {number: name for name, number in TensorProto.DataType.items()}
    return names.get(data_type, str(data_type)).lower()


def array_of(tensor: TensorProto, files: Files | None = None) -> Array:
    """The data of a tensor; raises TilewrightError when they do not fit its type and shape.

    Where they lie in a file, or among the model's bytes, the array is a view of those.
    """
    where = f"tensor {shown(tensor.name)}"
    if tensor.data_type in NARROW and not tensor.HasField("segment"):
        return _narrow_array(tensor, files, where)
    if tensor.data_type == TensorProto.STRING and not tensor.HasField("segment"):
        return _text_array(tensor, where)
    dtype = DTYPES.get(tensor.data_type)
    if dtype is None:
        raise refuse(
            "onnx-dtype", f"elements of {type_name(tensor.data_type)} are not read", where=where
        )
    if tensor.HasField("segment"):
        raise refuse("onnx-dtype", "tensors in segments are not read", where=where)
    shape = tuple(tensor.dims)
    count = checked_size(shape, where)
    if tensor.data_location == TensorProto.EXTERNAL:
        data = external_bytes(tensor, files or Files(), count * dtype.itemsize)
    else:
        data = tensor.raw_data
    if tensor.HasField("raw_data") or tensor.data_location == TensorProto.EXTERNAL:
        if len(data) != count * dtype.itemsize:
            raise _wrong_length(where, len(data), count * dtype.itemsize, "bytes")
        return _from_bytes(data, dtype, shape)
    values: Sequence[Any] = getattr(tensor, helper.tensor_dtype_to_field(tensor.data_type))
    if len(values) != count:
        raise _wrong_length(where, len(values), count, "values")
    if tensor.data_type in (TensorProto.FLOAT16, TensorProto.BFLOAT16):
        # ONNX keeps the bits of short floats in int32_data.
        return np.array(values, np.int64).astype(np.uint16).view(dtype).reshape(shape)
    wide = np.uint64 if tensor.data_type in (TensorProto.UINT32, TensorProto.UINT64) else np.int64
    return np.array(values, dtype if dtype.kind == "f" else wide).astype(dtype).reshape(shape)


def _text_array(tensor: TensorProto, where: str) -> Array:
    """Texts, which import evaluates and no network has."""
    shape = tuple(tensor.dims)
    count = checked_size(shape, where)
    if len(tensor.string_data) != count or tensor.data_location == TensorProto.EXTERNAL:
        raise _wrong_length(where, len(tensor.string_data), count, "texts")
    texts = [text.decode(errors="replace") for text in tensor.string_data]
    return np.array(texts, object).reshape(shape)


def _narrow_array(tensor: TensorProto, files: Files | None, where: str) -> Array:
    """The data of a tensor in a format of at most 8 bits."""
    shape = tuple(tensor.dims)
    size = bytes_of(tensor.data_type, checked_size(shape, where))
    if tensor.data_location == TensorProto.EXTERNAL:
        data = np.frombuffer(external_bytes(tensor, files or Files(), size), np.uint8)
    elif tensor.HasField("raw_data"):
        data = np.frombuffer(tensor.raw_data, np.uint8)
    else:
        data = np.array(tensor.int32_data, np.int64).astype(np.uint8)  # A byte in each.
    if data.size != size:
        raise _wrong_length(where, data.size, size, "bytes")
    return decoded(tensor.data_type, data, shape)


def constant_of(
    node: Node, attributes: Mapping[str, AttributeValue], files: Files | None = None
) -> Constant:
    """The value of a Constant node, in any of its spellings; raises TilewrightError."""
    if len(attributes) != 1:
        raise node.refuse("it needs exactly one value")
    name, value = next(iter(attributes.items()))
    if isinstance(value, TensorProto):
        return Constant(array_of(value, files), node.outputs[0])
    if name in ("value_int", "value_ints"):
        array = np.array(value, np.int64)
    elif name in ("value_float", "value_floats"):
        array = np.array(value, np.float32)
    else:
        raise node.refuse(f"values of {name!r} are not read", code="onnx-dtype")
    return Constant(array, node.outputs[0])


def checked_size(shape: Sequence[int], where: str) -> int:
    """Number of elements of a shape; raises TilewrightError when it is out of bounds."""
    if len(shape) > MAX_DIMENSIONS:
        raise refuse("onnx-too-large", f"a tensor of {len(shape)} dimensions", where=where)
    if any(size < 0 for size in shape):
        raise refuse("onnx-shape", f"the shape {list(shape)} has a negative size", where=where)
    count = math.prod(shape)
    if too_large(shape):
        raise refuse(
            "onnx-too-large",
            f"the shape {list(shape)} takes more than {MAX_ELEMENTS} elements",
            where=where,
        )
    return count


def _from_bytes(
    data: bytes | NDArray[np.uint8], dtype: np.dtype[Any], shape: tuple[int, ...]
) -> Array:
    """Little-endian bytes as an array of the machine's own byte order."""
    if dtype.kind == "b":
        return (np.frombuffer(data, np.uint8) != 0).reshape(shape)
    array: Array = np.frombuffer(data, dtype).reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=False)


def _wrong_length(where: str, count: int, expected: int, unit: str) -> TilewrightError:
    return refuse(
        "onnx-truncated",
        f"it holds {count} {unit} where its type and shape take {expected}",
        where=where,
    )


@dataclass
class Files:
    """The files that hold the data of external tensors."""

    folder: Path | None = None
    """The model's folder; None if it did not come from a file."""
    content: MappedFile | NDArray[np.uint8] | None = None
    """The model's own bytes, to which its large constants refer."""
    beside: dict[Path, MappedFile] = field(default_factory=dict[Path, MappedFile])
    """Files of external data, mapped when a tensor first needs them."""

    @property
    def mapped(self) -> tuple[MappedFile, ...]:
        """All files that arrays may be views of."""
        mapped = (self.content,) if isinstance(self.content, MappedFile) else ()
        return (*mapped, *self.beside.values())

    def within(self, start: int, end: int) -> NDArray[np.uint8] | None:
        """Some of the model's own bytes; None if it has none there."""
        if self.content is None:
            return None
        if isinstance(self.content, MappedFile):
            return self.content.view(start, end) if end <= len(self.content.bytes) else None
        return self.content[start:end] if end <= len(self.content) else None

    def open(self, path: Path) -> MappedFile:
        """A file, mapped once; raises OSError."""
        if path not in self.beside:
            self.beside[path] = MappedFile(path)
        return self.beside[path]


def external_bytes(tensor: TensorProto, files: Files, expected: int) -> NDArray[np.uint8]:
    """The ``expected`` bytes of an external tensor, as a view; raises TilewrightError."""
    fields = _fields(tensor)
    if is_within(tensor):
        return _within(tensor, files, fields)
    location, path = external_file(tensor, files.folder)
    offset = _count(fields.get("offset", "0"), "offset", tensor)
    length = _count(fields.get("length", str(expected)), "length", tensor)
    if length != expected:
        raise _bad(tensor, f"it says {length} bytes where its type and shape take {expected}")
    try:
        file = files.open(path)
        size = len(file.bytes)
        if offset + length > size:
            raise _bad(
                tensor,
                f"bytes {offset} to {offset + length} are asked of {shown(location)}, "
                f"which has {size}",
            )
    except (OSError, ValueError) as error:
        raise _bad(tensor, f"{shown(location)} cannot be read: {error}") from error
    return file.view(offset, offset + length)


def _within(tensor: TensorProto, files: Files, fields: Mapping[str, str]) -> NDArray[np.uint8]:
    """Bytes of the model itself, as many as it has for this tensor."""
    start = _count(fields.get("offset", ""), "offset", tensor)
    length = _count(fields.get("length", ""), "length", tensor)
    data = files.within(start, start + length)
    if data is None:
        raise _bad(tensor, "its data lie outside the model")
    return data


def is_within(tensor: TensorProto) -> bool:
    """Return True if an external tensor's data are bytes of the model's own file."""
    return _fields(tensor).get("location", "") == WITHIN


def external_file(tensor: TensorProto, folder: Path | None) -> tuple[str, Path]:
    """The location that an external tensor states, and the file there; raises TilewrightError."""
    location = _fields(tensor).get("location", "")
    if folder is None:
        raise _bad(
            tensor,
            f"its data lie in the file {shown(location)}, and the model was not read from a file",
            "pass the model's path",
        )
    return location, _inside(folder, location, tensor)


def _fields(tensor: TensorProto) -> dict[str, str]:
    fields = {entry.key: entry.value for entry in tensor.external_data}
    if len(fields) < len(tensor.external_data):
        raise _bad(tensor, "an external_data key appears twice")
    return fields


def _bad(tensor: TensorProto, reason: str, help: str = "") -> TilewrightError:
    return refuse("onnx-external-data", reason, where=f"tensor {shown(tensor.name)}", help=help)


def _inside(folder: Path, location: str, tensor: TensorProto) -> Path:
    """The file that ``location`` names, which must lie inside ``folder``."""
    posix, windows = PurePosixPath(location), PureWindowsPath(location)
    if not location or "\0" in location:
        raise _bad(tensor, f"{shown(location)} is not a file name")
    if posix.is_absolute() or windows.drive or windows.root:
        raise _bad(tensor, f"{shown(location)} is not relative to the model's folder")
    if ".." in posix.parts or ".." in windows.parts:
        raise _bad(tensor, f"{shown(location)} leads out of the model's folder")
    try:
        path, root = (folder / location).resolve(), folder.resolve()
        exists = path.is_file()
    except (OSError, RuntimeError) as error:
        raise _bad(tensor, f"{shown(location)} cannot be followed: {error}") from error
    if not path.is_relative_to(root):
        raise _bad(tensor, f"{shown(location)} is a link out of the model's folder")
    if not exists:
        raise _bad(tensor, f"there is no file {shown(location)} beside the model")
    return path


def _count(text: str, subject: str, tensor: TensorProto) -> int:
    """A byte count from the model: decimal digits, no sign."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise _bad(tensor, f"{subject} {shown(text)} is not a number of bytes")
    return int(text)

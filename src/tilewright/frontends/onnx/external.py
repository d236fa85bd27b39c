"""Tensors whose data lie in a file: beside the model, or the model's own (lean.py).

The location comes from the model and is not trusted: it must stay inside the model's folder, also
after symbolic links are followed, and the run of bytes must lie inside the file. Files are mapped:
arrays are views of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from tilewright.errors import TilewrightError, refuse
from tilewright.frontends.limits import shown
from tilewright.frontends.mapped import MappedFile
from tilewright.frontends.onnx.lean import WITHIN


@dataclass
class Files:
    """The files that hold the data of external tensors."""

    folder: Path | None = None
    """Of the model; None if it did not come from a file."""
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

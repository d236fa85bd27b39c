"""Tensors whose data lie in a file beside the model.

The location comes from the model and is not trusted: it must stay inside the model's folder, also
after symbolic links are followed, and the run of bytes must lie inside the file.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath

from onnx import TensorProto

from tilewright.errors import TilewrightError, refuse
from tilewright.frontends.onnx.limits import shown


def external_bytes(tensor: TensorProto, folder: Path | None, expected: int) -> bytes:
    """The ``expected`` bytes of an external tensor; raises TilewrightError."""
    keys = [entry.key for entry in tensor.external_data]
    fields = {entry.key: entry.value for entry in tensor.external_data}
    if len(keys) != len(fields):
        raise _bad(tensor, "an external_data key appears twice")
    location = fields.get("location", "")
    if folder is None:
        raise _bad(
            tensor,
            f"its data lie in the file {shown(location)}, and the model was not read from a file",
            "pass the model's path",
        )
    path = _inside(folder, location, tensor)
    offset = _count(fields.get("offset", "0"), "offset", tensor)
    length = _count(fields.get("length", str(expected)), "length", tensor)
    if length != expected:
        raise _bad(tensor, f"it says {length} bytes where its type and shape take {expected}")
    try:
        size = path.stat().st_size
        if offset + length > size:
            raise _bad(
                tensor,
                f"bytes {offset} to {offset + length} are asked of {shown(location)}, "
                f"which has {size}",
            )
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(length)
    except OSError as error:
        raise _bad(tensor, f"{shown(location)} cannot be read: {error.strerror}") from error
    if len(data) != length:
        raise _bad(tensor, f"{shown(location)} ends early")
    return data


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
        found = path.is_file()
    except (OSError, RuntimeError) as error:
        raise _bad(tensor, f"{shown(location)} cannot be followed: {error}") from error
    if not path.is_relative_to(root):
        raise _bad(tensor, f"{shown(location)} is a link out of the model's folder")
    if not found:
        raise _bad(tensor, f"there is no file {shown(location)} beside the model")
    return path


def _count(text: str, what: str, tensor: TensorProto) -> int:
    """A byte count from the model: decimal digits, no sign."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise _bad(tensor, f"{what} {shown(text)} is not a number of bytes")
    return int(text)
